// The tile loop: what a slave does with its part of the segment table, for
// tiles in LDM. All operations share it; that of transfer mode view is in
// launch.cpp.
#ifndef SWAMP_RUNTIME_TILE_LOOP_H_
#define SWAMP_RUNTIME_TILE_LOOP_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

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
  static constexpr std::size_t kReplies = 7;

  // Limits are what the operations of a launch share.
  struct Limits {
    std::size_t ldm_bytes;
    std::size_t tile_bytes;  // of the widest operand, unless a unit is larger
    std::size_t partial_bytes = 0;
    std::size_t scratch_bytes = 0;
  };

  std::size_t tile_units = 0;
  std::size_t bytes_needed = 0;  // with the smallest possible tile
  std::size_t bytes_used = 0;    // with tile_units

  bool fits() const noexcept { return tile_units != 0; }

  static LdmLayout make(const Operation& operation,
                        const Limits& limits) noexcept {
    std::size_t narrowest = ~std::size_t{0};
    std::size_t widest = 1;
    std::size_t sum = 0;
    for (int s = 0; s < operation.operand_count; ++s) {
      const Operand& operand = operation.operands[s];
      if (operand.access == Access::constant || operand.unit_bytes == 0) {
        continue;
      }
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
    const std::size_t by_tile =
        std::max(step, limits.tile_bytes / widest / step * step);
    layout.tile_units = std::min(by_ldm, by_tile);
    // The tiles of several operands may be rounded up to whole lines.
    while (bytes_of(layout.tile_units) > limits.ldm_bytes) {
      layout.tile_units -= step;
    }
    layout.bytes_used = bytes_of(layout.tile_units);
    return layout;
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
    std::size_t bytes =
        args_offset(operation.operand_count) + args_bytes(operation);
    for (int s = 0; s < operation.operand_count; ++s) {
      bytes += tile_stride(operation.operands[s], tile_units);
    }
    return bytes;
  }
  // A slot is the operation, the arguments at args_offset(), and the tiles.
  static std::size_t args_offset(int operand_count) noexcept {
    return align_up(Operation::bytes_of(operand_count), kLdmAlignment);
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
    if (main.access != Access::constant && !main.is_interleaved()) {
      const std::size_t extent = operand.unit_extent();
      operand.unit_step = extent + (main.unit_step - extent) % 4;
    }
    return operand;
  }
};

// Channel is a reply word in LDM and the value that it has when all transfers
// issued on it are complete: the cumulative counter of athread code.
struct Channel {
  Reply* reply = nullptr;
  Reply issued = 0;
};

// The byte range of an operand that one slave processes, [begin, end) in main
// memory. The words at both ends may be shared with another slave.
struct OperandPart {
  std::size_t segment;
  int operand;
  std::byte* begin;
  std::byte* end;
};

// TileSlot is a tile of every operand and the operation to be computed on it.
struct TileSlot {
  std::byte* memory = nullptr;        // the slot, in LDM
  Operation* operation = nullptr;     // copy in LDM of ...
  const Operation* source = nullptr;  // ... this one
  KernelFunction kernel = nullptr;    // its function, on this side
  std::byte* args = nullptr;
  std::byte* main[kMaxOperands] = {};
  void* tiles[kMaxOperands] = {};
  Operand layout[kMaxOperands] = {};       // of the tiles
  std::size_t strides[kMaxOperands] = {};  // LdmLayout::tile_stride()
  std::size_t count = 0;
  std::size_t first = 0;
  std::size_t segment = 0;
  std::size_t part_begin = 0;  // the slave's units of the segment
  std::size_t part_end = 0;
  std::byte* partial = nullptr;  // in main memory; null: there is none
  std::size_t tile_units = 0;
  Channel get, put;

  // place_tiles() sets the addresses of units [first, first + count), and
  // returns the constants that are not in the slot (bit s: operand s).
  unsigned place_tiles(const Segment& in) noexcept {
    unsigned missing = 0;
    std::byte* at = args + LdmLayout::args_bytes(*operation);
    for (int s = 0; s < operation->operand_count; ++s) {
      const Operand& operand = operation->operands[s];
      std::byte* const address = in.data()[s] + first * operand.unit_step;
      if (operand.access == Access::constant && main[s] != address) {
        missing |= 1u << s;
      }
      main[s] = address;
      tiles[s] = operand.unit_bytes == 0
                     ? nullptr
                     : at + reinterpret_cast<std::uintptr_t>(main[s]) % 4;
      at += strides[s];
      // The lines of interleaved units are as long as the tile.
      if (operand.is_interleaved()) {
        layout[s] = LdmLayout::in_ldm(operand, count);
      }
    }
    return missing;
  }

  // part() returns the slave's part of operand s, which is not a constant.
  OperandPart part(int s) const noexcept {
    const std::size_t unit_step = operation->operands[s].unit_step;
    std::byte* const begin = main[s] - (first - part_begin) * unit_step;
    return {segment, s, begin, begin + (part_end - part_begin) * unit_step};
  }

  // for_words() splits a tile of operand s into lines of whole 4-byte words,
  // which are transferred by DMA, and elements of 1 or 2 bytes at the edges of
  // lines, which share a word with a neighbour and are accessed directly.
  template <class Words, class Edge>
  void for_words(int s, Words words, Edge edge) const {
    const Operand& from = operation->operands[s];
    if (from.unit_bytes == 0) return;
    auto* const tile = static_cast<std::byte*>(tiles[s]);
    const auto [lines, times] =
        lines_of(from, from.access == Access::constant ? 1 : count);
    for (std::size_t unit = 0; unit < times; ++unit) {
      std::byte* const main_unit = main[s] + unit * from.unit_step;
      std::byte* const tile_unit = tile + unit * layout[s].unit_step;
      const auto bits = reinterpret_cast<std::uintptr_t>(main_unit) |
                        lines.bytes | lines.step;
      if (bits % 4 == 0 && lines.step <= Lines::kMaxStep) {
        words(main_unit, tile_unit, lines);
        continue;
      }
      const std::size_t tile_step =
          lines.bytes + (lines.step - lines.bytes) % 4;
      for (std::size_t i = 0; i < lines.count; ++i) {
        for_words_of_line(main_unit + i * lines.step, tile_unit + i * tile_step,
                          lines.bytes, words, edge);
      }
    }
  }

 private:
  template <class Words, class Edge>
  static void for_words_of_line(std::byte* at, std::byte* tile,
                                std::size_t bytes, Words words, Edge edge) {
    const std::size_t head =
        std::min(-reinterpret_cast<std::uintptr_t>(at) % 4, bytes);
    if (head != 0) {
      edge(at, tile, head);
      at += head;
      tile += head;
      bytes -= head;
    }
    const std::size_t middle = bytes / 4 * 4;
    if (middle != 0) words(at, tile, Lines(middle));
    if (middle != bytes) edge(at + middle, tile + middle, bytes - middle);
  }
};

// PartialSlot is a partial result in LDM. If there are two, the previous
// one may still be in flight to main memory.
struct PartialSlot {
  std::byte* memory = nullptr;
  Channel put;
};

// TileLoop is the tile loop through LDM: for each tile get, kernel, put, in
// two slots, so that the next tile is transferred while this one is computed.
template <class Dma>
class TileLoop {
 public:
  // `range` and `result` are those of `slave`, on this side. `ldm` must be
  // large enough for every operation of the table, by LdmLayout.
  TileLoop(const Launch& launch, int slave, const SlaveRange& range,
           const KernelRow* kernels, Ldm& ldm, Dma& dma, SlaveResult& result)
      : table_(launch.table),
        partials_(launch.partials),
        limits_{ldm.bytes(), launch.tile_bytes, launch.partials.bytes,
                launch.scratch_bytes},
        slave_(slave),
        range_(range),
        kernels_(kernels),
        ldm_(ldm),
        dma_(dma),
        result_(result),
        segment_(range_.begin_segment),
        unit_(range_.begin_unit),
        operand_count_(static_cast<int>((table_.stride - sizeof(Segment)) /
                                        sizeof(std::byte*)) -
                       (partials_.grain_units != 0)),
        partial_slot_count_(LdmLayout::partial_slots(partials_.bytes)) {}

  void run() {
    allocate();
    int current = 0;
    bool have = next_tile(slots_[0]);
    if (have) begin_get(slots_[0]);
    while (have) {
      TileSlot& slot = slots_[current];
      TileSlot& other = slots_[1 - current];
      const bool have_next = next_tile(other);
      if (have_next) begin_get(other);
      wait(slot.get);
      compute(slot);
      begin_put(slot);
      current = 1 - current;
      have = have_next;
    }
    end_partial();
    for (int i = 0; i < 2; ++i) {
      wait(slots_[i].put);
      wait(partial_slots_[i].put);
    }
  }

 private:
  void allocate() {
    const std::size_t batch = std::min(LdmLayout::kSegmentBatch, table_.count);
    batch_ = static_cast<std::byte*>(ldm_.allocate(batch * table_.stride));
    auto* replies =
        static_cast<Reply*>(ldm_.allocate(LdmLayout::kReplies * sizeof(Reply)));
    std::fill(replies, replies + LdmLayout::kReplies, 0);
    batch_channel_.reply = replies;
    for (int i = 0; i < 2; ++i) {
      partial_slots_[i].put.reply = replies + 5 + i;
    }
    for (int i = 0; i < partial_slot_count_; ++i) {
      partial_slots_[i].memory =
          static_cast<std::byte*>(ldm_.allocate(partials_.bytes));
    }
    if (limits_.scratch_bytes != 0) {
      scratch_ = ldm_.allocate(limits_.scratch_bytes);
    }
    // The slots share the rest, because they hold any of the operations.
    const std::size_t half =
        (ldm_.bytes() - ldm_.used()) / 2 / kLdmAlignment * kLdmAlignment;
    for (int i = 0; i < 2; ++i) {
      slots_[i].memory = static_cast<std::byte*>(ldm_.allocate(half));
      slots_[i].get.reply = replies + 1 + 2 * i;
      slots_[i].put.reply = replies + 2 + 2 * i;
    }
  }

  void wait(const Channel& channel) {
    dma_.wait(channel.reply, channel.issued);
  }
  void get(void* ldm, const void* main, const Lines& lines, Channel& channel) {
    dma_.get(ldm, main, lines, channel.reply);
    ++channel.issued;
  }

  // segment_at() returns a copy in LDM of segment i. Segments are transferred
  // in batches.
  const Segment& segment_at(std::size_t i) {
    if (i < batch_begin_ || i >= batch_end_) {
      batch_begin_ = i;
      batch_end_ = std::min(i + LdmLayout::kSegmentBatch, table_.count);
      get(batch_, table_.base + i * table_.stride,
          (batch_end_ - batch_begin_) * table_.stride, batch_channel_);
      wait(batch_channel_);
    }
    return *reinterpret_cast<const Segment*>(batch_ + (i - batch_begin_) *
                                                          table_.stride);
  }

  // next_tile() describes the next tile of this slave in `slot`, after the
  // slot's previous put has completed. Returns false if there is none.
  bool next_tile(TileSlot& slot) {
    for (;; ++segment_, unit_ = 0) {
      const bool last = segment_ == range_.end_segment;
      if (segment_ > range_.end_segment || (last && range_.end_unit == 0)) {
        return false;
      }
      const Segment& segment = segment_at(segment_);
      const std::size_t end = last ? range_.end_unit : segment.count;
      if (unit_ >= end) {
        if (last) return false;
        continue;
      }
      wait(slot.put);
      if (slot.source != segment.operation) load_operation(slot, segment);
      slot.segment = segment_;
      slot.part_begin =
          segment_ == range_.begin_segment ? range_.begin_unit : 0;
      slot.part_end = end;
      slot.first = unit_;
      slot.count = std::min(slot.tile_units, end - unit_);
      if (partials_.bytes != 0) {
        const Partials::Place place = partials_.place(
            segment, slot.operation->operand_count, segment_, slave_, unit_);
        slot.partial = place.slot;
        slot.count = std::min(slot.count, place.end - unit_);
      }
      missing_constants_ = slot.place_tiles(segment);
      unit_ += slot.count;
      return true;
    }
  }

  void load_operation(TileSlot& slot, const Segment& segment) {
    slot.source = segment.operation;
    slot.operation = reinterpret_cast<Operation*>(slot.memory);
    get(slot.operation, slot.source, Operation::bytes_of(operand_count_),
        slot.get);
    wait(slot.get);
    slot.args = slot.memory + LdmLayout::args_offset(operand_count_);
    if (slot.operation->args_bytes != 0) {
      get(slot.args, slot.operation->args, slot.operation->args_bytes,
          slot.get);
      wait(slot.get);
    }
    slot.kernel = *kernels_[slot.operation->kernel].function;
    slot.tile_units = LdmLayout::make(*slot.operation, limits_).tile_units;
    for (int s = 0; s < slot.operation->operand_count; ++s) {
      const Operand& operand = slot.operation->operands[s];
      slot.layout[s] = LdmLayout::in_ldm(operand, slot.tile_units);
      slot.strides[s] = LdmLayout::tile_stride(operand, slot.tile_units);
    }
    std::fill(slot.main, slot.main + kMaxOperands, nullptr);
  }

  void begin_get(TileSlot& slot) {
    for (int s = 0; s < slot.operation->operand_count; ++s) {
      const Access access = slot.operation->operands[s].access;
      if (access == Access::out) continue;
      if (access == Access::constant && (missing_constants_ >> s & 1u) == 0) {
        continue;
      }
      slot.for_words(
          s,
          [&](std::byte* main, std::byte* tile, const Lines& lines) {
            get(tile, main, lines, slot.get);
          },
          [&](const std::byte* main, std::byte* tile, std::size_t bytes) {
            dma_.load(tile, main, bytes);
          });
    }
  }

  void begin_put(TileSlot& slot) {
    for (int s = 0; s < slot.operation->operand_count; ++s) {
      const Access access = slot.operation->operands[s].access;
      if (access == Access::in || access == Access::constant) continue;
      slot.for_words(
          s,
          [&](std::byte* main, std::byte* tile, const Lines& lines) {
            dma_.put(main, tile, lines, slot.put.reply);
            ++slot.put.issued;
          },
          [&](std::byte* main, const std::byte* tile, std::size_t bytes) {
            dma_.store(main, tile, bytes, slot.part(s));
          });
    }
  }

  // begin_partial() begins a partial result, zero, that will be put to `main`.
  void begin_partial(std::byte* main) {
    end_partial();
    partial_main_ = main;
    if (partial_slot_count_ == 2) partial_index_ = 1 - partial_index_;
    PartialSlot& slot = partial_slots_[partial_index_];
    wait(slot.put);
    std::memset(slot.memory, 0, partials_.bytes);
    partial_ = slot.memory;
  }

  // end_partial() puts the current partial result, if there is one.
  void end_partial() {
    if (partial_main_ == nullptr) return;
    PartialSlot& slot = partial_slots_[partial_index_];
    dma_.put(partial_main_, slot.memory, partials_.bytes, slot.put.reply);
    ++slot.put.issued;
  }

  void compute(TileSlot& slot) {
    if (slot.partial != partial_main_) begin_partial(slot.partial);
    Tile tile;
    tile.operands = slot.tiles;
    tile.count = slot.count;
    tile.first = slot.first;
    tile.scratch = scratch_;
    tile.pass = slot.operation->pass;
    tile.layout = slot.layout;
    tile.partial = partial_;
    Result result;
    slot.kernel(slot.args, tile, result);
    result_.add(slot.segment, result);
  }

  const SegmentTable& table_;
  const Partials& partials_;
  LdmLayout::Limits limits_;
  int slave_;
  const SlaveRange& range_;
  const KernelRow* kernels_;
  Ldm& ldm_;
  Dma& dma_;
  SlaveResult& result_;

  std::size_t segment_;  // the next tile
  std::size_t unit_;
  int operand_count_;               // of every operation
  unsigned missing_constants_ = 0;  // of the tile last described
  void* scratch_ = nullptr;
  std::byte* batch_ = nullptr;
  std::size_t batch_begin_ = 0;
  std::size_t batch_end_ = 0;
  Channel batch_channel_;
  TileSlot slots_[2];
  std::byte* partial_main_ = nullptr;
  void* partial_ = nullptr;  // the current one in LDM
  int partial_slot_count_;
  int partial_index_ = 0;
  PartialSlot partial_slots_[2];
};

}  // namespace swamp::runtime

#endif  // SWAMP_RUNTIME_TILE_LOOP_H_
