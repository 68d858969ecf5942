// The cost model of a Sunway machine. A launch runs the real tile loop of every
// slave with a DMA that counts transfers instead of making them, and kernels
// that do nothing; the time follows from the counts
// (runtime/predict/cost_model.h).
#include "runtime/predict/predictor.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <utility>

#include "runtime/machine_impl.h"
#include "runtime/ldm_layout.h"
#include "runtime/tile_loop.h"
#include "swamp/predict.h"

namespace swamp::runtime {
namespace {

// RowGets are the gets of the slaves of one row, which have the same data once
// by DMA: the n-th get of an address by any of them. The others receive the
// broadcast of the first.
class RowGets {
 public:
  // is_first() records a get and returns whether the data come by DMA. Slaves
  // must be counted one after another.
  bool is_first(int slave, const void* address, std::size_t bytes) {
    Get& get = gets_[{address, bytes}];
    if (get.slave != slave) get = {slave, 0, get.all};
    if (++get.own <= get.all) return false;
    get.all = get.own;
    return true;
  }
  void clear() { gets_.clear(); }

 private:
  struct Get {
    int slave = -1;
    std::uint32_t own = 0, all = 0;
  };
  std::map<std::pair<const void*, std::size_t>, Get> gets_;
};

// CountingDma transfers only what the tile loop or, after the join, the master
// reads: segments, operations, arguments, partial results. All other addresses
// are those of operands, which need not exist.
class CountingDma {
 public:
  // `row` is null without broadcasts.
  CountingDma(const Launch& launch, int slave, RowGets* row,
              predict::Traffic& traffic) noexcept
      : slave_(slave),
        row_(row),
        table_(launch.table),
        segments_{launch.table.base, launch.table.count * launch.table.stride},
        partials_{launch.partials.base,
                  launch.partials.slots * launch.partials.bytes},
        traffic_(traffic) {}

  void get(void* ldm, const void* main, const Lines& lines, Reply* reply) {
    const std::size_t bytes = lines.all_bytes();
    if (is_operation(main)) {
      // Its address on the caller's stack varies. Counted as aligned to a line,
      // so that every run counts the same.
      traffic_.get(bytes, predict::lines_of(std::uint64_t{0}, bytes));
      std::memcpy(ldm, main, bytes);
    } else if (segments_.contains(main)) {
      traffic_.get(bytes, predict::lines_of(main, bytes));
      std::memcpy(ldm, main, bytes);
    } else if (row_ == nullptr || row_->is_first(slave_, main, bytes)) {
      traffic_.get(bytes, memory_lines(main, lines));
    } else {
      traffic_.receive(bytes);
    }
    ++*reply;
  }
  void put(void* main, const void* ldm, const Lines& lines,
           Reply* reply) noexcept {
    traffic_.put(lines.all_bytes(), memory_lines(main, lines));
    if (partials_.contains(main)) std::memcpy(main, ldm, lines.bytes);
    ++*reply;
  }
  void wait(const Reply*, Reply) noexcept {}
  void load(void*, const void*, std::size_t bytes) noexcept {
    traffic_.load(bytes);
  }
  void store(void*, const void*, std::size_t bytes,
             const OperandPart&) noexcept {
    traffic_.store(bytes);
  }

 private:
  struct Range {
    const std::byte* begin;
    std::size_t bytes;
    bool contains(const void* address) const noexcept {
      return reinterpret_cast<std::uintptr_t>(address) -
                 reinterpret_cast<std::uintptr_t>(begin) <
             bytes;
    }
  };
  // memory_lines() counts the lines of memory that a transfer touches.
  static predict::Lines memory_lines(const void* main,
                                     const Lines& lines) noexcept {
    predict::Lines all;
    for (std::size_t i = 0; i < lines.count; ++i) {
      all.add(predict::lines_of(
          static_cast<const std::byte*>(main) + i * lines.step, lines.bytes));
    }
    return all;
  }
  // is_operation() returns whether an operation or its arguments begin there.
  bool is_operation(const void* address) const noexcept {
    for (std::size_t i = 0; i < table_.operation_count; ++i) {
      const Operation& operation = table_.operations[i];
      if (address == &operation || address == operation.args) return true;
    }
    return false;
  }

  const int slave_;
  RowGets* const row_;
  const SegmentTable& table_;
  Range segments_;
  Range partials_;
  predict::Traffic& traffic_;
};

constexpr KernelFunction kDoNothing = [](const void*, const Tile&, Result&) {};

// idle_kernels() is a kernel table for the launch in which every kernel does
// nothing.
std::vector<KernelRow> idle_kernels(const Launch& launch) {
  KernelId last = 0;
  for (std::size_t i = 0; i < launch.table.operation_count; ++i) {
    last = std::max(last, launch.table.operations[i].kernel);
  }
  return std::vector<KernelRow>(std::size_t{last} + 1, {"idle", &kDoNothing});
}

// flops_of_range() is the number of floating-point operations of a slave.
double flops_of_range(const SegmentTable& table, const SlaveRange& range) {
  double flops = 0;
  for (std::size_t i = range.begin_segment;
       i <= range.end_segment && i < table.count; ++i) {
    const Segment& segment = table[i];
    const std::size_t end =
        i == range.end_segment ? range.end_unit : segment.count;
    const std::size_t begin = i == range.begin_segment ? range.begin_unit : 0;
    if (begin >= end) continue;
    flops += static_cast<double>(end - begin) *
             flops_of(segment.operation->kernel, segment.operation->args);
  }
  return flops;
}

}  // namespace

void CountingBackend::record_tiles(const Launch& launch) {
  for (std::size_t i = 0; i < launch.table.operation_count; ++i) {
    if (!launch.table.is_used(i)) continue;
    const Operation& operation = launch.table.operations[i];
    tile_bytes_ = std::max(
        tile_bytes_, LdmLayout::make(operation, launch.limits).tile_bytes);
  }
}

void CountingBackend::run(const Launch& launch) {
  const std::vector<KernelRow> kernels = idle_kernels(launch);
  std::vector<predict::GroupTraffic> traffic(groups_.size());
  std::vector<std::uint64_t> slaves(groups_.size());
  RowGets row;
  for (int slave = 0; slave < launch.slaves; ++slave) {
    SlaveResult& result = launch.results[slave];
    result = SlaveResult{};
    Ldm ldm = launch.arenas->arena(0, launch.limits.ldm_bytes);
    predict::Traffic own;
    if (slave % kSlavesOfRow == 0) row.clear();
    CountingDma dma(launch, slave, broadcast_ ? &row : nullptr, own);
    TileLoop<CountingDma>(launch, slave, launch.ranges[slave], kernels.data(),
                          ldm, dma, result)
        .run();
    const auto group =
        static_cast<std::size_t>(slave / launch.slaves_per_group);
    predict::GroupTraffic& all = traffic[group];
    all.add(own);
    all.most_flops = std::max(
        all.most_flops, flops_of_range(launch.table, launch.ranges[slave]));
    ++slaves[group];
  }
  predict::Cycles slowest;
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    const predict::Cycles cycles = predict::cycles_of(traffic[i]);
    groups_[i].traffic.add(traffic[i].all);
    groups_[i].slaves = std::max(groups_[i].slaves, slaves[i]);
    groups_[i].cycles.add(cycles);
    slowest.raise(cycles);
  }
  cycles_.add(slowest);
  ++launches_;
  if (launch.slaves > 1) ++spawns_;
  record_tiles(launch);
}

}  // namespace swamp::runtime

namespace swamp {
namespace {

constexpr double seconds(double cycles) { return cycles / predict::kHertz; }

MachineConfig counting_config(MachineConfig config) {
  if (config.machine.empty()) config.machine = "sw26010pro";
  config.backend = "serial";
  config.transfer = "copy";
  config.bind = "none";
  return config;
}

PredictedTraffic public_traffic(const predict::Traffic& traffic) {
  PredictedTraffic out;
  out.get_requests = traffic.get_requests;
  out.get_bytes = traffic.get_bytes;
  out.get_lines = traffic.lines_read;
  out.put_requests = traffic.put_requests;
  out.put_bytes = traffic.put_bytes;
  out.put_whole_lines = traffic.lines_full;
  out.put_partial_lines = traffic.lines_partial;
  out.direct_loads = traffic.direct_loads;
  out.direct_stores = traffic.direct_stores;
  out.rma_requests = traffic.rma_requests;
  out.rma_bytes = traffic.rma_bytes;
  return out;
}

PredictedTime predicted_time(const predict::Cycles& cycles) {
  return {seconds(cycles.overlapped), seconds(cycles.one_after_another),
          seconds(cycles.rma),        seconds(cycles.ldm),
          seconds(cycles.arithmetic), seconds(cycles.total)};
}

}  // namespace

struct Predictor::Impl {
  Impl(const MachineConfig& config, std::size_t tile_bytes, bool broadcast)
      : machine(counting_config(config)) {
    Machine::Impl& impl = machine.impl();
    if (tile_bytes != 0) impl.tuning.tile_bytes = tile_bytes;
    auto backend =
        std::make_unique<runtime::CountingBackend>(impl.core_groups, broadcast);
    counter = backend.get();
    impl.backend = std::move(backend);
  }

  Machine machine;
  const runtime::CountingBackend* counter;  // the machine's
};

Predictor::Predictor(const MachineConfig& config, std::size_t tile_bytes,
                     bool broadcast)
    : impl_(std::make_unique<Impl>(config, tile_bytes, broadcast)) {}

Predictor::~Predictor() = default;

Machine& Predictor::machine() noexcept { return impl_->machine; }

Prediction Predictor::prediction() const {
  const runtime::CountingBackend& counter = *impl_->counter;
  Prediction out;
  static_cast<PredictedTime&>(out) = predicted_time(counter.cycles());
  for (const runtime::CountingBackend::Group& group : counter.groups()) {
    out.groups.push_back({predicted_time(group.cycles),
                          static_cast<std::uint32_t>(group.slaves),
                          public_traffic(group.traffic)});
  }
  out.operations = counter.launches();
  out.spawns = counter.spawns();
  out.tile_bytes = counter.tile_bytes();
  return out;
}

}  // namespace swamp
