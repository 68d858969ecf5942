#include "runtime/predict/job_counter.h"

#include <algorithm>

#include "runtime/predict/counting_dma.h"
#include "runtime/tile_loop.h"

namespace swamp::runtime {
namespace {

void do_nothing(const void*, const Tile&, Result&) {}

// idle_kernels() is a table in which every kernel of the job does nothing.
std::vector<KernelRow> idle_kernels(const Job& job) {
  KernelId last = 0;
  for (std::size_t i = 0; i < job.table.operation_count; ++i) {
    last = std::max(last, job.table.operations[i].kernel);
  }
  return std::vector<KernelRow>(std::size_t{last} + 1, {"idle", &do_nothing});
}

void add(predict::Cycles& all, const predict::Cycles& more) noexcept {
  all.overlapped += more.overlapped;
  all.one_after_another += more.one_after_another;
}

}  // namespace

void JobCounter::note_tiles(const Machine::Impl& machine, const Job& job) {
  for (std::size_t i = 0; i < job.table.operation_count; ++i) {
    if ((job.table.operations_used >> i & 1u) == 0) continue;
    const Operation& operation = job.table.operations[i];
    std::size_t widest = 0;
    for (int s = 0; s < operation.operand_count; ++s) {
      widest =
          std::max<std::size_t>(widest, operation.operands[s].element_bytes);
    }
    const LdmLayout layout =
        LdmLayout::make(operation, machine.ldm_bytes, machine.tuning.tile_bytes,
                        job.partials.bytes);
    tile_bytes_ = std::max(tile_bytes_, layout.tile_elements * widest);
  }
}

void JobCounter::count(const Machine::Impl& machine, const Job& job,
                       LdmArenas& arenas) {
  const std::vector<KernelRow> kernels = idle_kernels(job);
  std::vector<predict::GroupTraffic> traffic(groups_.size());
  std::vector<std::uint64_t> slaves(groups_.size());
  for (int slave = 0; slave < job.slaves; ++slave) {
    job.results[slave] = SlaveResult{};
    Ldm ldm = arenas.arena(0, machine.ldm_bytes);
    predict::Traffic own;
    CountingDma dma(job, own);
    TileLoop<CountingDma>(part_of(job, slave), kernels.data(),
                          machine.tuning.tile_bytes, ldm, dma)
        .run();
    const std::size_t group =
        static_cast<std::size_t>(slave) / machine.slaves_per_group;
    traffic[group].add(own);
    ++slaves[group];
  }
  predict::Cycles slowest;
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    const predict::Cycles cycles = predict::cycles_of(traffic[i]);
    groups_[i].traffic.add(traffic[i].all);
    groups_[i].slaves = std::max(groups_[i].slaves, slaves[i]);
    add(groups_[i].cycles, cycles);
    slowest.overlapped = std::max(slowest.overlapped, cycles.overlapped);
    slowest.one_after_another =
        std::max(slowest.one_after_another, cycles.one_after_another);
  }
  add(cycles_, slowest);
  ++jobs_;
  if (job.slaves > 1) ++spawns_;
  note_tiles(machine, job);
}

}  // namespace swamp::runtime
