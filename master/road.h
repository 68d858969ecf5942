// The one road: every operation goes list -> plan -> spawn -> join -> fold.
#ifndef SWAMP_MASTER_ROAD_H_
#define SWAMP_MASTER_ROAD_H_

#include <cstddef>

#include "master/buffer.h"
#include "master/tensor_list.h"
#include "runtime/ldm.h"
#include "runtime/machine_impl.h"
#include "runtime/spawn.h"

namespace swamp::master {

// Road is a calling thread's memory for plans; it grows to the largest list and
// is kept, so that nothing is allocated once warm.
class Road {
 public:
  static Road& of_this_thread();

  Buffer<std::byte>& segment_memory() { return segments_; }

  // run() takes a list down the road and returns the slaves' results, folded.
  // Throws Error before anything is written.
  Result run(Machine::Impl& machine, const SegmentList& list);

 private:
  Buffer<std::byte> segments_;
  Buffer<runtime::SlaveRange> ranges_;
  Buffer<Result> results_;
  runtime::LdmArenas arenas_;
};

// fold() joins the results of slaves whose ranges follow each other in list
// order; a tensor that was cut between two of them counts once.
Result fold(const Result* results, int count) noexcept;

}  // namespace swamp::master

#endif  // SWAMP_MASTER_ROAD_H_
