// Variables on the stacks of slaves and masters, from the debug information of
// code that was compiled for check mode.
#ifndef SWAMP_SUNWAY_EMULATOR_CHECK_LOCALS_H_
#define SWAMP_SUNWAY_EMULATOR_CHECK_LOCALS_H_

#include <cstddef>
#include <cstdint>
#include <string>

namespace swamp::sunway::check {

// Local is a variable on a stack; bytes is 0 if there is none.
struct Local {
  std::string name;
  std::uintptr_t begin = 0;
  std::size_t bytes = 0;
  bool is_plain = false;  // a number or an array of numbers, without padding
};

// find_own_local() returns the variable at an address in a function that the
// calling thread is in; if several may be there, the one that holds most of the
// range.
Local find_own_local(std::uintptr_t begin, std::size_t bytes);

// remember_stack() lets find_masters_local() find variables of the functions
// that the calling host thread is in, until it calls forget_stack().
void remember_stack();
void forget_stack();
Local find_masters_local(std::uintptr_t begin, std::size_t bytes);

}  // namespace swamp::sunway::check

#endif  // SWAMP_SUNWAY_EMULATOR_CHECK_LOCALS_H_
