#include "master/mixed_precision/slices.h"

#include "master/plan.h"
#include "slave/kernel.h"

namespace swamp::master {
namespace {

// close_to_end() moves a cut behind a tensor of which too little would be left.
void close_to_end(const std::vector<std::size_t>& counts, std::size_t& segment,
                  std::size_t& element) {
  if (element != 0 && counts[segment] - element < kBlockElements) {
    ++segment;
    element = 0;
  }
}

}  // namespace

std::vector<Slice> whole_slices(const std::vector<std::size_t>& counts) {
  std::vector<Slice> slices;
  for (std::size_t p = 0; p < counts.size(); ++p) {
    slices.push_back({p, 0, counts[p]});
  }
  return slices;
}

std::vector<std::vector<Slice>> cut_slices(
    const std::vector<std::size_t>& counts, int ranks) {
  // The plan cuts tables of segments; it looks at their counts and traffic.
  Operation operation;
  operation.traffic_bytes = sizeof(float);
  constexpr std::size_t kStride = segment_bytes(1);
  std::vector<std::uint64_t> memory(counts.size() * kStride /
                                    sizeof(std::uint64_t));
  auto* base = reinterpret_cast<std::byte*>(memory.data());
  std::uint64_t traffic_bytes = 0;
  for (std::size_t p = 0; p < counts.size(); ++p) {
    new (base + p * kStride) Segment{&operation, counts[p]};
    traffic_bytes += counts[p] * sizeof(float);
  }
  const runtime::SegmentTable table{base, kStride, counts.size(), &operation,
                                    1};
  std::vector<runtime::SlaveRange> ranges(static_cast<std::size_t>(ranks));
  const int used = cut(table, traffic_bytes, ranks, ranges.data());

  std::vector<std::vector<Slice>> shards(static_cast<std::size_t>(ranks));
  std::size_t segment = 0;
  std::size_t element = 0;
  for (int rank = 0; rank < used; ++rank) {
    const auto r = static_cast<std::size_t>(rank);
    std::size_t end_segment = ranges[r].end_segment;
    std::size_t end_element = ranges[r].end_element;
    if (rank + 1 == used) {
      end_segment = counts.size();
      end_element = 0;
    }
    close_to_end(counts, end_segment, end_element);
    for (; segment < end_segment; ++segment, element = 0) {
      shards[r].push_back({segment, element, counts[segment] - element});
    }
    if (end_element > element && segment == end_segment) {
      shards[r].push_back({segment, element, end_element - element});
      element = end_element;
    }
  }
  return shards;
}

}  // namespace swamp::master
