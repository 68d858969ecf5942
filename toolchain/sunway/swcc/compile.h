#ifndef SWAMP_TOOLCHAIN_SWCC_COMPILE_H_
#define SWAMP_TOOLCHAIN_SWCC_COMPILE_H_

#include <string>

#include "toolchain/sunway/swcc/options.h"

namespace swcc {

// compile() is a command line with -c, -S, -E or -M.
void compile(const Options& options);

// compile_file() makes `object` of a source that stands in a link's command.
void compile_file(const Options& options, const std::string& source,
                  const std::string& object);

// compiler() is gcc or g++.
std::string compiler(const Options& options);

}  // namespace swcc

#endif  // SWAMP_TOOLCHAIN_SWCC_COMPILE_H_
