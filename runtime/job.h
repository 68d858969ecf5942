// What one spawn does, as plain data: slaves that run no code of the master's
// side get it by DMA.
#ifndef SWAMP_RUNTIME_JOB_H_
#define SWAMP_RUNTIME_JOB_H_

#include <cstddef>
#include <cstdint>

#include "swamp/kernel.h"

namespace swamp::runtime {

// SegmentTable is a list of segments, `stride` bytes apart, and the operations
// that they point to. All operations of a table have the same stream_count. It
// owns nothing.
struct SegmentTable {
  const std::byte* base = nullptr;
  std::size_t stride = 0;
  std::size_t count = 0;
  const Operation* operations = nullptr;
  std::size_t operation_count = 0;
  std::uint32_t operations_used = ~0u;  // bit i: some segment has operation i

  const Segment& operator[](std::size_t i) const noexcept {
    return *reinterpret_cast<const Segment*>(base + i * stride);
  }
};

// SlaveRange is one slave's part of a table: from element `begin_element` of
// segment `begin_segment` up to, not including, element `end_element` of
// segment `end_segment`. An end_element of 0 ends before that segment.
struct SlaveRange {
  std::size_t begin_segment = 0;
  std::size_t begin_element = 0;
  std::size_t end_segment = 0;
  std::size_t end_element = 0;
};

// Partials is memory for partial results, `slots` of `bytes` each (0: none).
// Without grain_elements there is a slot for every pair of a slave and a
// segment that it meets: only neighbours in the order of slaves meet the same
// segment, so segments + slaves slots are enough. With grain_elements there is
// one for every grain, and no grain is cut between slaves: those of a segment
// are its runs of so many elements, the first of them its first_grain(). A
// slave writes the slots of what it has elements of.
struct Partials {
  std::byte* base = nullptr;  // a multiple of 8, as is `bytes`
  std::size_t bytes = 0;
  std::size_t slots = 0;
  std::size_t grain_elements = 0;

  std::byte* slot(std::size_t segment, int slave) const noexcept {
    return base + (segment + static_cast<std::size_t>(slave)) * bytes;
  }
  // Place is a slot, and the element of the segment that it does not reach.
  struct Place {
    std::byte* slot;
    std::size_t end;
  };
  // place() is where the results of `element` of segment i go.
  Place place(const Segment& segment, int streams, std::size_t i, int slave,
              std::size_t element) const noexcept {
    if (grain_elements == 0) return {slot(i, slave), ~std::size_t{0}};
    const std::size_t grain = element / grain_elements;
    return {base + (segment.first_grain(streams) + grain) * bytes,
            (grain + 1) * grain_elements};
  }
};

// SlaveResult is what one slave found in its part of a list. Only that slave
// writes it; the master reduces the results after the join, so there are no
// shared flags and no atomics.
struct alignas(128) SlaveResult {
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};  // no segment

  std::uint64_t flagged_elements = 0;
  std::uint64_t flagged_segments = 0;   // segments that hold a flagged element
  std::uint64_t first_segment = kNone;  // lowest flagged (segment, index)
  std::uint64_t first_index = 0;
  std::uint64_t last_segment = kNone;  // highest flagged segment

  // add() adds the result of a tile of `segment`. Tiles must be added in the
  // order of the list.
  void add(std::uint64_t segment, const Result& tile) noexcept {
    if (tile.flagged_elements == 0) return;
    if (first_segment == kNone) {
      first_segment = segment;
      first_index = tile.first_index;
    }
    if (last_segment != segment) {
      last_segment = segment;
      ++flagged_segments;
    }
    flagged_elements += tile.flagged_elements;
  }
};

// Job is what one spawn does. ranges[i] belongs to slave i, and so does
// results[i], which the slave clears first.
struct Job {
  SegmentTable table;
  const SlaveRange* ranges = nullptr;
  int slaves = 0;  // 1..the machine's
  SlaveResult* results = nullptr;
  Partials partials = {};
  std::uint64_t traffic_bytes = 0;  // read and written by all slaves together
};

// RemoteJob is a job with all that a slave must know beside it, to be run by
// code that is not the master's.
struct RemoteJob {
  Job job;
  std::size_t ldm_bytes;   // of a slave, for tiles and all that goes with them
  std::size_t tile_bytes;  // of the widest stream
  std::uint64_t float_environment;  // the caller's
};

// SlavePart is what one slave does of a job.
struct SlavePart {
  const SegmentTable& table;
  const SlaveRange& range;
  const Partials& partials;
  int slave;
  SlaveResult& result;
};
inline SlavePart part_of(const Job& job, int slave) noexcept {
  return {job.table, job.ranges[slave], job.partials, slave,
          job.results[slave]};
}

}  // namespace swamp::runtime

#endif  // SWAMP_RUNTIME_JOB_H_
