// The heap of ldm_malloc(): a map of the pieces in use by offset, in which a
// new piece takes the first gap that is large enough, below the stack.
#include "toolchain/sunway/emulator/ldm.h"

#include <algorithm>
#include <map>
#include <string>

#include "toolchain/sunway/emulator/host_process.h"
#include "toolchain/sunway/emulator/machine.h"

namespace swamp::sunway {
namespace {

std::size_t rounded(std::size_t bytes) {
  const std::size_t up = (bytes + LdmHeap::kAlignment - 1) /
                         LdmHeap::kAlignment * LdmHeap::kAlignment;
  return std::max(up, LdmHeap::kAlignment);
}

}  // namespace

std::size_t LdmHeap::allocate(std::size_t bytes, std::size_t stack) {
  const std::size_t capacity = capacity_ - std::min(stack, capacity_);
  std::size_t at = 0;
  for (const auto& [offset, piece_bytes] : pieces_) {
    if (offset - at >= rounded(bytes)) break;
    at = offset + rounded(piece_bytes);
  }
  // The last piece is not rounded, so that all of LDM can be allocated.
  if (at > capacity || bytes > capacity - at) return kNone;
  pieces_[at] = bytes;
  in_use_ += bytes;
  high_water_ = std::max(high_water_, at + bytes);
  return at;
}

std::size_t LdmHeap::release(std::size_t offset) {
  const auto piece = pieces_.find(offset);
  if (piece == pieces_.end()) return kNone;
  const std::size_t bytes = piece->second;
  pieces_.erase(piece);
  in_use_ -= bytes;
  return bytes;
}

void LdmHeap::restart_high_water() noexcept {
  high_water_ =
      pieces_.empty() ? 0 : pieces_.rbegin()->first + pieces_.rbegin()->second;
}

std::size_t LdmHeap::largest(std::size_t stack) const {
  const std::size_t capacity = capacity_ - std::min(stack, capacity_);
  std::size_t at = 0;
  std::size_t best = 0;
  for (const auto& [offset, piece_bytes] : pieces_) {
    best = std::max(best, offset - std::min(at, offset));
    at = offset + rounded(piece_bytes);
  }
  return std::max(best, capacity - std::min(at, capacity));
}

bool LdmHeap::holds(std::size_t offset, std::size_t bytes) const {
  auto next = pieces_.upper_bound(offset);
  if (next == pieces_.begin()) return false;
  --next;
  return offset + bytes <= next->first + next->second;
}

}  // namespace swamp::sunway

// The begin and end of the __thread_local_share variables, in programs that
// have some.
extern "C" const char* const swamp_shared_ldm_bounds[2] __attribute__((weak));

namespace swamp::sunway {

std::size_t shared_ldm_bytes() {
  constexpr std::size_t kLeast = 4096;
  constexpr std::size_t kMost = 128 * 1024;
  // volatile: otherwise the compiler assumes that an array has an address.
  const char* const* volatile bounds = swamp_shared_ldm_bounds;
  if (bounds == nullptr) return 0;
  const auto bytes = static_cast<std::size_t>(bounds[1] - bounds[0]);
  const auto slaves = static_cast<std::size_t>(settings().slaves_per_group);
  if (bytes == 0) return 0;
  std::size_t each = kLeast;
  while (each * slaves < bytes && each < kMost) each *= 2;
  if (each * slaves < bytes) {
    fail(1, "shared LDM variables (__thread_local_share) take " +
                std::to_string(bytes) + " bytes; " + std::to_string(slaves) +
                " slaves can share " + std::to_string(kMost * slaves));
  }
  return each;
}

}  // namespace swamp::sunway
