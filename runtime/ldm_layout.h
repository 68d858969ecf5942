// What lies where in LDM while the tile loop runs, and how many units a tile
// has. Master and slaves compute the same from a launch.
#ifndef SWAMP_RUNTIME_LDM_LAYOUT_H_
#define SWAMP_RUNTIME_LDM_LAYOUT_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "runtime/launch.h"
#include "runtime/ldm.h"
#include "slave/kernel.h"

namespace swamp::runtime {

// LdmLayout is what the tile loop puts into LDM for an operation: first a batch
// of the segment table, the reply words, the partial results and the scratch
// memory; then two slots for double buffering, each with a copy of the
// operation, of its arguments, and a tile of every operand.
struct LdmLayout {
  static constexpr std::size_t kSegmentBatch = 16;
  static constexpr std::size_t kLineBytes = 128;  // of main memory
  static constexpr std::size_t kReplies = 8;
  // Of rows in pieces: the columns of a partial result that LDM holds, and the
  // states of the rows that share the transfer of these columns.
  static constexpr std::size_t kPartialColumns = 1024;
  static constexpr std::size_t kGroupBytes = 8192;

  std::size_t tile_units = 0;
  std::size_t tile_bytes = 0;    // of the widest operand
  std::size_t bytes_needed = 0;  // with the smallest possible tile
  std::size_t bytes_used = 0;    // with tile_units

  bool fits() const noexcept { return tile_units != 0; }

  // limits_of() returns `whole`, the limits of a launch of whole units, or the
  // limits of rows in pieces if whole rows do not fit and pieces can be taken.
  static LdmLimits limits_of(const Operation& operation,
                             const LdmLimits& whole) noexcept {
    if (operation.columns == 0 || make(operation, whole).fits()) return whole;
    LdmLimits pieces = whole;
    pieces.group_rows = 1;
    const std::size_t state = state_stride(operation);
    if (whole.partial_bytes != 0) {
      pieces.group_rows = std::max<std::size_t>(1, kGroupBytes / state);
      pieces.partial_bytes =
          whole.partial_bytes / operation.columns *
          std::min<std::size_t>(kPartialColumns, operation.columns);
    }
    pieces.scratch_bytes = pieces.group_rows * state;
    return pieces;
  }

  // make() returns the layout of the tiles of an operation; if its rows come in
  // pieces, what all passes need, and the tiles of the last.
  static LdmLayout make(const Operation& operation,
                        const LdmLimits& limits) noexcept {
    if (limits.group_rows == 0) return make_tiles(operation, limits);
    LdmLayout all;
    for (const Pass pass : {Pass::sum, Pass::map}) {
      if (!operation.has_pass(pass, limits.partial_bytes != 0)) continue;
      Operation piece;
      piece.set_piece(operation, pass, true);
      LdmLayout layout = make_tiles(piece, limits, pass);
      layout.bytes_needed = std::max(layout.bytes_needed, all.bytes_needed);
      layout.bytes_used = std::max(layout.bytes_used, all.bytes_used);
      all = layout;
      if (!all.fits()) break;
    }
    return all;
  }

  static LdmLayout make_tiles(const Operation& operation,
                              const LdmLimits& limits,
                              Pass pass = Pass::rows) noexcept {
    std::size_t narrowest = ~std::size_t{0};
    std::size_t widest = 1;
    std::size_t sum = 0;
    for (int s = 0; s < operation.operand_count; ++s) {
      const Operand& operand = operation.operands[s];
      if (operand.is_shared() || operand.unit_bytes == 0) continue;
      const std::size_t unit_bytes = std::max<std::size_t>(
          operand.unit_bytes, in_ldm(operand, 1).unit_step);
      narrowest = std::min(narrowest, unit_bytes);
      widest = std::max(widest, unit_bytes);
      sum += unit_bytes;
    }
    // A tile is whole lines of every operand: putting part of a line costs the
    // real machine up to 12 times as much. If a row is longer than a line, or
    // if whole lines do not fit, a tile may have any number of units, so that
    // narrower operands never need more LDM than wider ones.
    std::size_t step = operation.tile_step;
    if (step == 0) step = widest > kLineBytes ? 1 : kLineBytes / narrowest;
    // With partial results, a segment may hold the number of its first grain.
    const int segment_words =
        operation.operand_count + (limits.partial_bytes != 0);
    const std::size_t fixed =
        align_up(kSegmentBatch * segment_bytes(segment_words), kLdmAlignment) +
        kLdmAlignment +
        static_cast<std::size_t>(partial_slots(limits.partial_bytes)) *
            align_up(limits.partial_bytes, kLdmAlignment) +
        align_up(limits.scratch_bytes, kLdmAlignment);

    const auto bytes_of = [&](std::size_t units) {
      return fixed + 2 * slot_bytes(operation, units);
    };
    if (operation.tile_step == 0 && bytes_of(step) > limits.ldm_bytes) step = 1;
    LdmLayout layout;
    layout.bytes_needed = bytes_of(step);
    if (layout.bytes_needed > limits.ldm_bytes) return layout;
    const std::size_t spare = limits.ldm_bytes - layout.bytes_needed;
    const std::size_t by_ldm = step + spare / (2 * sum) / step * step;
    std::size_t most = limits.tile_bytes / widest;
    if (pass == Pass::map && limits.partial_bytes != 0) {
      most = std::min(most, kPartialColumns);
    }
    layout.tile_units = std::min(by_ldm, std::max(step, most / step * step));
    // The tiles of several operands may be rounded up to whole lines.
    while (bytes_of(layout.tile_units) > limits.ldm_bytes) {
      layout.tile_units -= step;
    }
    layout.bytes_used = bytes_of(layout.tile_units);
    layout.tile_bytes = layout.tile_units * widest;
    return layout;
  }

  // state_stride() returns the distance of the states of two rows.
  static std::size_t state_stride(const Operation& operation) noexcept {
    return align_up(std::max<std::size_t>(operation.state_bytes, 1),
                    kLdmAlignment);
  }
  // scratch_bytes() returns what an operation on whole units needs of LDM for
  // the state of a row and, after it, Tile::scratch.
  static std::size_t scratch_bytes(const Operation& operation) noexcept {
    return align_up(operation.state_bytes, kLdmAlignment) +
           operation.scratch_bytes;
  }
  // scratch_at() returns Tile::scratch in these bytes at `memory`; null if the
  // operation has none.
  static std::byte* scratch_at(const Operation& operation,
                               std::byte* memory) noexcept {
    if (operation.scratch_bytes == 0) return nullptr;
    return memory + align_up(operation.state_bytes, kLdmAlignment);
  }

  // partial_slots() returns the number of partial results in LDM: two, so that
  // one can be computed while the other is in flight to main memory, unless
  // they are large.
  static constexpr int partial_slots(std::size_t partial_bytes) noexcept {
    return partial_bytes > 1024 ? 1 : 2;
  }

  // slot_bytes() returns the size of a slot with tiles of `tile_units`.
  static std::size_t slot_bytes(const Operation& operation,
                                std::size_t tile_units) noexcept {
    std::size_t bytes = args_offset(operation) + args_bytes(operation);
    for (int s = 0; s < operation.operand_count; ++s) {
      bytes += tile_stride(operation.operands[s], tile_units);
    }
    return bytes;
  }
  // A slot is the operation, that of a pass at piece_offset() if its rows may
  // come in pieces, the arguments at args_offset(), and the tiles.
  static std::size_t piece_offset(int operand_count) noexcept {
    return align_up(Operation::bytes_of(operand_count), kLdmAlignment);
  }
  static std::size_t args_offset(const Operation& operation) noexcept {
    return piece_offset(operation.operand_count) *
           (operation.columns != 0 ? 2 : 1);
  }
  static std::size_t args_bytes(const Operation& operation) noexcept {
    return align_up(operation.args_bytes, kLdmAlignment);
  }
  // tile_stride() returns the bytes of a tile of an operand. One extra line: it
  // keeps its array's offset from a 4-byte boundary.
  static std::size_t tile_stride(const Operand& main,
                                 std::size_t tile_units) noexcept {
    const Operand operand = in_ldm(main, tile_units);
    const std::size_t bytes =
        operand.unit_bytes == 0
            ? 0
            : operand.unit_extent() + (tile_units - 1) * operand.unit_step;
    return align_up(bytes, kLdmAlignment) + kLdmAlignment;
  }

  // in_ldm() returns an operand with the smallest steps with which each line
  // of `units` units has the same offset from a 4-byte boundary as in main
  // memory.
  static Operand in_ldm(const Operand& main, std::size_t units) noexcept {
    Operand operand = main;
    const std::size_t line =
        main.is_interleaved() ? units * main.line_bytes : main.line_bytes;
    operand.line_step = line + (main.line_step - line) % 4;
    if (!main.is_shared() && !main.is_interleaved()) {
      const std::size_t extent = operand.unit_extent();
      operand.unit_step = extent + (main.unit_step - extent) % 4;
    }
    return operand;
  }
};

}  // namespace swamp::runtime

#endif  // SWAMP_RUNTIME_LDM_LAYOUT_H_
