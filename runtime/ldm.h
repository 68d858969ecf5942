// LDM: the scratchpad of a slave, an arena of exactly the machine's size.
#ifndef SWAMP_RUNTIME_LDM_H_
#define SWAMP_RUNTIME_LDM_H_

#include <cstddef>
#include <cstdint>

#include "runtime/job.h"

namespace swamp::runtime {

inline constexpr std::size_t kLdmAlignment = 128;  // a line of main memory

// Reply is a reply word, which lies in LDM: every transfer that is done adds 1.
using Reply = std::int32_t;

constexpr std::size_t align_up(std::size_t bytes,
                               std::size_t alignment) noexcept {
  return (bytes + alignment - 1) / alignment * alignment;
}

// Ldm hands out pieces of one arena, from the bottom.
class Ldm {
 public:
  Ldm(std::byte* base, std::size_t bytes) noexcept
      : base_(base), bytes_(bytes) {}

  // allocate() returns nullptr when less than `bytes` is left.
  void* allocate(std::size_t bytes) noexcept {
    const std::size_t rounded = align_up(bytes, kLdmAlignment);
    if (rounded < bytes || rounded > bytes_ - used_) return nullptr;
    std::byte* piece = base_ + used_;
    used_ += rounded;
    return piece;
  }
  bool contains(const void* address, std::size_t bytes) const noexcept;

  std::byte* base() const noexcept { return base_; }
  std::size_t bytes() const noexcept { return bytes_; }
  std::size_t used() const noexcept { return used_; }

 private:
  std::byte* base_;
  std::size_t bytes_;
  std::size_t used_ = 0;
};

// LdmLayout says what the tile loop puts into LDM for an operation. Two slots,
// for double buffering, each with a copy of the operation, of its arguments and
// with a tile of every operand; before them the slave's part of the segment
// table, a batch at a time, the reply words, and two partial results.
struct LdmLayout {
  static constexpr std::size_t kSegmentBatch = 16;
  static constexpr std::size_t kMinTileBytes = 128;  // of the narrowest operand

  std::size_t tile_elements = 0;
  std::size_t bytes_needed = 0;  // with the smallest possible tile
  std::size_t bytes_used = 0;    // with tile_elements

  bool fits() const noexcept { return tile_elements != 0; }
  static LdmLayout make(const Operation& operation, std::size_t ldm_bytes,
                        std::size_t tile_bytes,
                        std::size_t partial_bytes = 0) noexcept;
  // slot_bytes() is what one slot takes with tiles of `tile_elements`.
  static std::size_t slot_bytes(const Operation& operation,
                                std::size_t tile_elements) noexcept;
};

}  // namespace swamp::runtime

#endif  // SWAMP_RUNTIME_LDM_H_
