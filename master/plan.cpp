#include "master/plan.h"

#include <algorithm>

namespace swamp::master {

std::size_t blocks_per_grain(const runtime::SegmentTable& table) noexcept {
  std::size_t blocks = 0;
  for (std::size_t i = 0; i < table.count; ++i) {
    const std::size_t count = table[i].count;
    if (count >= kBlockElements) {
      blocks += (count + kBlockElements - 1) / kBlockElements;
    }
  }
  return std::max<std::size_t>(1, (blocks + kMaxGrains - 1) / kMaxGrains);
}

Grains number_grains(std::byte* base, const runtime::SegmentTable& table) {
  Grains grains{0, blocks_per_grain(table) * kBlockElements};
  for_each_grain_run(table, grains.elements, [&](const GrainRun& run) {
    for (std::size_t i = run.begin_segment; i < run.end_segment; ++i) {
      reinterpret_cast<Segment*>(base + i * table.stride)->first_grain() =
          grains.count;
    }
    if (run.bytes != 0) grains.count += run.grains;
  });
  return grains;
}

namespace {

// Position is a place between two grains.
struct Position {
  std::size_t segment;
  std::size_t element;
};

// nearest_edge() is the edge of `run`'s grains that is nearest to `bytes`
// behind the run's start.
Position nearest_edge(const runtime::SegmentTable& table, const GrainRun& run,
                      std::uint64_t bytes) noexcept {
  std::uint64_t grain_bytes = run.bytes;
  if (run.grains > 1) {
    grain_bytes = static_cast<std::uint64_t>(run.grain_elements) *
                  table[run.begin_segment].operation->traffic_bytes;
  }
  const std::uint64_t grain = (bytes + grain_bytes / 2) / grain_bytes;
  if (grain >= run.grains) return {run.end_segment, 0};
  return {run.begin_segment,
          static_cast<std::size_t>(grain) * run.grain_elements};
}

}  // namespace

int cut(const runtime::SegmentTable& table, std::uint64_t traffic_bytes,
        int slaves, runtime::SlaveRange* ranges) noexcept {
  const auto n = static_cast<std::uint64_t>(slaves);
  const auto target = [&](std::uint64_t slave) {  // traffic * slave / n
    return traffic_bytes / n * slave + traffic_bytes % n * slave / n;
  };
  int made = 0;
  Position begin{0, 0};
  const auto close = [&](Position end) {
    if (end.segment == begin.segment && end.element == begin.element) return;
    ranges[made++] = {begin.segment, begin.element, end.segment, end.element};
    begin = end;
  };
  if (n > 1) {
    std::uint64_t before = 0;
    std::uint64_t slave = 1;
    std::uint64_t next = target(1);
    // A list of less traffic has fewer blocks than kMaxGrains, without a look.
    const bool few = traffic_bytes < kMaxGrains * kBlockElements / 2;
    const std::size_t grain_elements =
        (few ? 1 : blocks_per_grain(table)) * kBlockElements;
    for_each_grain_run(table, grain_elements, [&](const GrainRun& run) {
      while (slave < n && next < before + run.bytes) {
        close(nearest_edge(table, run, next - before));
        next = target(++slave);
      }
      before += run.bytes;
    });
  }
  close({table.count, 0});
  if (made == 0) ranges[made++] = {0, 0, 0, 0};
  return made;
}

}  // namespace swamp::master
