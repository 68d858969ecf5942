// What an address of the program is: a source line, a variable, an allocation,
// a mapping or LDM.
#ifndef SWAMP_SUNWAY_EMULATOR_CHECK_ADDRESSES_H_
#define SWAMP_SUNWAY_EMULATOR_CHECK_ADDRESSES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "toolchain/sunway/emulator/check/malloc.h"
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
// find_ldm_variable_before() also finds the last one that ends before it.
Symbol find_ldm_variable_before(std::uintptr_t offset);

// largest_ldm_variables() names the three largest __thread_local variables.
std::string largest_ldm_variables();

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

// KnownMain remembers some ranges of main memory that one slave may access.
class KnownMain {
 public:
  // why_not() is why_not_main().
  std::string why_not(std::uintptr_t address, std::size_t bytes, bool write) {
    const Range& range = ranges_[address / 4096 % ranges_.size()];
    if (address >= range.begin && address + bytes <= range.end &&
        (range.write || !write) && range.releases == releases()) {
      return "";
    }
    return look_up(address, bytes, write);
  }

 private:
  struct Range {
    std::uintptr_t begin = 0, end = 0;
    bool write = false;
    std::uint64_t releases = 0;  // of memory, until then
  };
  std::string look_up(std::uintptr_t address, std::size_t bytes, bool write);

  std::array<Range, 16> ranges_;
};

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
