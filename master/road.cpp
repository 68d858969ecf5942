#include "master/road.h"

#include <pthread.h>

#include <memory>
#include <new>
#include <string>

#include "master/plan.h"
#include "runtime/cancel_guard.h"
#include "swamp/error.h"

namespace swamp::master {

namespace {

thread_local Road* road_of_this_thread = nullptr;

// make_key() returns the POSIX key that ends a thread's road. Its destructor
// runs after those of all thread-locals, and not at all at the end of the
// process: the destructors of the caller's own thread-locals and statics may
// still call swamp.
pthread_key_t make_key() {
  pthread_key_t key;
  const int error = pthread_key_create(&key, [](void* road) {
    delete static_cast<Road*>(road);
    road_of_this_thread = nullptr;
  });
  if (error == 0) return key;
  throw Error(SWAMP_OUT_OF_MEMORY,
              "pthread_key_create: got error " + std::to_string(error) +
                  ", expected a key that other libraries have not used up");
}

}  // namespace

Road& Road::of_this_thread() {
  if (road_of_this_thread == nullptr) {
    static const pthread_key_t key = make_key();  // tried again if it throws
    auto road = std::make_unique<Road>();
    if (pthread_setspecific(key, road.get()) != 0) throw std::bad_alloc();
    road_of_this_thread = road.release();
  }
  return *road_of_this_thread;
}

Result Road::run(Machine::Impl& machine, const SegmentList& list,
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

Result Road::run_by_grain(Machine::Impl& machine, const SegmentList& list,
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

Result Road::run_cut(Machine::Impl& machine, const SegmentList& list) {
  if (used_ == 0) return {};
  Result* results = results_.reserve(static_cast<std::size_t>(used_));
  runtime::run_job(
      machine, {list.table, ranges_.reserve(0), used_, results, last_partials_},
      arenas_);
  return fold(results, used_);
}

std::uint32_t prefetch_bytes(const Machine::Impl& machine,
                             const SegmentList& list) noexcept {
  const runtime::Tuning& tuning = machine.tuning;
  const bool far = machine.transfer == runtime::Transfer::view &&
                   list.traffic_bytes > tuning.prefetch_traffic_bytes;
  if (!far) return 0;
  const Operation& operation = list.table.operations[0];
  if (operation.stream_count > 1) return tuning.streams_prefetch_bytes;
  const bool only_read = operation.streams[0].access == Access::in;
  return only_read ? tuning.read_prefetch_bytes : tuning.prefetch_bytes;
}

bool stores_past_caches(const Machine::Impl& machine,
                        const SegmentList& list) noexcept {
  return machine.transfer == runtime::Transfer::view &&
         list.traffic_bytes > machine.tuning.past_caches_traffic_bytes;
}

Result fold(const Result* results, int count) noexcept {
  Result all;
  for (int i = 0; i < count; ++i) {
    const Result& one = results[i];
    if (one.flagged_elements == 0) continue;
    all.flagged_elements += one.flagged_elements;
    all.flagged_segments += one.flagged_segments;
    if (all.first_segment == Result::kNone) {
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
