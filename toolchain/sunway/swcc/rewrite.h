#ifndef SWAMP_TOOLCHAIN_SWCC_REWRITE_H_
#define SWAMP_TOOLCHAIN_SWCC_REWRITE_H_

#include <string>

namespace swcc {

// Both functions rewrite preprocessed code that gcc refuses but Sunway's
// compilers accept, and return it unchanged if there is nothing to rewrite.

// with_register_calls() replaces the inline assembly of SW26010's register
// communication by function calls: putr, putc, getr and getc, one instruction
// in a statement, which is how programs write them in macros.
std::string with_register_calls(const std::string& preprocessed,
                                bool cplusplus);

// with_conversions() adds the conversions that Sunway's compilers do
// implicitly: a number is copied into all elements of a vector in an
// assignment, an initializer and a cast; a cast between vectors of equally many
// elements converts each. It identifies variables by name only and can be
// wrong, so swcc uses it only after gcc has refused the source.
std::string with_conversions(const std::string& preprocessed, bool cplusplus);

}  // namespace swcc

#endif  // SWAMP_TOOLCHAIN_SWCC_REWRITE_H_
