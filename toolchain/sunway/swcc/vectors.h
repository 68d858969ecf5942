#ifndef SWAMP_TOOLCHAIN_SWCC_VECTORS_H_
#define SWAMP_TOOLCHAIN_SWCC_VECTORS_H_

#include <string>

namespace swcc {

// with_conversions() spells out, in preprocessed code, what Sunway's compilers
// do by themselves and gcc refuses: a number becomes a vector of it in an
// assignment, an initializer and a cast; a cast between vectors of as many
// elements converts each. It knows variables by their names alone, so swcc asks
// for it only where gcc has refused the source.
std::string with_conversions(const std::string& preprocessed, bool cplusplus);

}  // namespace swcc

#endif  // SWAMP_TOOLCHAIN_SWCC_VECTORS_H_
