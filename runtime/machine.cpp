#include "swamp/machine.h"

#include <atomic>
#include <fstream>
#include <mutex>

#include "runtime/backend.h"
#include "runtime/fork_cancel.h"
#include "runtime/machine_impl.h"

namespace swamp {
namespace {

// cpu_model() is Linux's name of the CPU.
std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("model name", 0) != 0) continue;
    const std::size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

}  // namespace

Machine::Machine(const MachineConfig& config)
    : impl_(std::make_unique<Impl>()) {
  const runtime::CancelGuard guard;
  {
    const std::lock_guard<std::mutex> lock(runtime::fork_mutexes().topology);
    runtime::configure(config, *impl_);
  }
  impl_->backend = impl_->backend_row->make(
      {impl_->slaves(), impl_->bind, &impl_->topology});
}

Machine::~Machine() {
  const runtime::CancelGuard guard;
  impl_.reset();
}

MachineInfo Machine::info() const {
  MachineInfo info;
  info.chosen.machine = impl_->name;
  info.chosen.backend = impl_->backend_row->name;
  info.transfers = runtime::transfer_names();
  info.chosen.transfer =
      info.transfers[static_cast<std::size_t>(impl_->transfer)];
  info.chosen.core_groups = impl_->core_groups;
  info.chosen.slaves_per_group = impl_->slaves_per_group;
  info.chosen.ldm_bytes = impl_->ldm_bytes;
  info.chosen.isa = impl_->kernels->isa;
  info.binds = runtime::bind_names();
  info.chosen.bind = info.binds[impl_->bind ? 1 : 0];
  info.cpu = cpu_model();
  info.cores = impl_->topology.cores();
  info.threads = static_cast<std::uint32_t>(impl_->backend->worker_count());
  info.topology = impl_->topology.source;
  info.machines = runtime::machine_names();
  info.backends = runtime::backend_names();
  info.isas = runtime::isa_names();
  return info;
}

Machine& Machine::default_machine() {
  // Never destroyed: other threads, and destructors of the caller's statics,
  // may still use it while the process exits.
  static std::atomic<Machine*> machine{nullptr};
  Machine* made = machine.load(std::memory_order_acquire);
  if (made == nullptr) {
    const std::lock_guard<std::mutex> lock(
        runtime::fork_mutexes().default_machine);
    made = machine.load(std::memory_order_relaxed);
    if (made == nullptr) {
      made = new Machine();
      machine.store(made, std::memory_order_release);
    }
  }
  return *made;
}

}  // namespace swamp
