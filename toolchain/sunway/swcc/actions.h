// What swcc does with sources and objects: compile, rewrite, link.
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

// with_register_calls() and with_conversions() rewrite preprocessed code that
// gcc refuses but Sunway's compilers accept. They return it unchanged if there
// is nothing to rewrite.

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

// compiler() returns "gcc" or "g++".
std::string compiler(const Options& options);

// link() makes the program. Functions that a slave object defines get the
// prefix slave_ in all slave objects; those that only the C library has do not.
// The program contains a second program, linked from the objects for check
// mode.
void link(const Options& options);

}  // namespace swcc

#endif  // SWAMP_TOOLCHAIN_SWCC_ACTIONS_H_
