#include "master/launch.h"

#include <pthread.h>

#include "master/partition.h"
#include "runtime/cancel_guard.h"

namespace swamp::master {

using runtime::SlaveResult;

namespace {

thread_local Workspace* workspace_of_this_thread = nullptr;

// Key deletes a thread's workspace through a POSIX key, whose destructors run
// after those of all thread-locals, and not at the end of the process: the
// destructors of the caller's own thread-locals and statics may still call
// swamp.
struct Key {
  pthread_key_t key;
  Key() {
    pthread_key_create(&key, [](void* workspace) {
      delete static_cast<Workspace*>(workspace);
      workspace_of_this_thread = nullptr;
    });
  }
};

}  // namespace

Workspace& Workspace::of_this_thread() {
  if (workspace_of_this_thread == nullptr) {
    static const Key key;
    workspace_of_this_thread = new Workspace;
    pthread_setspecific(key.key, workspace_of_this_thread);
  }
  return *workspace_of_this_thread;
}

SlaveResult Workspace::run(Machine::Impl& machine, const SegmentList& list,
                           std::size_t partial_bytes) {
  const runtime::CancelGuard guard;
  last_partials_ = {};
  make_ranges(machine, list);
  if (partial_bytes != 0) {
    const std::size_t slots =
        list.table.count + static_cast<std::size_t>(slaves_);
    last_partials_ = {partials_.reserve(slots * partial_bytes), partial_bytes,
                      slots};
  }
  return launch(machine, list);
}

SlaveResult Workspace::run_by_grain(Machine::Impl& machine,
                                    const SegmentList& list,
                                    std::size_t partial_bytes) {
  const runtime::CancelGuard guard;
  last_partials_ = {};
  make_ranges(machine, list);
  std::byte* const base = segments_.reserve(0);
  const Grains grains = number_grains(
      SegmentCounts(list.table), [&](std::size_t i, std::size_t first) {
        reinterpret_cast<Segment*>(base + i * list.table.stride)
            ->first_grain() = first;
      });
  last_partials_ = {partials_.reserve(grains.count * partial_bytes),
                    partial_bytes, grains.count, grains.elements};
  return launch(machine, list);
}

// make_ranges() fills ranges_ and sets slaves_, to 0 if there is nothing to do.
void Workspace::make_ranges(const Machine::Impl& machine,
                            const SegmentList& list) {
  slaves_ = 0;
  if (list.traffic_bytes == 0) return;
  const bool alone = list.traffic_bytes < machine.tuning.spawn_traffic_bytes;
  const int slaves = alone ? 1 : machine.slaves();
  runtime::SlaveRange* ranges =
      ranges_.reserve(static_cast<std::size_t>(slaves));
  slaves_ =
      partition(SegmentCounts(list.table), list.traffic_bytes, slaves, ranges);
}

SlaveResult Workspace::launch(Machine::Impl& machine, const SegmentList& list) {
  if (slaves_ == 0) return {};
  runtime::Launch launch;
  launch.table = list.table;
  launch.traffic_bytes = list.traffic_bytes;
  launch.ranges = ranges_.reserve(0);
  launch.slaves = slaves_;
  launch.results = results_.reserve(static_cast<std::size_t>(slaves_));
  launch.partials = last_partials_;
  runtime::run(machine, launch, arenas_);
  return reduce(launch.results, slaves_);
}

SlaveResult reduce(const SlaveResult* results, int count) noexcept {
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

SlaveResult run_operations(const OperandList* lists,
                           const OperationTable& operations, Machine* machine) {
  Machine::Impl& impl = impl_of(machine);
  Workspace& workspace = Workspace::of_this_thread();
  return workspace.run(
      impl, make_segments(lists, operations, false, workspace.segments()));
}

}  // namespace swamp::master
