#include <memory>
#include <string>
#include <utility>

#include "runtime/machine_impl.h"
#include "runtime/predict/counting_backend.h"
#include "swamp/error.h"
#include "swamp/predict.h"

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
  return out;
}

}  // namespace

struct Predictor::Impl {
  Impl(const MachineConfig& config, std::size_t tile_bytes)
      : machine(counting_config(config)) {
    Machine::Impl& impl = machine.impl();
    if (tile_bytes != 0) impl.tuning.tile_bytes = tile_bytes;
    auto backend = std::make_unique<runtime::CountingBackend>(impl.core_groups);
    counter = backend.get();
    impl.backend = std::move(backend);
  }

  Machine machine;
  const runtime::CountingBackend* counter;  // the machine's
};

Predictor::Predictor(const MachineConfig& config, std::size_t tile_bytes)
    : impl_(std::make_unique<Impl>(config, tile_bytes)) {}

Predictor::~Predictor() = default;

Machine& Predictor::machine() noexcept { return impl_->machine; }

Prediction Predictor::prediction() const {
  const runtime::CountingBackend& counter = *impl_->counter;
  Prediction out;
  for (const runtime::CountingBackend::Group& group : counter.groups()) {
    out.groups.push_back({static_cast<std::uint32_t>(group.slaves),
                          public_traffic(group.traffic),
                          seconds(group.cycles.overlapped),
                          seconds(group.cycles.one_after_another)});
  }
  out.operations = counter.launches();
  out.spawns = counter.spawns();
  out.tile_bytes = counter.tile_bytes();
  out.overlapped_seconds = seconds(counter.cycles().overlapped);
  out.serial_seconds = seconds(counter.cycles().one_after_another);
  return out;
}

}  // namespace swamp
