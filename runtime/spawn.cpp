#include "runtime/spawn.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>

#include "runtime/check/main_window.h"
#include "runtime/dma.h"
#include "runtime/float_environment.h"
#include "runtime/predict/job_counter.h"
#include "runtime/tile_loop.h"
#include "swamp/error.h"

namespace swamp::runtime {

void run_view(const SlavePart& part, const KernelRow* kernels,
              const MemoryHints& hints) noexcept {
  const SegmentTable& table = part.table;
  const SlaveRange& range = part.range;
  const Partials& partials = part.partials;
  std::size_t begin = range.begin_element;
  std::byte* last_slot = nullptr;
  void* operands[kMaxOperands];
  Tile tile;
  tile.operands = operands;
  tile.grain_elements = partials.grain_elements;
  tile.prefetch_bytes = hints.prefetch_bytes;
  tile.non_temporal = hints.non_temporal;
  const auto run = [&](std::size_t i, std::size_t end) {
    const Segment& segment = table[i];
    const Operation& operation = *segment.operation;
    if (begin < end) {
      if (partials.bytes != 0) {
        const Partials::Place place = partials.place(
            segment, operation.operand_count, i, part.slave, begin);
        // One slot, or those of all grains up to `end`.
        std::size_t slots = 1;
        if (place.end < end) {
          slots += (end - place.end - 1) / partials.grain_elements + 1;
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
            segment.data()[s] + begin * operation.operands[s].element_bytes;
      }
      tile.count = end - begin;
      tile.first = begin;
      Result result;
      kernels[operation.kernel].function(operation.args, tile, result);
      part.result.add(i, result);
    }
    begin = 0;
  };
  // Small tensors may lie anywhere: with several operands, prefetching their
  // first lines kAhead segments early gained 10 to 20 % of an Adam step of 16
  // elements. With one operand it cost as much as it gained.
  constexpr std::size_t kAhead = 4;
  const int operand_count =
      table.count != 0 ? table.operations->operand_count : 0;
  const std::size_t last = operand_count > 1 && range.end_segment > kAhead
                               ? range.end_segment - kAhead
                               : 0;
  for (std::size_t i = range.begin_segment; i < range.end_segment; ++i) {
    if (i < last) {
      const Segment& next = table[i + kAhead];
      for (int s = 0; s < operand_count; ++s)
        __builtin_prefetch(next.data()[s]);
    }
    run(i, table[i].count);
  }
  if (range.end_element != 0) run(range.end_segment, range.end_element);
}

namespace {

// Spawned is what the workers of one spawn share.
struct Spawned {
  const Machine::Impl* machine;
  const Job* job;
  const LdmArenas* arenas;
  const MainWindow* window;
  std::uint64_t float_environment;
  MemoryHints hints;  // of view mode
};

// A function each: the compiler then makes of the one what it would make of it
// alone.
[[gnu::noinline]] void run_copy(const Machine::Impl& machine, const Job& job,
                                int slave, Ldm& ldm) noexcept {
  EagerDma dma;
  TileLoop<EagerDma>(part_of(job, slave), machine.kernels->rows,
                     machine.tuning.tile_bytes, ldm, dma)
      .run();
}

[[gnu::noinline]] void run_check(const Machine::Impl& machine, const Job& job,
                                 int slave, Ldm& ldm,
                                 const MainWindow& window) noexcept {
  std::memset(ldm.base(), 0xff, ldm.bytes());  // nothing left of the last slave
  const auto group_slaves = static_cast<int>(machine.slaves_per_group);
  DeferredDma dma(ldm, window, slave / group_slaves, slave % group_slaves);
  TileLoop<DeferredDma>(part_of(job, slave), machine.kernels->rows,
                        machine.tuning.tile_bytes, ldm, dma)
      .run();
}

void run_slave(const Spawned& spawned, int slave, int worker) noexcept {
  const Machine::Impl& machine = *spawned.machine;
  const Job& job = *spawned.job;
  const SlavePart part = part_of(job, slave);
  part.result = SlaveResult{};
  if (machine.transfer == Transfer::view) {
    run_view(part, machine.kernels->rows, spawned.hints);
    return;
  }
  Ldm ldm = spawned.arenas->arena(worker, machine.ldm_bytes);
  if (machine.transfer == Transfer::copy) {
    run_copy(machine, job, slave, ldm);
  } else {
    run_check(machine, job, slave, ldm, *spawned.window);
  }
}

void run_worker(void* context, int slave_begin, int slave_end,
                int worker) noexcept {
  const auto& spawned = *static_cast<const Spawned*>(context);
  const FloatEnvironmentScope scope(spawned.float_environment);
  for (int slave = slave_begin; slave < slave_end; ++slave) {
    run_slave(spawned, slave, worker);
  }
}

// require_ldm() returns what of a slave's LDM the job uses.
std::size_t require_ldm(const Machine::Impl& machine, const Job& job) {
  const std::size_t available =
      std::min(machine.ldm_bytes, machine.backend->ldm_limit());
  const SegmentTable& table = job.table;
  std::size_t used = 0;
  for (std::size_t i = 0; i < table.operation_count; ++i) {
    if ((table.operations_used >> i & 1u) == 0) continue;
    const Operation& operation = table.operations[i];
    const LdmLayout layout = LdmLayout::make(
        operation, available, machine.tuning.tile_bytes, job.partials.bytes);
    used = std::max(used, layout.bytes_used);
    if (layout.fits()) continue;
    throw Error(SWAMP_INVALID_ARGUMENT,
                std::string("kernel ") +
                    machine.kernels->rows[operation.kernel].name +
                    " asks for " + std::to_string(layout.bytes_needed) +
                    " bytes of LDM; a slave has " + std::to_string(available) +
                    " (SWAMP_LDM_BYTES)");
  }
  return used;
}

void require_no_overlap(const MainWindow& window) {
  const MainWindow::Overlap& overlap = window.overlap();
  if (!overlap.found) return;
  throw Error(SWAMP_INVALID_ARGUMENT,
              "arrays " + std::to_string(overlap.first) + " and " +
                  std::to_string(overlap.second) +
                  " of the list overlap; expected arrays that share no byte "
                  "(found by transfer mode check)");
}

}  // namespace

void run_job(Machine::Impl& machine, const Job& job, LdmArenas& arenas) {
  std::optional<MainWindow> window;
  std::size_t ldm_bytes = 0;
  if (machine.transfer != Transfer::view) {
    ldm_bytes = require_ldm(machine, job);
    const int workers = job.slaves == 1 ? 1 : machine.backend->worker_count();
    arenas.reserve(workers, machine.ldm_bytes);
    if (machine.job_counter != nullptr) {
      machine.job_counter->count(machine, job, arenas);
      return;
    }
    if (machine.transfer == Transfer::check) {
      try {
        window.emplace(job.table, job.partials.base,
                       job.partials.slots * job.partials.bytes);
      } catch (const std::bad_alloc&) {
        throw Error(
            SWAMP_OUT_OF_MEMORY,
            "cannot allocate the ranges that transfer mode check needs");
      }
      require_no_overlap(*window);
    }
  }
  const std::uint64_t environment = read_float_environment();
  Spawned spawned{&machine,    &job, &arenas, window ? &*window : nullptr,
                  environment, {}};
  if (machine.transfer == Transfer::view && job.table.operation_count != 0) {
    spawned.hints =
        view_hints(machine.tuning, job.table.operations[0], job.traffic_bytes);
  }
  if (job.slaves == 1) {
    run_worker(&spawned, 0, 1, 0);
  } else {
    machine.backend->run_job(
        {job, ldm_bytes, machine.tuning.tile_bytes, environment}, &run_worker,
        &spawned);
  }
}

}  // namespace swamp::runtime
