#include "master/road.h"

#include <pthread.h>

#include "master/plan.h"
#include "runtime/cancel_guard.h"

namespace swamp::master {

using runtime::SlaveResult;

namespace {

thread_local Road* road_of_this_thread = nullptr;

// Key ends a thread's road by way of a POSIX key, whose destructors run after
// those of all thread-locals, and not at all at the end of the process: the
// destructors of the caller's own thread-locals and statics may still call
// swamp.
struct Key {
  pthread_key_t key;
  Key() {
    pthread_key_create(&key, [](void* road) {
      delete static_cast<Road*>(road);
      road_of_this_thread = nullptr;
    });
  }
};

}  // namespace

Road& Road::of_this_thread() {
  if (road_of_this_thread == nullptr) {
    static const Key key;
    road_of_this_thread = new Road;
    pthread_setspecific(key.key, road_of_this_thread);
  }
  return *road_of_this_thread;
}

SlaveResult Road::run(Machine::Impl& machine, const SegmentList& list,
                      std::size_t partial_bytes) {
  const runtime::CancelGuard guard;
  last_partials_ = {};
  used_ = cut_list(machine, list);
  if (partial_bytes != 0) {
    const std::size_t slots =
        list.table.count + static_cast<std::size_t>(used_);
    last_partials_ = {partials_.reserve(slots * partial_bytes), partial_bytes,
                      slots};
  }
  return run_cut(machine, list);
}

SlaveResult Road::run_by_grain(Machine::Impl& machine, const SegmentList& list,
                               std::size_t partial_bytes) {
  const runtime::CancelGuard guard;
  last_partials_ = {};
  used_ = cut_list(machine, list);
  const Grains grains = number_grains(segments_.reserve(0), list.table);
  last_partials_ = {partials_.reserve(grains.count * partial_bytes),
                    partial_bytes, grains.count, grains.elements};
  return run_cut(machine, list);
}

// cut_list() fills ranges_ and returns how many slaves have one; none when
// there is nothing to touch.
int Road::cut_list(const Machine::Impl& machine, const SegmentList& list) {
  if (list.traffic_bytes == 0) return 0;
  const bool alone = list.traffic_bytes < machine.tuning.spawn_traffic_bytes;
  const int slaves = alone ? 1 : machine.slaves();
  runtime::SlaveRange* ranges =
      ranges_.reserve(static_cast<std::size_t>(slaves));
  return cut(list.table, list.traffic_bytes, slaves, ranges);
}

SlaveResult Road::run_cut(Machine::Impl& machine, const SegmentList& list) {
  if (used_ == 0) return {};
  SlaveResult* results = results_.reserve(static_cast<std::size_t>(used_));
  runtime::Launch launch;
  launch.table = list.table;
  launch.traffic_bytes = list.traffic_bytes;
  launch.ranges = ranges_.reserve(0);
  launch.slaves = used_;
  launch.results = results;
  launch.partials = last_partials_;
  runtime::run(machine, launch, arenas_);
  return fold(results, used_);
}

SlaveResult fold(const SlaveResult* results, int count) noexcept {
  SlaveResult all;
  for (int i = 0; i < count; ++i) {
    const SlaveResult& one = results[i];
    if (one.flagged_elements == 0) continue;
    all.flagged_elements += one.flagged_elements;
    all.flagged_segments += one.flagged_segments;
    if (all.first_segment == SlaveResult::kNone) {
      all.first_segment = one.first_segment;
      all.first_index = one.first_index;
    } else if (one.first_segment == all.last_segment) {
      --all.flagged_segments;
    }
    all.last_segment = one.last_segment;
  }
  return all;
}

}  // namespace swamp::master
