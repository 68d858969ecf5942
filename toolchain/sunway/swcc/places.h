#ifndef SWAMP_TOOLCHAIN_SWCC_PLACES_H_
#define SWAMP_TOOLCHAIN_SWCC_PLACES_H_

#include <string>

namespace swcc {

// Where the headers and the library are, from where swcc itself is: the tree
// may be moved.
struct Places {
  std::string include;
  std::string library;
};
const Places& places();

}  // namespace swcc

#endif  // SWAMP_TOOLCHAIN_SWCC_PLACES_H_
