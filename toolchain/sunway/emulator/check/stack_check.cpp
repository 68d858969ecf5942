#include "toolchain/sunway/emulator/check/stack_check.h"

#include <algorithm>
#include <string>

#include "toolchain/sunway/emulator/check/ranges.h"
#include "toolchain/sunway/emulator/check/report.h"

namespace swamp::sunway::check {

void StackCheck::begin_launch(std::uintptr_t here) noexcept {
  lowest_ = here;
  lowest_access_ = here;
  deepest_ = 0;
}

std::size_t StackCheck::bytes() const noexcept {
  return number(slave_.stack_top) - std::min(lowest_, number(slave_.stack_top));
}

void StackCheck::deepen(std::uintptr_t lowest, const void* pc) {
  lowest_access_ = lowest;
  lowest_ = std::min(lowest_, lowest);
  // Normally the next call reports it, because its line is the better one to
  // name. An endless recursion makes no call, so it is reported here.
  const std::size_t depth = number(slave_.stack_top) - lowest;
  if (depth > 2 * machine().ldm_bytes - machine().ldm_bytes / 4) {
    check_depth(depth, pc);
  } else {
    deepest_ = depth;
    deepest_pc_ = pc;
  }
}

[[gnu::noinline]] void StackCheck::check(const void* pc) {
  const auto* here = static_cast<std::byte*>(__builtin_frame_address(0));
  check_depth(static_cast<std::size_t>(slave_.stack_top - here), pc);
}

void StackCheck::check_depth(std::size_t depth, const void* pc) {
  const std::size_t used =
      depth + machine().static_bytes + slave_.heap.in_use();
  // For the frames of the system above the slave's function and the checker's
  // own below it.
  constexpr std::size_t kMargin = 1024;
  if (reported_ || used <= machine().ldm_bytes + kMargin) return;
  reported_ = true;
  report({"ldm-range", pc, &slave_,
          "LDM overflows: " + std::to_string(machine().static_bytes) +
              " bytes of static variables, " +
              std::to_string(slave_.heap.in_use()) + " of ldm_malloc and " +
              std::to_string(depth) + " of stack are more than the " +
              std::to_string(machine().ldm_bytes) + " there are"});
}

}  // namespace swamp::sunway::check
