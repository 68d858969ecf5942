#ifndef SWAMP_TOOLCHAIN_SWCC_LINK_H_
#define SWAMP_TOOLCHAIN_SWCC_LINK_H_

#include "toolchain/sunway/swcc/options.h"

namespace swcc {

// link() makes the program. Functions that some slave object defines get the
// prefix slave_ in all slave objects; what only the C library has stays. The
// program holds a second one, made of the objects for check mode.
void link(const Options& options);

}  // namespace swcc

#endif  // SWAMP_TOOLCHAIN_SWCC_LINK_H_
