#include "toolchain/sunway/emulator/check/ldm_check.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "toolchain/sunway/emulator/check/addresses.h"
#include "toolchain/sunway/emulator/check/report.h"
#include "toolchain/sunway/emulator/transfer.h"

namespace swamp::sunway::check {
namespace {

constexpr std::size_t kWord = 4;
constexpr std::uint8_t kWhole = 0xf;

}  // namespace

std::string why_not_ldm(const Slave& slave, const std::byte* ldm,
                        std::size_t bytes) {
  if (!slave.in_ldm(ldm, 1)) {
    return "the LDM side of the transfer is not in LDM (it is in main "
           "memory: " +
           describe(address_of(ldm)) +
           "); the machine would cut the address to 18 bits and overwrite LDM";
  }
  if (ldm < slave.slot + machine().ldm_bytes) {
    const auto offset = static_cast<std::size_t>(ldm - slave.slot);
    if (slave.heap.holds(offset, bytes)) return "";
    return "the LDM side is outside the blocks of ldm_malloc, at byte " +
           std::to_string(offset) + " of their memory";
  }
  const auto in_statics = address_of(ldm) - address_of(slave.statics);
  if (ldm >= slave.statics && in_statics < machine().static_bytes) {
    const Symbol variable = find_ldm_variable(in_statics);
    if (variable.name.empty() ||
        in_statics + bytes <= variable.begin + variable.bytes) {
      return "";
    }
    return "the LDM side extends " +
           std::to_string(in_statics + bytes - variable.begin -
                          variable.bytes) +
           " bytes beyond the end of " + variable.name + " (" +
           std::to_string(variable.bytes) + " bytes)";
  }
  if (ldm >= slave.stack && ldm + bytes <= slave.stack_top) return "";
  return "the LDM side is outside the slave's variables";
}

Shadow::Shadow(std::byte* slot, std::size_t slot_bytes)
    : slot_(slot), unwritten_(slot_bytes / kWord) {}

void Shadow::poison(std::byte* begin, std::size_t bytes) noexcept {
  std::memset(begin, kPoison, bytes);
  const auto first = static_cast<std::size_t>(begin - slot_);
  std::fill(unwritten_.data() + first / kWord,
            unwritten_.data() + (first + bytes) / kWord, kWhole);
}

void Shadow::written(std::byte* begin, std::size_t bytes) noexcept {
  const auto first = static_cast<std::size_t>(begin - slot_);
  const std::size_t end = first + bytes;
  const auto above = static_cast<unsigned>(kWhole << first % kWord);
  const auto below = static_cast<unsigned>(kWhole >> (kWord - end % kWord));
  std::uint8_t* words = unwritten_.data();
  const auto clear = [&](std::size_t word, unsigned mask) {
    words[word] = static_cast<std::uint8_t>(words[word] & ~mask);
  };
  if (first / kWord == end / kWord) {
    clear(first / kWord, above & below);
    return;
  }
  clear(first / kWord, above);
  std::fill(words + first / kWord + 1, words + end / kWord, std::uint8_t{0});
  if (end % kWord != 0) clear(end / kWord, below);
}

std::size_t Shadow::words(const std::byte* begin, std::size_t bytes) noexcept {
  const auto first = reinterpret_cast<std::uintptr_t>(begin);
  return (first + bytes + kWord - 1) / kWord - first / kWord;
}

bool Shadow::is_unwritten(std::size_t word) const noexcept {
  if (unwritten_[word] != kWhole) return false;
  std::uint32_t value = 0;
  std::memcpy(&value, slot_ + word * kWord, kWord);
  return value == 0xffffffffu;
}

std::size_t Shadow::unwritten_words(const std::byte* begin,
                                    std::size_t bytes) const noexcept {
  const std::size_t first = static_cast<std::size_t>(begin - slot_) / kWord;
  std::size_t count = 0;
  for (std::size_t i = 0; i < words(begin, bytes); ++i) {
    if (is_unwritten(first + i)) ++count;
  }
  return count;
}

std::size_t Shadow::unwritten_run(const std::byte* begin,
                                  std::size_t bytes) const noexcept {
  const std::size_t first = static_cast<std::size_t>(begin - slot_) / kWord;
  std::size_t longest = 0;
  std::size_t run = 0;
  for (std::size_t i = 0; i < words(begin, bytes); ++i) {
    run = is_unwritten(first + i) ? run + 1 : 0;
    longest = std::max(longest, run);
  }
  return longest;
}

void StackCheck::begin_launch(std::uintptr_t here) noexcept {
  lowest_ = here;
  lowest_access_ = here;
  deepest_ = 0;
}

std::size_t StackCheck::bytes() const noexcept {
  return address_of(slave_.stack_top) -
         std::min(lowest_, address_of(slave_.stack_top));
}

void StackCheck::deepen(std::uintptr_t lowest, const void* pc) {
  lowest_access_ = lowest;
  lowest_ = std::min(lowest_, lowest);
  // Normally the next call reports it, because its line is the better one to
  // name. An endless recursion makes no call, so it is reported here.
  const std::size_t depth = address_of(slave_.stack_top) - lowest;
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
