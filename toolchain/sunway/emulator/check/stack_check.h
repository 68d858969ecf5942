// How deep a slave's stack is, and whether LDM is large enough for it.
#ifndef SWAMP_SUNWAY_EMULATOR_CHECK_STACK_CHECK_H_
#define SWAMP_SUNWAY_EMULATOR_CHECK_STACK_CHECK_H_

#include <cstddef>
#include <cstdint>

#include "toolchain/sunway/emulator/machine.h"

namespace swamp::sunway::check {

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

#endif  // SWAMP_SUNWAY_EMULATOR_CHECK_STACK_CHECK_H_
