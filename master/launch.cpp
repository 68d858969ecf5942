#include "master/launch.h"

#include <pthread.h>

#include <memory>
#include <new>
#include <string>

#include "master/partition.h"
#include "runtime/fork_cancel.h"
#include "swamp/error.h"

namespace swamp::master {

using runtime::SlaveResult;

namespace {

thread_local Workspace* workspace_of_this_thread = nullptr;

// WorkspaceKey is the POSIX key that deletes a thread's workspace. The key's
// destructor runs after those of all thread-locals, and not at the end of the
// process: the destructors of the caller's own thread-locals and statics may
// still call swamp.
class WorkspaceKey {
 public:
  WorkspaceKey() {
    const int error = pthread_key_create(&key_, [](void* workspace) {
      delete static_cast<Workspace*>(workspace);
      workspace_of_this_thread = nullptr;
    });
    if (error == 0) return;
    throw Error(SWAMP_OUT_OF_MEMORY,
                "pthread_key_create: got error " + std::to_string(error) +
                    ", expected a key that other libraries have not used up");
  }
  ~WorkspaceKey() { pthread_key_delete(key_); }
  WorkspaceKey(const WorkspaceKey&) = delete;
  WorkspaceKey& operator=(const WorkspaceKey&) = delete;

  // Throws std::bad_alloc.
  void keep(std::unique_ptr<Workspace> workspace) const {
    if (pthread_setspecific(key_, workspace.get()) != 0) throw std::bad_alloc();
    workspace_of_this_thread = workspace.release();
  }

 private:
  pthread_key_t key_;
};

}  // namespace

Workspace& Workspace::of_this_thread() {
  if (workspace_of_this_thread == nullptr) {
    static runtime::MadeOnce<WorkspaceKey> key;
    key.get([] { return WorkspaceKey(); }).keep(std::make_unique<Workspace>());
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
  std::byte* const base = segments_.data();
  const Grains grains =
      number_grains(SegmentCounts(list.table, list.grains, list.chunks),
                    [&](std::size_t i, std::size_t first) {
                      reinterpret_cast<Segment*>(base + i * list.table.stride)
                          ->first_grain() = first;
                    });
  last_partials_ = {partials_.reserve(grains.count * partial_bytes),
                    partial_bytes, grains.count, grains.units};
  return launch(machine, list);
}

// make_ranges() fills ranges_ and sets slaves_, to 0 if there is nothing to do,
// and workers_.
void Workspace::make_ranges(const Machine::Impl& machine,
                            const SegmentList& list) {
  slaves_ = 0;
  if (list.traffic_bytes == 0) return;
  // A segment costs the time of this many bytes, in addition to its own.
  constexpr std::uint64_t kSegmentBytes = 64;
  const runtime::Division division = runtime::divide(
      machine, list.traffic_bytes + kSegmentBytes * list.table.count);
  runtime::SlaveRange* ranges =
      ranges_.reserve(static_cast<std::size_t>(division.slaves));
  const SegmentCounts counts(list.table, list.grains, list.chunks);
  // Grains of a list of tensors are small and equal, and its passes should have
  // the same borders between core groups, whatever their number of slaves.
  const bool is_tensors = list.grains.joins_small || list.chunks != nullptr;
  slaves_ = partition(counts, list.traffic_bytes, division.slaves, ranges,
                      is_tensors ? Shares::of_all : Shares::of_rest);
  workers_ = division.workers;
}

SlaveResult Workspace::launch(Machine::Impl& machine, const SegmentList& list) {
  if (slaves_ == 0) return {};
  runtime::Launch launch;
  launch.table = list.table;
  launch.traffic_bytes =
      list.memory_bytes != 0 ? list.memory_bytes : list.traffic_bytes;
  launch.ranges = ranges_.data();
  launch.slaves = slaves_;
  if (workers_ != 0) {
    launch.claims = claims_.reserve(static_cast<std::size_t>(workers_));
  }
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
  const SlaveResult result = workspace.run(
      impl,
      make_segments(impl, lists, operations, false, workspace.segments()));
  workspace.trim();
  return result;
}

}  // namespace swamp::master
