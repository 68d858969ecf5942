#include "runtime/sunway/check/shadow.h"

#include <algorithm>
#include <cstring>

namespace swamp::sunway::check {
namespace {

constexpr std::size_t kWord = 4;

}  // namespace

Shadow::Shadow(std::byte* slot, std::size_t slot_bytes)
    : slot_(slot), unwritten_(slot_bytes / kWord) {}

void Shadow::poison(std::byte* begin, std::size_t bytes) noexcept {
  std::memset(begin, kPoison, bytes);
  const auto first = static_cast<std::size_t>(begin - slot_);
  std::fill(unwritten_.data() + first / kWord,
            unwritten_.data() + (first + bytes) / kWord, std::uint8_t{1});
}

void Shadow::written(std::byte* begin, std::size_t bytes) noexcept {
  const auto first = static_cast<std::size_t>(begin - slot_);
  std::fill(unwritten_.data() + first / kWord,
            unwritten_.data() + (first + bytes + kWord - 1) / kWord,
            std::uint8_t{0});
}

std::size_t Shadow::unwritten_words(const std::byte* begin,
                                    std::size_t bytes) const noexcept {
  const auto first = static_cast<std::size_t>(begin - slot_);
  std::size_t count = 0;
  for (std::size_t i = first / kWord; i < (first + bytes + kWord - 1) / kWord;
       ++i) {
    if (unwritten_[i] == 0) continue;
    std::uint32_t word = 0;
    std::memcpy(&word, slot_ + i * kWord, kWord);
    if (word == 0xffffffffu) ++count;
  }
  return count;
}

}  // namespace swamp::sunway::check
