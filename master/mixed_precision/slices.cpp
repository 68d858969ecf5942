#include "master/mixed_precision/slices.h"

#include "master/partition.h"

namespace swamp::master {
namespace {

// MasterWeights is the list of the float32 weights, for partition().
struct MasterWeights {
  const std::vector<std::size_t>& counts;

  std::size_t size() const noexcept { return counts.size(); }
  std::size_t count(std::size_t i) const noexcept { return counts[i]; }
  static std::uint64_t element_bytes(std::size_t) noexcept {
    return sizeof(float);
  }
};

// close_to_end() moves a cut to the tensor's end if less than a block remains.
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
  std::uint64_t bytes = 0;
  for (const std::size_t count : counts) bytes += count * sizeof(float);
  std::vector<runtime::SlaveRange> ranges(static_cast<std::size_t>(ranks));
  const int used =
      partition(MasterWeights{counts}, bytes, ranks, ranges.data());

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
