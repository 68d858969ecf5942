// Compiled for slaves, too, where the backend is athread.
#include "runtime/ldm.h"

#include <algorithm>
#include <cstdint>

namespace swamp::runtime {

bool Ldm::contains(const void* address, std::size_t bytes) const noexcept {
  const auto begin = reinterpret_cast<std::uintptr_t>(base_);
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  return at >= begin && at - begin <= bytes_ && bytes <= bytes_ - (at - begin);
}

std::size_t LdmLayout::slot_bytes(const Operation& operation,
                                  std::size_t tile_elements) noexcept {
  std::size_t bytes = align_up(sizeof(Operation), kLdmAlignment) +
                      align_up(operation.args_bytes, kLdmAlignment);
  for (int s = 0; s < operation.operand_count; ++s) {
    // A line more, because a tile starts as far behind a 4-byte boundary as its
    // array in main memory.
    bytes += align_up(tile_elements * operation.operands[s].element_bytes,
                      kLdmAlignment) +
             kLdmAlignment;
  }
  return bytes;
}

LdmLayout LdmLayout::make(const Operation& operation, std::size_t ldm_bytes,
                          std::size_t tile_bytes,
                          std::size_t partial_bytes) noexcept {
  std::size_t narrowest = ~std::size_t{0};
  std::size_t widest = 1;
  std::size_t sum = 0;
  for (int s = 0; s < operation.operand_count; ++s) {
    const std::size_t element_bytes = operation.operands[s].element_bytes;
    narrowest = std::min(narrowest, element_bytes);
    widest = std::max(widest, element_bytes);
    sum += element_bytes;
  }
  // Whole lines of every operand: a put of part of a line costs the real
  // machine up to 12 times as much.
  const std::size_t step = kMinTileBytes / narrowest;
  // A segment that gathers may have the number of its grain behind it.
  const int segment_words = operation.operand_count + (partial_bytes != 0);
  const std::size_t fixed =
      align_up(kSegmentBatch * segment_bytes(segment_words), kLdmAlignment) +
      kLdmAlignment + 2 * align_up(partial_bytes, kLdmAlignment);

  LdmLayout layout;
  layout.bytes_needed = fixed + 2 * slot_bytes(operation, step);
  if (layout.bytes_needed > ldm_bytes) return layout;
  const std::size_t spare = ldm_bytes - layout.bytes_needed;
  const std::size_t by_ldm = step + spare / (2 * sum) / step * step;
  const std::size_t by_tile = std::max(step, tile_bytes / widest / step * step);
  layout.tile_elements = std::min(by_ldm, by_tile);
  layout.bytes_used = fixed + 2 * slot_bytes(operation, layout.tile_elements);
  return layout;
}

}  // namespace swamp::runtime
