// The partition of a list into grains and of the grains between slaves: pure
// functions, O(tensors + slaves).
//
// A List has size(); count(i), the number of units of tensor i (elements, or
// rows); unit_traffic(i), the bytes that are read and written for one of them;
// grain_rule(); and chunks(), those of a list that fill_segments() made, or
// null.
#ifndef SWAMP_MASTER_PARTITION_H_
#define SWAMP_MASTER_PARTITION_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "runtime/launch.h"

namespace swamp::master {

inline constexpr std::size_t kBlockElements = 8192;
inline constexpr std::size_t kMaxGrains = 16384;

// divided() returns count / by, rounded up.
constexpr std::size_t divided(std::size_t count, std::size_t by) noexcept {
  return count / by + (count % by != 0 ? 1 : 0);
}

// GrainRule is how a list is divided into grains. A grain is one block of
// block_units units, or more if there were more than max_grains.
//
// There are two rules, because operators have two kinds of units. Lists of
// elements have the default one. A unit of a row operator is a row, so it has
// row_grains() of row_launch.h. With the default, 8192 rows would be one grain,
// and most matrices could not be shared between slaves; with a block of
// elements, grains would split rows.
struct GrainRule {
  std::size_t block_units = kBlockElements;
  std::size_t max_grains = kMaxGrains;
  bool joins_small = true;  // tensors of less than a block share a grain
};

// SegmentChunk is what consecutive segments have together: kSegments of a list,
// or its last ones.
struct SegmentChunk {
  static constexpr std::size_t kSegments = 16;

  std::uint64_t traffic_bytes = 0;
  std::size_t units = 0;
  std::uint32_t operations_used = 0;  // as SegmentTable's
};

// SegmentCounts is the List of a segment table.
class SegmentCounts {
 public:
  SegmentCounts(const runtime::SegmentTable& table, const GrainRule& rule,
                const SegmentChunk* chunks) noexcept
      : table_(table), rule_(rule), chunks_(chunks) {}
  std::size_t size() const noexcept { return table_.count; }
  std::size_t count(std::size_t i) const noexcept { return table_[i].count; }
  std::uint64_t unit_traffic(std::size_t i) const noexcept {
    return table_[i].operation->traffic_bytes;
  }

  const GrainRule& grain_rule() const noexcept { return rule_; }
  const SegmentChunk* chunks() const noexcept { return chunks_; }

 private:
  const runtime::SegmentTable& table_;
  GrainRule rule_;
  const SegmentChunk* chunks_;
};

// blocks_per_grain() is 1 until a list has more than max_grains blocks.
template <class List>
std::size_t blocks_per_grain(const List& list) noexcept {
  const GrainRule rule = list.grain_rule();
  std::size_t blocks = 0;
  const SegmentChunk* const chunks = list.chunks();
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (chunks != nullptr && i % SegmentChunk::kSegments == 0 &&
        chunks[i / SegmentChunk::kSegments].units < rule.block_units) {
      i += SegmentChunk::kSegments - 1;
      continue;
    }
    const std::size_t count = list.count(i);
    if (count >= rule.block_units) {
      blocks += (count - 1) / rule.block_units + 1;
    }
  }
  return std::max<std::size_t>(
      1, (blocks + rule.max_grains - 1) / rule.max_grains);
}

// grain_units() returns the units of every grain but the last of its tensor.
template <class List>
std::size_t grain_units(const List& list) noexcept {
  return blocks_per_grain(list) * list.grain_rule().block_units;
}

// GrainRun is consecutive grains: all of one tensor, or a single grain that
// consists of small tensors.
struct GrainRun {
  std::size_t begin_tensor;
  std::size_t end_tensor;
  std::size_t grain_units;  // of every grain but the last of its tensor
  std::size_t grains;
  std::uint64_t bytes;  // traffic
};

// for_each_grain_run() is step one, list -> grains: a function of the counts
// alone, never of the machine. A grain is whole blocks of a tensor, counted
// from its start, or, if the rule joins small tensors, consecutive ones of less
// than a block with a sum of at most a block. `grain_units` is
// blocks_per_grain() blocks.
template <class List, class Visit>
void for_each_grain_run(const List& list, std::size_t begin, std::size_t end,
                        std::size_t grain_units, Visit visit) {
  const std::size_t block_units = list.grain_rule().block_units;
  const bool joins_small = list.grain_rule().joins_small;
  const SegmentChunk* const chunks = list.chunks();
  for (std::size_t i = begin; i < end;) {
    const std::size_t count = list.count(i);
    GrainRun run{i, i + 1, grain_units, 1, count * list.unit_traffic(i)};
    if (count >= block_units) {
      run.grains = (count - 1) / grain_units + 1;
    } else if (joins_small) {
      std::size_t units = count;
      while (run.end_tensor < end) {
        if (chunks != nullptr &&
            run.end_tensor % SegmentChunk::kSegments == 0) {
          const SegmentChunk& chunk =
              chunks[run.end_tensor / SegmentChunk::kSegments];
          if (chunk.units < block_units && chunk.units <= block_units - units) {
            units += chunk.units;
            run.bytes += chunk.traffic_bytes;
            run.end_tensor =
                std::min(run.end_tensor + SegmentChunk::kSegments, end);
            continue;
          }
        }
        const std::size_t next = list.count(run.end_tensor);
        if (next > block_units - units || next == block_units) break;
        units += next;
        run.bytes += next * list.unit_traffic(run.end_tensor++);
      }
    }
    visit(run);
    i = run.end_tensor;
  }
}

template <class List, class Visit>
void for_each_grain_run(const List& list, Visit visit) {
  for_each_grain_run(list, 0, list.size(), grain_units(list), visit);
}

// Grains is the numbering of the grains of a list.
struct Grains {
  std::size_t count = 0;
  std::size_t units = 0;  // of every grain but the last of a large tensor
};

// number_grains() numbers the grains that have elements, in list order, and
// calls set_first(i, number of the first grain of tensor i).
template <class List, class SetFirst>
Grains number_grains(const List& list, SetFirst set_first) {
  Grains grains{0, grain_units(list)};
  for_each_grain_run(
      list, 0, list.size(), grains.units, [&](const GrainRun& run) {
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
  std::size_t unit;
};

// Edge is a place between two grains, and the traffic before it.
struct Edge {
  Position at;
  std::uint64_t bytes;
};

// nearest_edge() returns the edge of the run's grains that is nearest to
// `bytes`, of those with at least `least` bytes before them. `before` is the
// traffic before the run.
template <class List>
Edge nearest_edge(const List& list, const GrainRun& run, std::uint64_t before,
                  std::uint64_t bytes, std::uint64_t least) noexcept {
  std::uint64_t grain_bytes = run.bytes;
  if (run.grains > 1) {
    grain_bytes = static_cast<std::uint64_t>(run.grain_units) *
                  list.unit_traffic(run.begin_tensor);
  }
  std::uint64_t grain = (bytes - before + grain_bytes / 2) / grain_bytes;
  if (before + grain * grain_bytes < least) ++grain;
  if (grain >= run.grains) return {{run.end_tensor, 0}, before + run.bytes};
  return {{run.begin_tensor, static_cast<std::size_t>(grain) * run.grain_units},
          before + grain * grain_bytes};
}

// Shares is what the ranges of a partition are. Equal parts of what the ranges
// before have left: all that follow even out what one of them has too much or
// too little. Or parts between multiples of the mean, which core groups have
// whatever their number of slaves, and saved states of sharded optimizers.
enum class Shares { of_rest, of_all };

// partition() is step two, grains -> slaves: at most `slaves` contiguous ranges
// of nearly equal bytes, none of them empty unless the list is. `traffic_bytes`
// is that of the whole list; `ranges` has room for `slaves`. Returns the number
// of ranges, at least 1.
//
// If the list has chunks and its rule does not join small tensors, only chunks
// in which ranges end are visited.
template <class List>
int partition(const List& list, std::uint64_t traffic_bytes, int slaves,
              runtime::SlaveRange* ranges,
              Shares shares = Shares::of_rest) noexcept {
  const auto n = static_cast<std::uint64_t>(slaves);
  int made = 0;
  Edge begin{{0, 0}, 0};
  const auto target = [&](std::uint64_t slave) {
    if (shares == Shares::of_all) {  // traffic * slave / n
      return traffic_bytes / n * slave + traffic_bytes % n * slave / n;
    }
    return begin.bytes + (traffic_bytes - begin.bytes) / (n - slave + 1);
  };
  const auto close = [&](const Edge& end) {
    if (end.at.tensor == begin.at.tensor && end.at.unit == begin.at.unit) {
      return;
    }
    ranges[made++] = {begin.at.tensor, begin.at.unit, end.at.tensor,
                      end.at.unit};
    begin = end;
  };
  if (n > 1) {
    std::uint64_t before = 0;
    std::uint64_t slave = 1;
    std::uint64_t next = target(1);
    // So little traffic cannot exceed max_grains blocks; skip counting.
    const GrainRule rule = list.grain_rule();
    const bool few = traffic_bytes < rule.max_grains * rule.block_units / 2;
    const std::size_t units = few ? rule.block_units : grain_units(list);
    const SegmentChunk* const chunks =
        rule.joins_small ? nullptr : list.chunks();
    const std::size_t together =
        chunks != nullptr ? SegmentChunk::kSegments : list.size();
    // Of less traffic than that either end of a chunk is near enough.
    const std::uint64_t small = traffic_bytes / n / 16;
    for (std::size_t i = 0; i < list.size() && slave < n; i += together) {
      const std::size_t end = std::min(i + together, list.size());
      if (chunks != nullptr) {
        const std::uint64_t bytes = chunks[i / together].traffic_bytes;
        const bool has_edge = next < before + bytes;
        if (!has_edge || bytes <= small) {
          if (has_edge) {
            const bool is_first =
                next - before < bytes / 2 &&
                (shares == Shares::of_all || before > begin.bytes);
            close(is_first ? Edge{{i, 0}, before}
                           : Edge{{end, 0}, before + bytes});
            next = target(++slave);
          }
          before += bytes;
          continue;
        }
      }
      for_each_grain_run(list, i, end, units, [&](const GrainRun& run) {
        while (slave < n && next < before + run.bytes) {
          close(nearest_edge(list, run, before, next,
                             shares == Shares::of_rest ? begin.bytes + 1 : 0));
          next = target(++slave);
        }
        before += run.bytes;
      });
    }
  }
  close({{list.size(), 0}, traffic_bytes});
  if (made == 0) ranges[made++] = {0, 0, 0, 0};
  return made;
}

}  // namespace swamp::master

#endif  // SWAMP_MASTER_PARTITION_H_
