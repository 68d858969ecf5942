// What an address of the program is: a variable, an allocation, a mapping or
// LDM.
#ifndef SWAMP_SUNWAY_EMULATOR_CHECK_ADDRESSES_H_
#define SWAMP_SUNWAY_EMULATOR_CHECK_ADDRESSES_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "toolchain/sunway/emulator/check/malloc.h"
#include "toolchain/sunway/emulator/machine.h"

namespace swamp::sunway::check {

// why_not_main() returns why [address, address + bytes) is not main memory that
// may be read (or, with `write`, written); empty if it may.
std::string why_not_main(std::uintptr_t address, std::size_t bytes, bool write);

// KnownRanges remembers some ranges of main memory that one slave may access,
// and one variable of LDM.
class KnownRanges {
 public:
  // has() returns whether it remembers that the slave may access this range.
  bool has(std::uintptr_t address, std::size_t bytes, bool write) const {
    return ranges_[address / 4096 % ranges_.size()].has(address, bytes, write);
  }
  // has_anywhere() also finds a large range by another part of it.
  bool has_anywhere(std::uintptr_t address, std::size_t bytes,
                    bool write) const {
    return std::any_of(ranges_.begin(), ranges_.end(), [=](const Range& range) {
      return range.has(address, bytes, write);
    });
  }
  // add_ldm() remembers the static variable of LDM at an address, or a range of
  // the stack that the code at `pc` may transfer. has_ldm() returns whether a
  // range lies in the last variable, or is one of the last of this code.
  void add_ldm(const Slave& slave, const std::byte* address, std::size_t bytes,
               const void* pc);
  bool has_ldm(const std::byte* address, std::size_t bytes,
               const void* pc) const {
    const auto begin = reinterpret_cast<std::uintptr_t>(address);
    const Use& use = uses_[hash_of(pc, begin)];
    return (begin >= ldm_.begin && begin + bytes <= ldm_.end) ||
           (use.pc == pc && use.begin == begin && use.end == begin + bytes);
  }
  // why_not() is why_not_main().
  std::string why_not(std::uintptr_t address, std::size_t bytes, bool write) {
    return has(address, bytes, write) ? "" : look_up(address, bytes, write);
  }

 private:
  struct Range {
    std::uintptr_t begin = 0, end = 0;
    bool write = false;
    std::uint64_t releases = 0;  // of memory, until then

    bool has(std::uintptr_t address, std::size_t bytes, bool writes) const {
      return address >= begin && address + bytes <= end && (write || !writes) &&
             releases == check::releases();
    }
  };
  struct Use {
    const void* pc = nullptr;
    std::uintptr_t begin = 0, end = 0;
  };
  static std::size_t hash_of(const void* pc, std::uintptr_t begin) {
    return (reinterpret_cast<std::uintptr_t>(pc) / 8 + begin / 32) % kUses;
  }
  std::string look_up(std::uintptr_t address, std::size_t bytes, bool write);

  static constexpr std::size_t kUses = 8;
  std::array<Use, kUses> uses_;
  std::array<Range, 16> ranges_;
  Range ldm_;
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
