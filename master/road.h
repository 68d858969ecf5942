// The one road: every operation goes list -> plan -> spawn -> join -> fold.
#ifndef SWAMP_MASTER_ROAD_H_
#define SWAMP_MASTER_ROAD_H_

#include <cstddef>

#include "master/buffer.h"
#include "master/tensor_list.h"
#include "runtime/launch.h"
#include "runtime/machine_impl.h"

namespace swamp::master {

// Road is a calling thread's memory for plans; it grows to the largest list and
// is kept, so that nothing is allocated once warm.
class Road {
 public:
  static Road& of_this_thread();

  Buffer<std::byte>& segment_memory() { return segments_; }
  // waiting_memory() is for a list that waits until another has been run.
  Buffer<std::byte>& waiting_memory() { return waiting_; }

  // run() takes a list down the road and returns the slaves' results, folded.
  // With `partial_bytes` the slaves also leave a partial result of that size
  // for every segment they met. Throws Error before anything is written.
  runtime::SlaveResult run(Machine::Impl& machine, const SegmentList& list,
                           std::size_t partial_bytes = 0);

  // for_each_partial() visits what the last run() left: the partial results of
  // one segment in the order of slaves, which is that of its elements. Segments
  // without elements have none.
  template <class Partial, class Visit>
  void for_each_partial(const SegmentList& list, Visit visit) {
    for (int i = 0; i < used_; ++i) {
      const runtime::SlaveRange& range =
          ranges_.reserve(0)[static_cast<std::size_t>(i)];
      for (std::size_t s = range.begin_segment;
           s < range.end_segment + (range.end_element != 0 ? 1 : 0); ++s) {
        if (list.table[s].count == 0) continue;
        visit(s, *reinterpret_cast<const Partial*>(last_partials_.slot(s, i)));
      }
    }
  }

  // run_by_grain() is run() with a partial result for every grain of the list,
  // whose table was made with room for first_grain().
  runtime::SlaveResult run_by_grain(Machine::Impl& machine,
                                    const SegmentList& list,
                                    std::size_t partial_bytes);

  // for_each_grain() visits what the last run_by_grain() left, in list order.
  template <class Partial, class Visit>
  void for_each_grain(Visit visit) const {
    for (std::size_t i = 0; i < last_partials_.slots; ++i) {
      visit(*reinterpret_cast<const Partial*>(last_partials_.base +
                                              i * last_partials_.bytes));
    }
  }

 private:
  int cut_list(const Machine::Impl& machine, const SegmentList& list);
  runtime::SlaveResult run_cut(Machine::Impl& machine, const SegmentList& list);

  Buffer<std::byte> segments_;
  Buffer<std::byte> waiting_;
  Buffer<runtime::SlaveRange> ranges_;
  Buffer<runtime::SlaveResult> results_;
  Buffer<std::byte> partials_;
  runtime::LdmArenas arenas_;
  runtime::Partials last_partials_;
  int used_ = 0;
};

// fold() joins the results of slaves whose ranges follow each other in list
// order; a tensor that was cut between two of them counts once.
runtime::SlaveResult fold(const runtime::SlaveResult* results,
                          int count) noexcept;

}  // namespace swamp::master

#endif  // SWAMP_MASTER_ROAD_H_
