#include "toolchain/sunway/emulator/ldm_heap.h"

#include <algorithm>

namespace swamp::sunway {
namespace {

std::size_t rounded(std::size_t bytes) {
  const std::size_t up = (bytes + LdmHeap::kAlignment - 1) /
                         LdmHeap::kAlignment * LdmHeap::kAlignment;
  return std::max(up, LdmHeap::kAlignment);
}

}  // namespace

std::size_t LdmHeap::allocate(std::size_t bytes) {
  if (bytes > capacity_) return kNone;
  std::size_t at = 0;
  for (const auto& [offset, held] : pieces_) {
    if (offset - at >= rounded(bytes)) break;
    at = offset + rounded(held);
  }
  // The last piece need not be rounded: all of an LDM can be had.
  if (at > capacity_ || bytes > capacity_ - at) return kNone;
  pieces_[at] = bytes;
  high_water_ = std::max(high_water_, at + bytes);
  return at;
}

std::size_t LdmHeap::release(std::size_t offset) {
  const auto piece = pieces_.find(offset);
  if (piece == pieces_.end()) return kNone;
  const std::size_t bytes = piece->second;
  pieces_.erase(piece);
  return bytes;
}

void LdmHeap::restart_high_water() noexcept {
  high_water_ =
      pieces_.empty() ? 0 : pieces_.rbegin()->first + pieces_.rbegin()->second;
}

std::size_t LdmHeap::largest() const {
  std::size_t at = 0;
  std::size_t best = 0;
  for (const auto& [offset, held] : pieces_) {
    best = std::max(best, offset - std::min(at, offset));
    at = offset + rounded(held);
  }
  return std::max(best, capacity_ - std::min(at, capacity_));
}

std::size_t LdmHeap::in_use() const {
  std::size_t sum = 0;
  for (const auto& piece : pieces_) sum += piece.second;
  return sum;
}

bool LdmHeap::holds(std::size_t offset, std::size_t bytes) const {
  auto next = pieces_.upper_bound(offset);
  if (next == pieces_.begin()) return false;
  --next;
  return offset + bytes <= next->first + next->second;
}

}  // namespace swamp::sunway
