// What the tile loop keeps in LDM: two slots for tiles, two for partial
// results.
#ifndef SWAMP_RUNTIME_TILE_SLOT_H_
#define SWAMP_RUNTIME_TILE_SLOT_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "runtime/job.h"
#include "runtime/ldm.h"

namespace swamp::runtime {

// Channel is a reply word in LDM and the value it will have reached when all
// transfers issued on it are done: the cumulative counter of athread code.
struct Channel {
  Reply* reply = nullptr;
  Reply issued = 0;
};

// TileSlot is a tile of every operand, with the operation that works on it.
struct TileSlot {
  std::byte* memory = nullptr;        // its part of LDM
  Operation* operation = nullptr;     // copies in LDM of ...
  const Operation* source = nullptr;  // ... this one
  KernelFunction kernel = nullptr;    // its function, on this side
  std::byte* args = nullptr;
  std::byte* main[kMaxOperands] = {};
  void* tiles[kMaxOperands] = {};
  std::size_t count = 0;
  std::size_t first = 0;
  std::size_t segment = 0;
  std::byte* partial = nullptr;  // in main memory; null: none is gathered
  std::size_t tile_elements = 0;
  Channel get, put;

  // place_tiles() says where the tiles of elements [first, first + count) lie:
  // in LDM as far behind a 4-byte boundary as in main memory.
  void place_tiles(const Segment& in) noexcept {
    std::byte* at = args + align_up(operation->args_bytes, kLdmAlignment);
    for (int s = 0; s < operation->operand_count; ++s) {
      const std::size_t bytes = operation->operands[s].element_bytes;
      main[s] = in.data()[s] + first * bytes;
      tiles[s] = at + reinterpret_cast<std::uintptr_t>(main[s]) % 4;
      at += align_up(tile_elements * bytes, kLdmAlignment) + kLdmAlignment;
    }
  }

  // for_words() splits a tile of operand s into the whole 4-byte words in the
  // middle, which go by DMA, and the odd elements of 1 or 2 bytes at its edges,
  // which share a word with a neighbour and are read and written directly.
  template <class Words, class Edge>
  void for_words(int s, Words words, Edge edge) const {
    std::byte* at = main[s];
    auto* tile = static_cast<std::byte*>(tiles[s]);
    std::size_t bytes = count * operation->operands[s].element_bytes;
    const std::size_t head =
        std::min(-reinterpret_cast<std::uintptr_t>(at) % 4, bytes);
    if (head != 0) {
      edge(at, tile, head);
      at += head;
      tile += head;
      bytes -= head;
    }
    const std::size_t middle = bytes / 4 * 4;
    if (middle != 0) words(at, tile, middle);
    if (middle != bytes) edge(at + middle, tile + middle, bytes - middle);
  }
};

// PartialSlot is a partial result in LDM. There are two: the last one may still
// be on its way out.
struct PartialSlot {
  std::byte* memory = nullptr;
  Channel put;
};

}  // namespace swamp::runtime

#endif  // SWAMP_RUNTIME_TILE_SLOT_H_
