// The partition of a list into grains and of the grains between slaves: pure
// functions, O(tensors + slaves).
//
// A List has size(); count(i), the number of elements of tensor i; and
// element_traffic(i), the bytes that are read and written for one of them.
#ifndef SWAMP_MASTER_PARTITION_H_
#define SWAMP_MASTER_PARTITION_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "runtime/launch.h"

namespace swamp::master {

inline constexpr std::size_t kBlockElements = 8192;
inline constexpr std::size_t kMaxGrains = 16384;

// SegmentCounts is the List of a segment table.
class SegmentCounts {
 public:
  explicit SegmentCounts(const runtime::SegmentTable& table) noexcept
      : table_(table) {}
  std::size_t size() const noexcept { return table_.count; }
  std::size_t count(std::size_t i) const noexcept { return table_[i].count; }
  std::uint64_t element_traffic(std::size_t i) const noexcept {
    return table_[i].operation->traffic_bytes;
  }

 private:
  const runtime::SegmentTable& table_;
};

// blocks_per_grain() is 1 until a list has more than kMaxGrains blocks.
template <class List>
std::size_t blocks_per_grain(const List& list) noexcept {
  std::size_t blocks = 0;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::size_t count = list.count(i);
    if (count >= kBlockElements) {
      blocks += (count + kBlockElements - 1) / kBlockElements;
    }
  }
  return std::max<std::size_t>(1, (blocks + kMaxGrains - 1) / kMaxGrains);
}

// GrainRun is consecutive grains: those of one tensor, or a single grain that
// consists of small tensors.
struct GrainRun {
  std::size_t begin_tensor;
  std::size_t end_tensor;
  std::size_t grain_elements;  // of every grain but the last of its tensor
  std::size_t grains;
  std::uint64_t bytes;  // traffic
};

// for_each_grain_run() is step one, list -> grains: a function of the counts
// alone, never of the machine. A grain is whole blocks of a tensor, counted
// from its start, or consecutive tensors below kBlockElements with a sum of at
// most kBlockElements. `grain_elements` is blocks_per_grain() * kBlockElements.
template <class List, class Visit>
void for_each_grain_run(const List& list, std::size_t grain_elements,
                        Visit visit) {
  for (std::size_t i = 0; i < list.size();) {
    const std::size_t count = list.count(i);
    GrainRun run{i, i + 1, grain_elements, 1, count * list.element_traffic(i)};
    if (count >= kBlockElements) {
      run.grains = (count + grain_elements - 1) / grain_elements;
    } else {
      std::size_t elements = count;
      for (; run.end_tensor < list.size(); ++run.end_tensor) {
        const std::size_t next = list.count(run.end_tensor);
        if (next > kBlockElements - elements || next == kBlockElements) break;
        elements += next;
        run.bytes += next * list.element_traffic(run.end_tensor);
      }
    }
    visit(run);
    i = run.end_tensor;
  }
}

template <class List, class Visit>
void for_each_grain_run(const List& list, Visit visit) {
  for_each_grain_run(list, blocks_per_grain(list) * kBlockElements, visit);
}

// Grains is the numbering of the grains of a list.
struct Grains {
  std::size_t count = 0;
  std::size_t elements = 0;  // of every grain but the last of a large tensor
};

// number_grains() numbers the grains that have elements, in list order, and
// calls set_first(i, number of the first grain of tensor i).
template <class List, class SetFirst>
Grains number_grains(const List& list, SetFirst set_first) {
  Grains grains{0, blocks_per_grain(list) * kBlockElements};
  for_each_grain_run(list, grains.elements, [&](const GrainRun& run) {
    for (std::size_t i = run.begin_tensor; i < run.end_tensor; ++i) {
      set_first(i, grains.count);
    }
    if (run.bytes != 0) grains.count += run.grains;
  });
  return grains;
}

// Position is a place between two grains.
struct Position {
  std::size_t tensor;
  std::size_t element;
};

// nearest_edge() returns the edge of the run's grains that is nearest to
// `bytes` after the run's start.
template <class List>
Position nearest_edge(const List& list, const GrainRun& run,
                      std::uint64_t bytes) noexcept {
  std::uint64_t grain_bytes = run.bytes;
  if (run.grains > 1) {
    grain_bytes = static_cast<std::uint64_t>(run.grain_elements) *
                  list.element_traffic(run.begin_tensor);
  }
  const std::uint64_t grain = (bytes + grain_bytes / 2) / grain_bytes;
  if (grain >= run.grains) return {run.end_tensor, 0};
  return {run.begin_tensor,
          static_cast<std::size_t>(grain) * run.grain_elements};
}

// partition() is step two, grains -> slaves: at most `slaves` contiguous ranges
// of nearly equal bytes, none of them empty unless the list is. `traffic_bytes`
// is that of the whole list; `ranges` has room for `slaves`. Returns the number
// of ranges, at least 1.
template <class List>
int partition(const List& list, std::uint64_t traffic_bytes, int slaves,
              runtime::SlaveRange* ranges) noexcept {
  const auto n = static_cast<std::uint64_t>(slaves);
  const auto target = [&](std::uint64_t slave) {  // traffic * slave / n
    return traffic_bytes / n * slave + traffic_bytes % n * slave / n;
  };
  int made = 0;
  Position begin{0, 0};
  const auto close = [&](Position end) {
    if (end.tensor == begin.tensor && end.element == begin.element) return;
    ranges[made++] = {begin.tensor, begin.element, end.tensor, end.element};
    begin = end;
  };
  if (n > 1) {
    std::uint64_t before = 0;
    std::uint64_t slave = 1;
    std::uint64_t next = target(1);
    // So little traffic cannot exceed kMaxGrains blocks; skip counting.
    const bool few = traffic_bytes < kMaxGrains * kBlockElements / 2;
    const std::size_t grain_elements =
        (few ? 1 : blocks_per_grain(list)) * kBlockElements;
    for_each_grain_run(list, grain_elements, [&](const GrainRun& run) {
      while (slave < n && next < before + run.bytes) {
        close(nearest_edge(list, run, next - before));
        next = target(++slave);
      }
      before += run.bytes;
    });
  }
  close({list.size(), 0});
  if (made == 0) ranges[made++] = {0, 0, 0, 0};
  return made;
}

}  // namespace swamp::master

#endif  // SWAMP_MASTER_PARTITION_H_
