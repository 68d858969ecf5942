// What an address of the program is: a source line, a variable, an allocation,
// a mapping or LDM.
#ifndef SWAMP_SUNWAY_EMULATOR_CHECK_ADDRESSES_H_
#define SWAMP_SUNWAY_EMULATOR_CHECK_ADDRESSES_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "toolchain/sunway/emulator/machine.h"

namespace swamp::sunway::check {

struct Location {
  std::string file;
  int line;
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
Symbol find_variable(std::uintptr_t address);
// find_ldm_variable() finds the __thread_local variable at an offset in the
// program's TLS block.
Symbol find_ldm_variable(std::uintptr_t offset);

// name_of_function() returns the name of a slave function in the sources.
std::string name_of_function(const void* function);

// reads_clock_unseen() returns whether slaves read the cycle counter by inline
// assembly, which check mode cannot intercept.
bool reads_clock_unseen();

// ldm_owner() returns the slave in whose LDM an address is, or nullptr.
const Slave* ldm_owner(std::uintptr_t address);

// why_not_main() returns why [address, address + bytes) is not main memory that
// may be read (or, with `write`, written); empty if it may.
std::string why_not_main(std::uintptr_t address, std::size_t bytes, bool write);

// readable_bytes() returns how many bytes of one variable, allocation or
// mapping follow an address, at most `most`.
std::size_t readable_bytes(std::uintptr_t address, std::size_t most);

// shares_memory() returns whether the process has writable memory that a child
// would share with it (MAP_SHARED).
bool shares_memory();

// describe() names an address for a report: "grid + 1024", "0x7f...".
std::string describe(std::uintptr_t address);

}  // namespace swamp::sunway::check

#endif  // SWAMP_SUNWAY_EMULATOR_CHECK_ADDRESSES_H_
