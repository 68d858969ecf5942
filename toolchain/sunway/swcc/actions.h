// What swcc does with sources and objects: compile, rewrite, link.
#ifndef SWAMP_TOOLCHAIN_SWCC_ACTIONS_H_
#define SWAMP_TOOLCHAIN_SWCC_ACTIONS_H_

#include <set>
#include <string>
#include <vector>

#include "toolchain/sunway/swcc/options.h"

namespace swcc {

// compile() runs a command line with -c, -S, -E or -M.
void compile(const Options& options);

// compile_file() compiles a source in the command line of a link to `object`.
void compile_file(const Options& options, const std::string& source,
                  const std::string& object);

// with_assembly_calls() and with_conversions() rewrite preprocessed code that
// gcc refuses but Sunway's compilers accept. They return it unchanged if there
// is nothing to rewrite.

// with_assembly_calls() replaces inline assembly of the machine by C: register
// communication, barriers, DMA descriptors, atomics, and scalar instructions on
// integers, with branches inside the statement. It adds the other instructions
// that it found to `refused`.
std::string with_assembly_calls(const std::string& preprocessed, bool cplusplus,
                                std::set<std::string>& refused);

// with_conversions() adds the conversions that Sunway's compilers do
// implicitly: a number is copied into all elements of a vector in an
// assignment, an initializer and a cast; a cast between vectors of equally many
// elements converts each; a vector that is assigned to a number is its first
// element (in C). It identifies variables by name only and can be
// wrong, so swcc uses it only after gcc has refused the source.
std::string with_conversions(const std::string& preprocessed, bool cplusplus);

// remaining_errors() returns the errors of a source that gcc refused, and then
// refused rewritten: the messages about the source, as far as they are still
// true, and those that are new.
std::string remaining_errors(const std::string& first,
                             const std::string& second);

// advice() returns a line for code that chooses parts for x86, or "".
std::string advice(const std::string& source, const std::string& errors);

// headers_for() returns the headers with what the errors name: keywords and
// types that Sunway's compilers know without a header, and <stdio.h>, which the
// vendor's headers include.
Words headers_for(const std::string& errors);

// with_tests() edits the assembly file of slave code for check mode: it puts
// tests in front of the calls of the checker, which most accesses do not need,
// and counts floating-point operations and accesses.
std::string with_tests(const std::string& assembly);

// compiler() returns "gcc" or "g++".
std::string compiler(const Options& options);

// LdmVariable is a variable in the LDM of each slave.
struct LdmVariable {
  std::string name;
  long bytes;
  std::string object;  // that defines it
};

// LdmMap is what fills LDM. call_graphs are those of the slave objects, as gcc
// writes them, and kernels the functions that the master names.
struct LdmMap {
  std::vector<LdmVariable> variables;
  std::vector<std::string> call_graphs;
  std::set<std::string> kernels;
};

// print_ldm_map() prints the variables, and by kernel the stack and what is
// left for ldm_malloc(). Frames have the sizes of this computer.
void print_ldm_map(const LdmMap& map, const std::string& program);

// link() makes the program. Functions that a slave object defines get the
// prefix slave_ in all slave objects; those that only the C library has do not.
// The program contains a second program, linked from the objects for check
// mode.
void link(const Options& options);

}  // namespace swcc

#endif  // SWAMP_TOOLCHAIN_SWCC_ACTIONS_H_
