// Checks of one slave's LDM: which bytes were written, and whether the stack
// fits.
#ifndef SWAMP_SUNWAY_EMULATOR_CHECK_LDM_CHECK_H_
#define SWAMP_SUNWAY_EMULATOR_CHECK_LDM_CHECK_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "toolchain/sunway/emulator/check/fast_path.h"
#include "toolchain/sunway/emulator/machine.h"
#include "toolchain/sunway/emulator/transfer.h"

namespace swamp::sunway::check {

// why_not_ldm() returns why [ldm, ldm + bytes) is not LDM that the slave may
// transfer to and from; empty if it is.
std::string why_not_ldm(const Slave& slave, const std::byte* ldm,
                        std::size_t bytes);

// Shadow holds the flags of every byte of a slave's slot; a byte without flags
// needs no check: see fast_path.h. Unwritten words also hold a poison value.
// System libraries write without being observed, so a word counts as unwritten
// only if all of it is marked so and it still holds the poison.
class Shadow {
 public:
  enum Flag : std::uint8_t {
    kUnwritten = 1,  // since it was allocated or, for the stack, in this launch
    kWatched = 2,    // a transfer may read or write it
    kOutside = 4,    // of every variable and block
    kBelow = 8,      // the lowest access to the stack
    kUnset = 16,     // it came from main memory that nobody wrote
    kUnsetPart = 32,  // other parts of that block of memory were written
  };
  // A nan in every float format, and no number that programs use often.
  static constexpr std::uint32_t kPoison = 0xfffbfffd;

  // poison() fills words; the flags become kUnwritten and `more`.
  static void poison(std::byte* begin, std::size_t bytes,
                     unsigned more = 0) noexcept;
  static void written(const std::byte* begin, std::size_t bytes) noexcept {
    clear(begin, bytes, kUnwritten | kUnset | kUnsetPart);
  }
  // become() replaces all flags.
  static void become(const std::byte* begin, std::size_t bytes,
                     unsigned flags) noexcept {
    std::memset(&of(begin), static_cast<int>(flags), bytes);
  }
  static void set(const std::byte* begin, std::size_t bytes,
                  unsigned flags) noexcept;
  static void clear(const std::byte* begin, std::size_t bytes,
                    unsigned flags) noexcept;
  static bool has(const std::byte* begin, std::size_t bytes,
                  unsigned flags) noexcept {
    return (any_of(begin, bytes) & flags) != 0;
  }
  // words() is how many words [begin, begin + bytes) touches.
  static std::size_t words(const std::byte* begin, std::size_t bytes) noexcept;
  // unwritten() counts the words that [begin, begin + bytes) touches and that
  // were never written, and those of their longest run.
  struct Unwritten {
    std::size_t words = 0, longest = 0;
  };
  static Unwritten unwritten(const std::byte* begin,
                             std::size_t bytes) noexcept;
  // for_unwritten() visits the offsets from `begin` of the bytes never written.
  template <class Visit>
  static void for_unwritten(const std::byte* begin, std::size_t bytes,
                            Visit visit) {
    for (std::size_t i = 0; i < bytes; ++i) {
      if ((of(begin + i) & kUnwritten) != 0) visit(i);
    }
  }
  // has_unwritten_data() returns whether at least two adjacent words were never
  // written that cannot be padding of a struct, which is smaller than the
  // alignment of its end.
  static bool has_unwritten_data(const std::byte* begin,
                                 std::size_t bytes) noexcept;

 private:
  // any_of() returns the flags that at least one of the bytes has. A reply
  // word, which every transfer tests, has 4 bytes.
  static unsigned any_of(const std::byte* begin, std::size_t bytes) noexcept {
    std::uint32_t flags = 0;
    if (bytes != sizeof flags) return any_of_many(begin, bytes);
    std::memcpy(&flags, &of(begin), sizeof flags);
    flags |= flags >> 16;
    return (flags | flags >> 8) & 0xffu;
  }
  static unsigned any_of_many(const std::byte* begin,
                              std::size_t bytes) noexcept;
  static std::uint8_t& of(const std::byte* at) noexcept {
    return *reinterpret_cast<std::uint8_t*>(
        const_cast<std::byte*>(at + kShadowDistance));
  }
  static bool is_unwritten(const std::byte* word) noexcept;
};

// why_not_static() returns why [ldm, ldm + bytes) of the slave's static
// variables is none of them; empty if it is one.
std::string why_not_static(const Slave& slave, const std::byte* ldm,
                           std::size_t bytes);

// map_shadow() makes the shadow of a slave: no block is allocated, and the
// stack has not been accessed.
void map_shadow(const Slave& slave);
// Flags the bytes between and after the static variables as out of range.
void mark_gaps(const Slave& slave);
// set_fast_path() is for the calling thread.
void set_fast_path(const FastPath& fast);

// StackCheck measures how deep a slave's stack is, and reports a stack for
// which LDM is too small.
class StackCheck {
 public:
  StackCheck(const Slave& slave, FastPath& fast)
      : slave_(slave), lowest_(fast.lowest) {}

  // begin_launch() starts again; the slave's stack pointer is at `here`.
  void begin_launch(std::uintptr_t here) noexcept;
  // end_launch() checks the deepest access for which no call followed.
  void end_launch() { check_depth(deepest_, deepest_heap_, deepest_pc_); }

  // entered() is for the beginning of one of the slave's functions, or for a
  // transfer to or from the stack.
  void entered(std::uintptr_t lowest, const void* pc) {
    if (lowest < lowest_) lowest_ = lowest;
    if (lowest < address_of(slave_.stack)) leaves_slot(lowest, pc);
  }
  // access() is for a load or store by the slave's own instruction.
  void access(std::uintptr_t address, const void* pc) {
    if (address < lowest_access_ &&
        address >= reinterpret_cast<std::uintptr_t>(slave_.stack)) {
      deepen(address, pc);
    }
  }
  // allocated() is called after ldm_malloc(), when the stack has this size: the
  // accesses below it count anew.
  void allocated(std::size_t depth) noexcept;
  // check() reports if the stack of the calling function does not fit in LDM.
  void check(const void* pc);

  // lowest() is the lowest stack address known to be used in this launch or,
  // before begin_launch(), in the last one.
  std::uintptr_t lowest() const noexcept { return lowest_; }
  std::size_t bytes() const noexcept;

 private:
  void deepen(std::uintptr_t lowest, const void* pc);
  // leaves_slot() ends the program, which would write into another slot.
  [[noreturn]] void leaves_slot(std::uintptr_t lowest, const void* pc);
  void check_depth(std::size_t depth, std::size_t heap, const void* pc);

  const Slave& slave_;
  bool reported_ = false;
  // The access of this launch for which most LDM was in use: the size of the
  // stack, and of the blocks of ldm_malloc.
  std::size_t deepest_ = 0, deepest_heap_ = 0;
  const void* deepest_pc_ = nullptr;
  std::uintptr_t lowest_access_ = ~std::uintptr_t{0};
  std::uintptr_t& lowest_;
};

}  // namespace swamp::sunway::check

#endif  // SWAMP_SUNWAY_EMULATOR_CHECK_LDM_CHECK_H_
