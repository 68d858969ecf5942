// A DMA that counts and moves no data: what the tile loop issues is what the
// machine would be asked for.
#ifndef SWAMP_RUNTIME_PREDICT_COUNTING_DMA_H_
#define SWAMP_RUNTIME_PREDICT_COUNTING_DMA_H_

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "runtime/dma.h"
#include "runtime/predict/traffic.h"
#include "runtime/spawn.h"

namespace swamp::runtime {

// CountingDma carries out only what the tile loop itself reads again, or the
// master after the join: segments, operations, their arguments, partial
// results. Any other address is of an array, and may be of no memory at all.
class CountingDma {
 public:
  CountingDma(const Job& job, predict::Traffic& traffic) noexcept
      : table_(job.table),
        segments_{job.table.base, job.table.count * job.table.stride},
        partials_{job.partials.base, job.partials.slots * job.partials.bytes},
        traffic_(traffic) {}

  void get(void* ldm, const void* main, std::size_t bytes,
           Reply* reply) noexcept {
    if (is_operation(main)) {
      // On the caller's stack, elsewhere in every run: as if on a line.
      traffic_.get(bytes, predict::lines_of(std::uint64_t{0}, bytes));
      std::memcpy(ldm, main, bytes);
    } else {
      traffic_.get(bytes, predict::lines_of(main, bytes));
      if (segments_.holds(main)) std::memcpy(ldm, main, bytes);
    }
    ++*reply;
  }
  void put(void* main, const void* ldm, std::size_t bytes,
           Reply* reply) noexcept {
    traffic_.put(bytes, predict::lines_of(main, bytes));
    if (partials_.holds(main)) std::memcpy(main, ldm, bytes);
    ++*reply;
  }
  void wait(const Reply*, Reply) noexcept {}
  void load(void*, const void*, std::size_t bytes) noexcept {
    traffic_.load(bytes);
  }
  void store(void*, const void*, std::size_t bytes) noexcept {
    traffic_.store(bytes);
  }

 private:
  struct Range {
    const std::byte* begin;
    std::size_t bytes;
    bool holds(const void* address) const noexcept {
      return reinterpret_cast<std::uintptr_t>(address) -
                 reinterpret_cast<std::uintptr_t>(begin) <
             bytes;
    }
  };
  // An operation or its arguments.
  bool is_operation(const void* address) const noexcept {
    for (std::size_t i = 0; i < table_.operation_count; ++i) {
      const Operation& operation = table_.operations[i];
      if (address == &operation || address == operation.args) return true;
    }
    return false;
  }

  const SegmentTable& table_;
  Range segments_;
  Range partials_;
  predict::Traffic& traffic_;
};

}  // namespace swamp::runtime

#endif  // SWAMP_RUNTIME_PREDICT_COUNTING_DMA_H_
