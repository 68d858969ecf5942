// The plan: how a list is cut. Pure functions in two steps, O(segments +
// slaves).
#ifndef SWAMP_MASTER_PLAN_H_
#define SWAMP_MASTER_PLAN_H_

#include <cstddef>
#include <cstdint>

#include "runtime/launch.h"

namespace swamp::master {

inline constexpr std::size_t kBlockElements = 8192;
inline constexpr std::size_t kMaxGrains = 16384;

// GrainRun is some grains that follow each other: those of one tensor, or the
// single grain of a run of small tensors.
struct GrainRun {
  std::size_t begin_segment;
  std::size_t end_segment;
  std::size_t grain_elements;  // of every grain but the last of its tensor
  std::size_t grains;
  std::uint64_t bytes;  // traffic
};

// blocks_per_grain() is 1 until a list has more than kMaxGrains blocks.
std::size_t blocks_per_grain(const runtime::SegmentTable& table) noexcept;

// for_each_grain_run() is step one, list -> grains, a function of the counts
// alone, never of the machine: whole blocks of a tensor, counted from its
// start, or a run of tensors below kBlockElements, together not above it.
// `grain_elements` is blocks_per_grain() * kBlockElements.
template <class Visit>
void for_each_grain_run(const runtime::SegmentTable& table,
                        std::size_t grain_elements, Visit visit) {
  for (std::size_t i = 0; i < table.count;) {
    const Segment& segment = table[i];
    GrainRun run{i, i + 1, grain_elements, 1,
                 segment.count * segment.operation->traffic_bytes};
    if (segment.count >= kBlockElements) {
      run.grains = (segment.count + grain_elements - 1) / grain_elements;
    } else {
      std::size_t elements = segment.count;
      for (; run.end_segment < table.count; ++run.end_segment) {
        const Segment& next = table[run.end_segment];
        if (next.count > kBlockElements - elements ||
            next.count == kBlockElements) {
          break;
        }
        elements += next.count;
        run.bytes += next.count * next.operation->traffic_bytes;
      }
    }
    visit(run);
    i = run.end_segment;
  }
}

template <class Visit>
void for_each_grain_run(const runtime::SegmentTable& table, Visit visit) {
  for_each_grain_run(table, blocks_per_grain(table) * kBlockElements, visit);
}

// Grains is how the grains of a list are numbered.
struct Grains {
  std::size_t count = 0;
  std::size_t elements = 0;  // of every grain but the last of a large tensor
};

// number_grains() numbers the grains that have elements in list order and
// writes every segment's first_grain(), for which the table has room.
Grains number_grains(std::byte* base, const runtime::SegmentTable& table);

// cut() is step two, grains -> slaves: contiguous ranges of nearly equal bytes,
// at most `slaves` of them, none empty unless the list is. `ranges` has room
// for `slaves`. Returns how many were made, at least 1.
int cut(const runtime::SegmentTable& table, std::uint64_t traffic_bytes,
        int slaves, runtime::SlaveRange* ranges) noexcept;

}  // namespace swamp::master

#endif  // SWAMP_MASTER_PLAN_H_
