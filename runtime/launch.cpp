// Runs a launch in the transfer mode of the machine. In mode `view` a slave's
// part of a segment is one tile in main memory, and no LDM is used: that loop
// is here. The loop through LDM, of the other modes, is in tile_loop.h.
#include "runtime/launch.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <mutex>
#include <optional>
#include <string>

#include "runtime/dma.h"
#include "runtime/float_environment.h"
#include "runtime/fork_cancel.h"
#include "runtime/ldm_layout.h"
#include "runtime/machine_impl.h"
#include "runtime/memory_check.h"
#include "runtime/tile_loop.h"
#include "swamp/error.h"

namespace swamp::runtime {
namespace {

// Larger partial results are in the caches for their own units only, so that
// each is zeroed just before them.
constexpr std::size_t kLargePartial = 1024;

// run_view() is the tile loop of transfer mode `view`: the host's caches are
// the scratchpad, a get is a pointer into main memory, a put is nothing, and a
// tile is all of a segment that belongs to this slave. `scratch` has
// launch.limits.scratch_bytes.
void run_view(const Launch& launch, int slave, std::byte* scratch) noexcept {
  // Local copies, so that the compiler knows that kernels do not change them.
  const SegmentTable table = launch.table;
  const SlaveRange range = launch.ranges[slave];
  const Partials partials = launch.partials;
  const KernelRow* const kernels = launch.kernels;
  SlaveResult& slave_result = launch.results[slave];
  std::size_t begin = range.begin_unit;
  std::byte* last_slot = nullptr;
  void* operands[kMaxOperands];
  Tile tile;
  tile.operands = operands;
  tile.state = scratch;
  tile.grain_units = partials.grain_units;
  tile.prefetch_bytes = launch.hints.prefetch_bytes;
  tile.non_temporal = launch.hints.non_temporal;
  const Operation* last_operation = nullptr;
  KernelFunction function = nullptr;  // of last_operation
  const auto run = [&](std::size_t i, std::size_t end) {
    const Segment& segment = table[i];
    const Operation& operation = *segment.operation;
    while (begin < end) {
      std::size_t until = end;
      if (partials.bytes != 0) {
        const Partials::Place place =
            partials.place(segment, operation.operand_count, i, slave, begin);
        if (partials.bytes > kLargePartial) until = std::min(end, place.end);
        // One slot, or the slots of all grains up to `until`.
        std::size_t slots = 1;
        if (place.end < until) {
          slots += (until - place.end - 1) / partials.grain_units + 1;
        }
        std::byte* slot = place.slot;
        std::byte* const next = slot + slots * partials.bytes;
        if (slot == last_slot) slot += partials.bytes;
        std::memset(slot, 0, static_cast<std::size_t>(next - slot));
        tile.partial = place.slot;
        last_slot = next - partials.bytes;
      }
      for (int s = 0; s < operation.operand_count; ++s) {
        operands[s] =
            segment.data()[s] + begin * operation.operands[s].unit_step;
      }
      tile.count = until - begin;
      tile.first = begin;
      if (&operation != last_operation) {
        last_operation = &operation;
        function = *kernels[operation.kernel].function;
        tile.layout = operation.operands;
        tile.scratch = LdmLayout::scratch_at(operation, scratch);
      }
      Result result;
      function(operation.args, tile, result);
      slave_result.add(i, result);
      begin = until;
    }
    begin = 0;
  };
  // Small tensors may lie anywhere. Prefetching their first lines kAhead
  // segments early made an Adam step of 16 elements 10 to 20 % faster; with one
  // operand it cost as much as it gained.
  constexpr std::size_t kAhead = 4;
  const int operand_count =
      table.count != 0 ? table.operations->operand_count : 0;
  const std::size_t last = operand_count > 1 && range.end_segment > kAhead
                               ? range.end_segment - kAhead
                               : 0;
  for (std::size_t i = range.begin_segment; i < range.end_segment; ++i) {
    if (i < last) {
      const Segment& next = table[i + kAhead];
      for (int s = 0; s < operand_count; ++s) {
        __builtin_prefetch(next.data()[s]);
      }
    }
    run(i, table[i].count);
  }
  if (range.end_unit != 0) run(range.end_segment, range.end_unit);
}

void view_slave(const Launch& launch, int slave, int worker) noexcept {
  launch.results[slave] = SlaveResult{};
  std::byte* scratch = nullptr;
  if (launch.limits.scratch_bytes != 0) {
    scratch = launch.arenas->arena(worker, launch.limits.scratch_bytes).base();
  }
  run_view(launch, slave, scratch);
}

template <class Dma>
void run_tile_loop(const Launch& launch, int slave, Ldm& ldm, Dma& dma) {
  launch.results[slave] = SlaveResult{};
  TileLoop<Dma>(launch, slave, launch.ranges[slave], launch.kernels, ldm, dma,
                launch.results[slave])
      .run();
}

void copy_slave(const Launch& launch, int slave, int worker) noexcept {
  Ldm ldm = launch.arenas->arena(worker, launch.limits.ldm_bytes);
  CopyDma dma;
  run_tile_loop(launch, slave, ldm, dma);
}

void check_slave(const Launch& launch, int slave, int worker) noexcept {
  Ldm ldm = launch.arenas->arena(worker, launch.limits.ldm_bytes);
  std::memset(ldm.base(), 0xff, ldm.bytes());  // poison the previous contents
  CheckedDma dma(ldm, *launch.window, slave / launch.slaves_per_group,
                 slave % launch.slaves_per_group);
  run_tile_loop(launch, slave, ldm, dma);
}

// By Transfer.
constexpr SlaveFunction kSlaveFunctions[] = {&view_slave, &copy_slave,
                                             &check_slave};

// scratch_bytes() returns the most that an operation of the launch needs.
std::size_t scratch_bytes(const SegmentTable& table) noexcept {
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < table.operation_count; ++i) {
    if (!table.is_used(i)) continue;
    bytes = std::max(bytes, LdmLayout::scratch_bytes(table.operations[i]));
  }
  return bytes;
}

// set_pieces() changes the limits of a launch if the rows of an operation are
// too long for LDM and can come in pieces.
void set_pieces(Launch& launch) noexcept {
  const LdmLimits whole = launch.limits;
  for (std::size_t i = 0; i < launch.table.operation_count; ++i) {
    if (!launch.table.is_used(i)) continue;
    launch.limits = LdmLayout::limits_of(launch.table.operations[i], whole);
    if (launch.limits.group_rows != 0) return;
  }
}

// require_ldm() returns how much of a slave's LDM the launch uses.
std::size_t require_ldm(const Machine::Impl& machine, const Launch& launch) {
  const SegmentTable& table = launch.table;
  std::size_t used = 0;
  for (std::size_t i = 0; i < table.operation_count; ++i) {
    if (!table.is_used(i)) continue;
    const Operation& operation = table.operations[i];
    const LdmLayout layout = LdmLayout::make(operation, launch.limits);
    used = std::max(used, layout.bytes_used);
    if (layout.fits()) continue;
    throw Error(
        SWAMP_UNSUPPORTED,
        "SWAMP_LDM_BYTES: got " + std::to_string(launch.limits.ldm_bytes) +
            ", expected at least " + std::to_string(layout.bytes_needed) +
            " for kernel " + machine.kernels->rows[operation.kernel].name);
  }
  return used;
}

void make_window(std::optional<MainWindow>& window, const Launch& launch) {
  try {
    window.emplace(launch.table, launch.partials.base,
                   launch.partials.slots * launch.partials.bytes);
  } catch (const std::bad_alloc&) {
    throw Error(SWAMP_OUT_OF_MEMORY,
                "cannot allocate the ranges that transfer mode check needs");
  }
  const MainWindow::Overlap& overlap = window->overlap();
  if (!overlap.found) return;
  throw Error(
      SWAMP_INVALID_ARGUMENT,
      "list: got overlapping arrays " + std::to_string(overlap.first) +
          " and " + std::to_string(overlap.second) +
          ", expected arrays that share no byte (found by transfer mode "
          "check)");
}

}  // namespace

std::size_t usable_ldm(const Machine::Impl& machine) noexcept {
  if (machine.transfer == Transfer::view) return ~std::size_t{0};
  return std::min(machine.ldm_bytes, machine.backend->ldm_limit());
}

LdmNeed ldm_need(const Machine::Impl& machine, const Operation& operation,
                 std::size_t partial_bytes) noexcept {
  if (machine.transfer == Transfer::view) return {};
  const std::size_t ldm_bytes = usable_ldm(machine);
  const LdmLimits limits = LdmLayout::limits_of(
      operation, {ldm_bytes, machine.tuning.tile_bytes, partial_bytes,
                  LdmLayout::scratch_bytes(operation)});
  return {LdmLayout::make(operation, limits).bytes_needed, ldm_bytes};
}

Division divide(const Machine::Impl& machine,
                std::uint64_t traffic_bytes) noexcept {
  const Tuning& tuning = machine.tuning;
  const double alone = static_cast<double>(traffic_bytes);
  if (alone < tuning.spawn.bytes) return {1, 0};  // the usual small list
  const int workers = machine.backend->worker_count();
  // Slaves that are no threads of the host are the simulated machine's.
  const int team = workers > 1 ? workers : machine.slaves();
  if (alone < alone / std::min(team, machine.slaves()) + tuning.spawn.bytes +
                  team * tuning.spawn.thread_bytes) {
    return {1, 0};
  }
  Division division{machine.slaves(), 0};
  if (workers > 1 && machine.backend->has_claims() &&
      traffic_bytes / static_cast<unsigned>(workers) >=
          tuning.claim_traffic_bytes) {
    division.workers = workers;
    // In the other modes a slave is one of the simulated machine.
    if (machine.transfer == Transfer::view) {
      division.slaves =
          std::max(division.slaves, tuning.claimed_parts * workers);
    }
  }
  return division;
}

void run_slaves(const Launch& launch, int begin, int end, int worker) noexcept {
  const FloatEnvironmentScope scope(launch.float_environment);
  for (int slave = begin; slave < end; ++slave) {
    launch.run_slave(launch, slave, worker);
  }
}

void run_parts(Machine::Impl& machine, std::size_t count,
               std::uint64_t traffic_bytes, PartFunction part,
               const void* context) {
  const auto slaves = static_cast<std::size_t>(std::min(
      divide(machine, count * traffic_bytes).slaves, machine.slaves()));
  const std::size_t parts = std::min(count, slaves);
  if (parts <= 1 || machine.backend->worker_count() == 1) {
    return part(context, 0, count);
  }
  struct Parts {
    PartFunction part;
    const void* context;
    std::size_t count;
    std::mutex mutex;  // of the following
    int failed;
    std::exception_ptr error;
  } all{part, context, count, {}, static_cast<int>(parts), {}};
  const CancelGuard guard;
  Launch launch;
  launch.slaves = static_cast<int>(parts);
  launch.context = &all;
  launch.float_environment = read_float_environment();
  launch.run_slave = [](const Launch& of, int i, int) noexcept {
    auto& those = *static_cast<Parts*>(of.context);
    const auto edge = [&](int at) {
      return those.count * static_cast<std::size_t>(at) /
             static_cast<std::size_t>(of.slaves);
    };
    try {
      those.part(those.context, edge(i), edge(i + 1));
    } catch (...) {
      const std::lock_guard<std::mutex> lock(those.mutex);
      if (i > those.failed) return;
      those.failed = i;
      those.error = std::current_exception();
    }
  };
  machine.backend->run(launch);
  if (all.error) std::rethrow_exception(all.error);
}

void run(Machine::Impl& machine, Launch& launch, LdmArenas& arenas) {
  launch.slaves_per_group = static_cast<int>(machine.slaves_per_group);
  launch.kernels = machine.kernels->rows;
  launch.arenas = &arenas;
  launch.run_slave =
      kSlaveFunctions[static_cast<std::size_t>(machine.transfer)];
  launch.float_environment = read_float_environment();
  launch.limits.scratch_bytes = scratch_bytes(launch.table);
  const int workers = launch.slaves == 1 ? 1 : machine.backend->worker_count();
  std::optional<MainWindow> window;
  if (machine.transfer == Transfer::view) {
    if (launch.table.count != 0) {
      launch.hints = view_hints(machine.tuning, launch);
    }
    if (launch.limits.scratch_bytes != 0) {
      arenas.reserve(workers, launch.limits.scratch_bytes);
    }
  } else {
    launch.limits.ldm_bytes = usable_ldm(machine);
    launch.limits.tile_bytes = machine.tuning.tile_bytes;
    launch.limits.partial_bytes = launch.partials.bytes;
    set_pieces(launch);
    launch.ldm_used_bytes = require_ldm(machine, launch);
    arenas.reserve(workers, launch.limits.ldm_bytes);
    if (machine.transfer == Transfer::check) {
      make_window(window, launch);
      launch.window = &*window;
    }
  }
  machine.backend->run(launch);
}

}  // namespace swamp::runtime
