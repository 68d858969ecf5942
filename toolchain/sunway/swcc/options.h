#ifndef SWAMP_TOOLCHAIN_SWCC_OPTIONS_H_
#define SWAMP_TOOLCHAIN_SWCC_OPTIONS_H_

#include <map>
#include <string>
#include <vector>

namespace swcc {

using Words = std::vector<std::string>;

// Options is a command line after parsing.
struct Options {
  enum class Side { none, host, slave, hybrid };
  enum class Action { link, compile, pass };  // pass: run gcc only
  Side side = Side::none;
  Action action = Action::link;
  bool cplusplus = false;  // called by a name that ends in ++
  bool simd = false;
  bool old = false;    // sw5cc or its options were used
  bool debug = false;  // -g was given
  // The section of __uncached variables: one that takes no space in the object,
  // one with initial values, or none.
  enum class Uncached { zero, data, unknown } uncached = Uncached::zero;
  bool shared = false;
  bool ldm_map = false;      // -mldm-map
  bool relocatable = false;  // -r, or called as swld
  std::string output;
  std::string standard;                          // value of -std=
  Words inputs;                                  // files and -l, in order
  std::map<std::string, std::string> languages;  // of -x, by input
  Words library_folders;
  Words rest;  // passed to gcc
};

// expanded() replaces @FILE by the words in the file, as gcc does.
Words expanded(const Words& words);

// tool() returns the program of binutils that this name of swcc stands for:
// "ar" or "ranlib", or "" if it is a compiler or swld.
std::string tool(const std::string& name);

// read_options() ends the program with a message if an option is not emulated.
Options read_options(const std::string& name, const Words& words);

// named() returns a file name with the ending that its language has.
std::string named(const Options& options, const std::string& file);

// makes_objects() returns whether sources are compiled to objects.
bool makes_objects(const Options& options);

// read_standard_input() replaces the input - by a file, because it is compiled
// twice. It fails as gcc does if the language is not given.
void read_standard_input(Options& options);

bool is_source(const std::string& file);
bool is_cplusplus(const std::string& file);
bool is_fortran(const std::string& file);
std::string usage();

// fail() prints the line on stderr and ends swcc with exit code 1.
[[noreturn]] void fail(const std::string& line);

}  // namespace swcc

#endif  // SWAMP_TOOLCHAIN_SWCC_OPTIONS_H_
