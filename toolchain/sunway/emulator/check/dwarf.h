// Where the variables of functions are, from the program's debug information.
#ifndef SWAMP_SUNWAY_EMULATOR_CHECK_DWARF_H_
#define SWAMP_SUNWAY_EMULATOR_CHECK_DWARF_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace swamp::sunway::check {

// Slot is a variable that is at one place in its function's frame all the time,
// and the code in which it is visible.
struct Slot {
  // The frame's base is the stack pointer before the call of the function.
  enum class Place { base, frame_pointer, stack_pointer };
  using Range = std::pair<std::uintptr_t, std::uintptr_t>;
  std::vector<Range> scope;
  std::string name;
  std::size_t bytes = 0;
  bool is_plain = false;  // a number or an array of numbers, without padding
  Place place = Place::base;
  std::uintptr_t offset = 0;
};

// Function is code that ends at the key of functions(). Addresses are those of
// a program that is loaded at 0.
struct Function {
  std::uintptr_t begin = 0;
  std::vector<Slot> slots;
};
const std::map<std::uintptr_t, Function>& functions();

}  // namespace swamp::sunway::check

#endif  // SWAMP_SUNWAY_EMULATOR_CHECK_DWARF_H_
