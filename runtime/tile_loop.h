// The tile loop: what a slave does with its part of the segment table. Written
// once, for every operation and every transfer mode.
#ifndef SWAMP_RUNTIME_TILE_LOOP_H_
#define SWAMP_RUNTIME_TILE_LOOP_H_

#include <algorithm>
#include <cstring>

#include "runtime/job.h"
#include "runtime/ldm.h"
#include "runtime/tile_slot.h"
#include "runtime/tuning.h"
#include "slave/kernel.h"

namespace swamp::runtime {

// run_view() is the tile loop of transfer mode `view`: the host's caches are
// the scratchpad, a get is a pointer into main memory, a put is nothing, and a
// tile is all of a segment that belongs to this slave.
void run_view(const SlavePart& part, const KernelRow* kernels,
              const MemoryHints& hints) noexcept;

// TileLoop is the tile loop through LDM: for each tile get, kernel, put, in
// two slots, so that the next tile travels in while this one is computed.
template <class Dma>
class TileLoop {
 public:
  TileLoop(const SlavePart& part, const KernelRow* kernels,
           std::size_t tile_bytes, Ldm& ldm, Dma& dma)
      : table_(part.table),
        range_(part.range),
        partials_(part.partials),
        slave_(part.slave),
        kernels_(kernels),
        tile_bytes_(tile_bytes),
        ldm_(ldm),
        dma_(dma),
        result_(part.result),
        segment_(range_.begin_segment),
        element_(range_.begin_element) {}

  // run() needs an LDM that LdmLayout found large enough for every operation of
  // the table.
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
    auto* replies = static_cast<Reply*>(ldm_.allocate(7 * sizeof(Reply)));
    std::fill(replies, replies + 7, 0);
    batch_channel_.reply = replies;
    for (int i = 0; i < 2; ++i) {
      partial_slots_[i].memory =
          static_cast<std::byte*>(ldm_.allocate(partials_.bytes));
      partial_slots_[i].put.reply = replies + 5 + i;
    }
    // The slots share what is left, whatever operation they will hold.
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
  void get(void* ldm, const void* main, std::size_t bytes, Channel& channel) {
    dma_.get(ldm, main, bytes, channel.reply);
    ++channel.issued;
  }

  // segment_at() returns a copy in LDM of segment i; they come a batch at a
  // time.
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

  // next_tile() moves on to the next tile of this slave and describes it in
  // `slot`, whose last put must first have left LDM.
  bool next_tile(TileSlot& slot) {
    for (;; ++segment_, element_ = 0) {
      const bool last = segment_ == range_.end_segment;
      if (segment_ > range_.end_segment || (last && range_.end_element == 0)) {
        return false;
      }
      const Segment& segment = segment_at(segment_);
      const std::size_t end = last ? range_.end_element : segment.count;
      if (element_ >= end) {
        if (last) return false;
        continue;
      }
      wait(slot.put);
      if (slot.source != segment.operation) load_operation(slot, segment);
      slot.segment = segment_;
      slot.first = element_;
      slot.count = std::min(slot.tile_elements, end - element_);
      if (partials_.bytes != 0) {
        const Partials::Place place = partials_.place(
            segment, slot.operation->operand_count, segment_, slave_, element_);
        slot.partial = place.slot;
        slot.count = std::min(slot.count, place.end - element_);
      }
      slot.place_tiles(segment);
      element_ += slot.count;
      return true;
    }
  }

  void load_operation(TileSlot& slot, const Segment& segment) {
    slot.source = segment.operation;
    slot.operation = reinterpret_cast<Operation*>(slot.memory);
    get(slot.operation, slot.source, sizeof(Operation), slot.get);
    wait(slot.get);
    slot.args = slot.memory + align_up(sizeof(Operation), kLdmAlignment);
    if (slot.operation->args_bytes != 0) {
      get(slot.args, slot.operation->args, slot.operation->args_bytes,
          slot.get);
      wait(slot.get);
    }
    slot.kernel = kernels_[slot.operation->kernel].function;
    slot.tile_elements = LdmLayout::make(*slot.operation, ldm_.bytes(),
                                         tile_bytes_, partials_.bytes)
                             .tile_elements;
  }

  void begin_get(TileSlot& slot) {
    for (int s = 0; s < slot.operation->operand_count; ++s) {
      if (slot.operation->operands[s].access == Access::out) continue;
      slot.for_words(
          s,
          [&](std::byte* main, std::byte* tile, std::size_t bytes) {
            get(tile, main, bytes, slot.get);
          },
          [&](const std::byte* main, std::byte* tile, std::size_t bytes) {
            dma_.load(tile, main, bytes);
          });
    }
  }

  void begin_put(TileSlot& slot) {
    for (int s = 0; s < slot.operation->operand_count; ++s) {
      if (slot.operation->operands[s].access == Access::in) continue;
      slot.for_words(
          s,
          [&](std::byte* main, std::byte* tile, std::size_t bytes) {
            dma_.put(main, tile, bytes, slot.put.reply);
            ++slot.put.issued;
          },
          [&](std::byte* main, const std::byte* tile, std::size_t bytes) {
            dma_.store(main, tile, bytes);
          });
    }
  }

  // begin_partial() hands the kernel a zero partial result that will go to
  // `main`.
  void begin_partial(std::byte* main) {
    end_partial();
    partial_main_ = main;
    partial_index_ = 1 - partial_index_;
    PartialSlot& slot = partial_slots_[partial_index_];
    wait(slot.put);
    std::memset(slot.memory, 0, partials_.bytes);
    partial_ = slot.memory;
  }

  // end_partial() sends the last one out, if there is one.
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
    tile.partial = partial_;
    Result result;
    slot.kernel(slot.args, tile, result);
    result_.add(slot.segment, result);
  }

  const SegmentTable& table_;
  const SlaveRange& range_;
  const Partials& partials_;
  int slave_;
  const KernelRow* kernels_;
  std::size_t tile_bytes_;
  Ldm& ldm_;
  Dma& dma_;
  SlaveResult& result_;

  std::size_t segment_;  // the next tile
  std::size_t element_;
  std::byte* batch_ = nullptr;
  std::size_t batch_begin_ = 0;
  std::size_t batch_end_ = 0;
  Channel batch_channel_;
  TileSlot slots_[2];
  std::byte* partial_main_ = nullptr;
  void* partial_ = nullptr;  // the current one in LDM
  int partial_index_ = 0;
  PartialSlot partial_slots_[2];
};

}  // namespace swamp::runtime

#endif  // SWAMP_RUNTIME_TILE_LOOP_H_
