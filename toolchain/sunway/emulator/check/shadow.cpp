#include "toolchain/sunway/emulator/check/shadow.h"

#include <algorithm>
#include <cstring>

namespace swamp::sunway::check {
namespace {

constexpr std::size_t kWord = 4;
constexpr std::uint8_t kWhole = 0xf;

}  // namespace

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

}  // namespace swamp::sunway::check
