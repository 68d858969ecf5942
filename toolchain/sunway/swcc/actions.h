#ifndef SWAMP_TOOLCHAIN_SWCC_ACTIONS_H_
#define SWAMP_TOOLCHAIN_SWCC_ACTIONS_H_

#include <string>

#include "toolchain/sunway/swcc/options.h"

namespace swcc {

// compile() runs a command line with -c, -S, -E or -M.
void compile(const Options& options);

// compile_file() compiles a source in the command line of a link to `object`.
void compile_file(const Options& options, const std::string& source,
                  const std::string& object);

// compiler() returns "gcc" or "g++".
std::string compiler(const Options& options);

// link() makes the program. Functions that a slave object defines get the
// prefix slave_ in all slave objects; those that only the C library has do not.
// The program contains a second program, linked from the objects for check
// mode.
void link(const Options& options);

}  // namespace swcc

#endif  // SWAMP_TOOLCHAIN_SWCC_ACTIONS_H_
