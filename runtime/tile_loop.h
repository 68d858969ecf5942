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
#include "runtime/ldm_layout.h"
#include "slave/kernel.h"

namespace swamp::runtime {

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
  std::byte* memory = nullptr;           // the slot, in LDM
  Operation* rows = nullptr;             // copy in LDM of ...
  const Operation* source = nullptr;     // ... this one
  const Operation* operation = nullptr;  // `rows`, or a pass on their columns
  Pass pass = Pass::rows;                // which pass
  KernelFunction kernel = nullptr;       // its function, on this side
  std::byte* args = nullptr;
  std::byte* data[kMaxOperands] = {};  // of the segment
  std::byte* main[kMaxOperands] = {};  // of the tile
  void* tiles[kMaxOperands] = {};
  Operand layout[kMaxOperands] = {};       // of the tiles
  std::size_t strides[kMaxOperands] = {};  // LdmLayout::tile_stride()
  std::size_t count = 0;
  std::size_t first = 0;
  std::size_t row = 0;   // of a piece
  bool is_last = false;  // Tile::is_last
  void* state = nullptr;
  std::size_t segment = 0;
  std::size_t part_begin = 0;  // the slave's units of the segment
  std::size_t part_end = 0;
  std::byte* partial = nullptr;  // in main memory; null: there is none
  bool begins_partial = true;    // it is zero before this tile
  std::size_t tile_units = 0;
  Channel get, put;

  // place_tiles() sets the addresses of units [first, first + count), and
  // returns the shared operands that are not in the slot (bit s: operand s).
  unsigned place_tiles(const Segment& in) noexcept {
    unsigned missing = 0;
    std::byte* at = args + LdmLayout::args_bytes(*operation);
    const std::size_t first_row = pass == Pass::rows ? 0 : row;
    for (int s = 0; s < operation->operand_count; ++s) {
      const Operand& operand = operation->operands[s];
      data[s] = in.data()[s];
      std::byte* const address = data[s] + first * operand.unit_step +
                                 first_row * rows->operands[s].unit_step;
      if (operand.is_shared() && main[s] != address) missing |= 1u << s;
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
    const std::size_t unit_step = rows->operands[s].unit_step;
    return {segment, s, data[s] + part_begin * unit_step,
            data[s] + part_end * unit_step};
  }

  // for_words() splits a tile of operand s into lines of whole 4-byte words,
  // which are transferred by DMA, and elements of 1 or 2 bytes at the edges of
  // lines, which share a word with a neighbour and are accessed directly.
  template <class Words, class Edge>
  void for_words(int s, Words words, Edge edge) const {
    const Operand& from = operation->operands[s];
    if (from.unit_bytes == 0) return;
    auto* const tile = static_cast<std::byte*>(tiles[s]);
    const auto [lines, times] = lines_of(from, from.is_shared() ? 1 : count);
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
        limits_(launch.limits),
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
        partial_slot_count_(LdmLayout::partial_slots(limits_.partial_bytes)) {
    limits_.ldm_bytes = ldm.bytes();
  }

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
    partial_get_.reply = replies + 7;
    for (int i = 0; i < partial_slot_count_; ++i) {
      partial_slots_[i].memory =
          static_cast<std::byte*>(ldm_.allocate(limits_.partial_bytes));
    }
    if (limits_.scratch_bytes != 0) {
      scratch_ = static_cast<std::byte*>(ldm_.allocate(limits_.scratch_bytes));
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
      std::size_t units = end - unit_;  // of one partial result
      if (partials_.bytes != 0) {
        const Partials::Place place = partials_.place(
            segment, slot.operation->operand_count, segment_, slave_, unit_);
        slot.partial = place.slot;
        units = std::min(units, place.end - unit_);
      }
      if (limits_.group_rows != 0) {
        next_piece(slot, units);
      } else {
        slot.first = unit_;
        slot.count = std::min(slot.tile_units, units);
        unit_ += slot.count;
      }
      missing_ = slot.place_tiles(segment);
      return true;
    }
  }

  // next_piece() describes the next piece in `slot`, of a group of at most
  // `most` rows that begins with unit_. In pass sum a row is the outer loop, in
  // pass map a piece, so that the rows of a group add to the same columns of a
  // partial result, one after another.
  void next_piece(TileSlot& slot, std::size_t most) {
    const bool has_partial = partials_.bytes != 0;
    const std::size_t columns = slot.rows->columns;
    const std::size_t rows = std::min(most, limits_.group_rows);
    if (pass_ == Pass::rows) {  // a new group
      pass_ =
          slot.rows->has_pass(Pass::sum, has_partial) ? Pass::sum : Pass::map;
    }
    const bool is_last_pass =
        pass_ == Pass::map || !slot.rows->has_pass(Pass::map, has_partial);
    if (slot.pass != pass_) set_pass(slot, pass_, is_last_pass);
    slot.row = unit_ + row_;
    slot.first = column_;
    slot.count = std::min(slot.tile_units, columns - column_);
    slot.is_last = is_last_pass && column_ + slot.count == columns;
    slot.state = scratch_ + row_ * LdmLayout::state_stride(*slot.rows);
    if (has_partial) {
      // All groups of a grain add to the same columns.
      slot.begins_partial =
          unit_ == slot.part_begin ||
          (partials_.grain_units != 0 && unit_ % partials_.grain_units == 0);
      slot.partial += column_ * sizeof(double);
    }

    if (pass_ == Pass::sum) {
      column_ += slot.count;
      if (column_ != columns) return;
      column_ = 0;
      if (++row_ != rows) return;
    } else {
      if (++row_ != rows) return;
      row_ = 0;
      column_ += slot.count;
      if (column_ != columns) return;
      column_ = 0;
    }
    row_ = 0;
    if (is_last_pass) {
      pass_ = Pass::rows;
      unit_ += rows;
    } else {
      pass_ = Pass::map;
    }
  }

  void load_operation(TileSlot& slot, const Segment& segment) {
    slot.source = segment.operation;
    slot.rows = reinterpret_cast<Operation*>(slot.memory);
    get(slot.rows, slot.source, Operation::bytes_of(operand_count_), slot.get);
    wait(slot.get);
    slot.args = slot.memory + LdmLayout::args_offset(*slot.rows);
    if (slot.rows->args_bytes != 0) {
      get(slot.args, slot.rows->args, slot.rows->args_bytes, slot.get);
      wait(slot.get);
    }
    slot.kernel = *kernels_[slot.rows->kernel].function;
    slot.operation = slot.rows;
    slot.pass = Pass::rows;
    if (limits_.group_rows == 0) set_tiles(slot);
  }

  void set_pass(TileSlot& slot, Pass pass, bool is_last_pass) {
    auto* const piece = reinterpret_cast<Operation*>(
        slot.memory + LdmLayout::piece_offset(operand_count_));
    piece->set_piece(*slot.rows, pass, is_last_pass);
    slot.operation = piece;
    slot.pass = pass;
    set_tiles(slot);
  }

  // set_tiles() sets how the tiles of slot.operation lie in LDM.
  void set_tiles(TileSlot& slot) {
    slot.tile_units =
        LdmLayout::make_tiles(*slot.operation, limits_, slot.pass).tile_units;
    for (int s = 0; s < slot.operation->operand_count; ++s) {
      const Operand& operand = slot.operation->operands[s];
      slot.layout[s] = LdmLayout::in_ldm(operand, slot.tile_units);
      slot.strides[s] = LdmLayout::tile_stride(operand, slot.tile_units);
    }
    std::fill(slot.main, slot.main + kMaxOperands, nullptr);
  }

  void begin_get(TileSlot& slot) {
    for (int s = 0; s < slot.operation->operand_count; ++s) {
      const Operand& operand = slot.operation->operands[s];
      if (operand.access == Access::out) continue;
      if (operand.is_shared() && (missing_ >> s & 1u) == 0) continue;
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
      const Operand& operand = slot.operation->operands[s];
      if (!operand.is_written()) continue;
      if (operand.is_shared() && !slot.is_last) continue;
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

  // begin_partial() begins the partial result of a tile, or the columns of it
  // that belong to a piece: with zeros, or with the sums of earlier rows.
  void begin_partial(const TileSlot& tile) {
    end_partial();
    partial_main_ = tile.partial;
    partial_lines_ = partials_.bytes;
    if (tile.pass != Pass::rows) {
      const std::size_t step = tile.rows->columns * sizeof(double);
      partial_lines_ =
          Lines(tile.count * sizeof(double), partials_.bytes / step, step);
    }
    if (partial_slot_count_ == 2) partial_index_ = 1 - partial_index_;
    PartialSlot& slot = partial_slots_[partial_index_];
    wait(slot.put);
    partial_ = slot.memory;
    if (tile.begins_partial) {
      std::memset(slot.memory, 0, partial_lines_.all_bytes());
      return;
    }
    wait(partial_slots_[1 - partial_index_].put);
    for (std::size_t i = 0; i < partial_lines_.count; ++i) {
      get(slot.memory + i * partial_lines_.bytes,
          partial_main_ + i * partial_lines_.step, partial_lines_.bytes,
          partial_get_);
    }
    wait(partial_get_);
  }

  // end_partial() puts the current partial result, if there is one.
  void end_partial() {
    if (partial_main_ == nullptr) return;
    PartialSlot& slot = partial_slots_[partial_index_];
    for (std::size_t i = 0; i < partial_lines_.count; ++i) {
      dma_.put(partial_main_ + i * partial_lines_.step,
               slot.memory + i * partial_lines_.bytes, partial_lines_.bytes,
               slot.put.reply);
      ++slot.put.issued;
    }
  }

  void compute(TileSlot& slot) {
    Tile tile;
    if (slot.pass != Pass::sum) {
      if (slot.partial != partial_main_) begin_partial(slot);
      tile.partial = partial_;
    }
    tile.operands = slot.tiles;
    tile.count = slot.count;
    tile.first = slot.first;
    tile.pass = slot.pass;
    if (slot.pass != Pass::rows) {
      tile.row = slot.row;
      tile.is_last = slot.is_last;
      tile.state = slot.state;
    } else {
      tile.state = scratch_;
      tile.scratch = LdmLayout::scratch_at(*slot.rows, scratch_);
    }
    tile.layout = slot.layout;
    Result result;
    slot.kernel(slot.args, tile, result);
    result_.add(slot.segment, result);
  }

  const SegmentTable& table_;
  const Partials& partials_;
  LdmLimits limits_;
  int slave_;
  const SlaveRange& range_;
  const KernelRow* kernels_;
  Ldm& ldm_;
  Dma& dma_;
  SlaveResult& result_;

  std::size_t segment_;  // the next tile
  std::size_t unit_;
  // The next piece, of a group of rows that begins with unit_.
  Pass pass_ = Pass::rows;  // rows: a new group
  std::size_t row_ = 0;     // of the group
  std::size_t column_ = 0;
  int operand_count_;     // of every operation
  unsigned missing_ = 0;  // shared operands of the tile last described
  std::byte* scratch_ = nullptr;
  std::byte* batch_ = nullptr;
  std::size_t batch_begin_ = 0;
  std::size_t batch_end_ = 0;
  Channel batch_channel_;
  TileSlot slots_[2];
  std::byte* partial_main_ = nullptr;
  Lines partial_lines_;
  Channel partial_get_;
  void* partial_ = nullptr;  // the current one in LDM
  int partial_slot_count_;
  int partial_index_ = 0;
  PartialSlot partial_slots_[2];
};

}  // namespace swamp::runtime

#endif  // SWAMP_RUNTIME_TILE_LOOP_H_
