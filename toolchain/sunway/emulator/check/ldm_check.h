// Checks of one slave's LDM: which bytes were written, and whether the stack
// fits.
#ifndef SWAMP_SUNWAY_EMULATOR_CHECK_LDM_CHECK_H_
#define SWAMP_SUNWAY_EMULATOR_CHECK_LDM_CHECK_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "toolchain/sunway/emulator/machine.h"

namespace swamp::sunway::check {

// why_not_ldm() returns why [ldm, ldm + bytes) is not LDM that the slave may
// transfer to and from; empty if it is.
std::string why_not_ldm(const Slave& slave, const std::byte* ldm,
                        std::size_t bytes);

// Shadow records for every byte of a slave's slot whether it was written since
// it was allocated (heap) or since the launch began (stack). Unwritten words
// also hold a poison value. System libraries write without being observed, so a
// word counts as unwritten only if it is marked so and still holds the poison.
class Shadow {
 public:
  static constexpr std::uint8_t kPoison = 0xff;  // nan in every float format

  Shadow(std::byte* slot, std::size_t slot_bytes);

  void poison(std::byte* begin, std::size_t bytes) noexcept;
  void written(std::byte* begin, std::size_t bytes) noexcept;
  // words() is how many words [begin, begin + bytes) touches.
  static std::size_t words(const std::byte* begin, std::size_t bytes) noexcept;
  // unwritten_words() counts the words of [begin, begin + bytes) never written.
  std::size_t unwritten_words(const std::byte* begin,
                              std::size_t bytes) const noexcept;
  // for_unwritten() visits the offsets from `begin` of the bytes never written.
  template <class Visit>
  void for_unwritten(const std::byte* begin, std::size_t bytes,
                     Visit visit) const {
    const auto first = static_cast<std::size_t>(begin - slot_);
    for (std::size_t i = 0; i < bytes; ++i) {
      const std::size_t at = first + i;
      if ((unwritten_[at / 4] >> at % 4 & 1u) != 0) visit(i);
    }
  }
  // unwritten_run() is the longest run of unwritten words.
  std::size_t unwritten_run(const std::byte* begin,
                            std::size_t bytes) const noexcept;

 private:
  bool is_unwritten(std::size_t word) const noexcept;

  std::byte* slot_;
  std::vector<std::uint8_t> unwritten_;  // of each word, a bit for each byte
};

// StackCheck measures how deep a slave's stack is, and reports a stack for which
// LDM is too small.
class StackCheck {
 public:
  explicit StackCheck(const Slave& slave) : slave_(slave) {}

  // begin_launch() starts again; the slave's stack pointer is at `here`.
  void begin_launch(std::uintptr_t here) noexcept;
  // end_launch() checks the deepest access for which no call followed.
  void end_launch() { check_depth(deepest_, deepest_pc_); }

  // entered() is for the beginning of one of the slave's functions, or for a
  // transfer to or from the stack.
  void entered(std::uintptr_t lowest) noexcept {
    if (lowest < lowest_) lowest_ = lowest;
  }
  // access() is for a load or store by the slave's own instruction.
  void access(std::uintptr_t address, const void* pc) {
    if (address < lowest_access_ &&
        address >= reinterpret_cast<std::uintptr_t>(slave_.stack)) {
      deepen(address, pc);
    }
  }
  // check() reports if the stack of the calling function does not fit in LDM.
  void check(const void* pc);

  // lowest() is the lowest stack address known to be used in this launch or,
  // before begin_launch(), in the last one.
  std::uintptr_t lowest() const noexcept { return lowest_; }
  std::size_t bytes() const noexcept;

 private:
  void deepen(std::uintptr_t lowest, const void* pc);
  void check_depth(std::size_t depth, const void* pc);

  const Slave& slave_;
  bool reported_ = false;
  std::size_t deepest_ = 0;  // access of this launch, below the stack's top
  const void* deepest_pc_ = nullptr;
  std::uintptr_t lowest_access_ = ~std::uintptr_t{0};
  std::uintptr_t lowest_ = ~std::uintptr_t{0};
};

}  // namespace swamp::sunway::check

#endif  // SWAMP_SUNWAY_EMULATOR_CHECK_LDM_CHECK_H_
