// What the program's debug information and symbol table tell: the source line
// of a call, variables, and the names of slave functions.
#ifndef SWAMP_SUNWAY_EMULATOR_DEBUG_INFO_H_
#define SWAMP_SUNWAY_EMULATOR_DEBUG_INFO_H_

#include <cstddef>
#include <cstdint>
#include <string>

namespace swamp::sunway {

// program_image() returns the program's file, which is loaded at
// program_base().
std::string program_image();
std::uintptr_t program_base();

struct Location {
  std::string file;
  int line;
  std::string text() const { return file + ":" + std::to_string(line); }
};

// locate() returns the source line of the call that returns to `pc`; "?"
// and 0 without debug information. Files below the working directory are named
// from there.
Location locate(const void* pc);

// Symbol is a variable of the program that holds an address.
struct Symbol {
  std::string name;
  std::uintptr_t begin;
  std::size_t bytes;
};

// find_variable() finds the global or static variable at an address; its name
// is empty if there is none.
const Symbol& find_variable(std::uintptr_t address);
// find_ldm_variable() finds the __thread_local variable at an offset in the
// program's TLS block.
const Symbol& find_ldm_variable(std::uintptr_t offset);
// find_ldm_variable_before() also finds the last one that ends before it.
const Symbol& find_ldm_variable_before(std::uintptr_t offset);

// largest_ldm_variables() names the three largest __thread_local variables.
std::string largest_ldm_variables();

// name_of_function() returns the name of a slave function in the sources.
std::string name_of_function(const void* function);

// reads_clock_unseen() returns whether slaves read the cycle counter by inline
// assembly, which check mode cannot intercept.
bool reads_clock_unseen();

}  // namespace swamp::sunway

#endif  // SWAMP_SUNWAY_EMULATOR_DEBUG_INFO_H_
