// A machine inside libswamp: what it is made of, configured by config.cpp, and
// how it runs a launch.
#ifndef SWAMP_RUNTIME_MACHINE_IMPL_H_
#define SWAMP_RUNTIME_MACHINE_IMPL_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/backend.h"
#include "runtime/topology.h"
#include "runtime/tuning.h"
#include "slave/kernel.h"
#include "swamp/machine.h"

namespace swamp {

namespace runtime {
enum class Transfer : std::uint8_t { view, copy, check };
}  // namespace runtime

// Machine::Impl is constant once made, except that tests and benches may change
// `tuning`.
struct Machine::Impl {
  std::string name;
  std::uint32_t core_groups = 1;
  std::uint32_t slaves_per_group = 1;
  std::size_t ldm_bytes = 0;
  runtime::Transfer transfer = runtime::Transfer::view;
  bool bind = false;
  const KernelTable* kernels = nullptr;
  runtime::Topology topology;
  runtime::Tuning tuning;
  const runtime::BackendRow* backend_row = nullptr;
  std::unique_ptr<runtime::Backend> backend;  // last: its threads use the rest

  int slaves() const noexcept {
    return static_cast<int>(core_groups * slaves_per_group);
  }
};

namespace runtime {

// configure() sets `impl`, all but the backend itself, from `config`, the
// environment, the machine's row and the defaults, in this order. Throws Error
// that names the source, the value and the accepted values.
void configure(const MachineConfig& config, Machine::Impl& impl);

// What the fields of MachineConfig accept in this build on this CPU.
std::vector<std::string> machine_names();
std::vector<std::string> backend_names();
std::vector<std::string> transfer_names();
std::vector<std::string> isa_names();
std::vector<std::string> bind_names();

// run() performs a launch, whose first part the caller has set: spawn, tile
// loop, join. `arenas` are the calling thread's. Throws Error before the first
// slave starts if a kernel needs more LDM than there is, or if memory runs out.
void run(Machine::Impl& machine, Launch& launch, LdmArenas& arenas);

// Division is how a launch is divided.
struct Division {
  int slaves;   // at most
  int workers;  // that claim slaves; 0: none
};
// divide() returns the division of a launch of `traffic_bytes`: the master
// alone, all slaves of the machine, or more, which threads claim.
Division divide(const Machine::Impl& machine,
                std::uint64_t traffic_bytes) noexcept;

// run_parts() divides [0, count) and calls part(begin, end) for each part, on
// the threads that run slaves if these are the host's: for what the master
// prepares or adds up and grows with the data. One thread takes as long for one
// of `count` as for `traffic_bytes` of traffic: little work is one part. A part
// writes only what no other part uses. Throws what the lowest part threw.
using PartFunction = void (*)(const void* context, std::size_t begin,
                              std::size_t end);
void run_parts(Machine::Impl& machine, std::size_t count,
               std::uint64_t traffic_bytes, PartFunction part,
               const void* context);
template <class Part>
void run_parts(Machine::Impl& machine, std::size_t count,
               std::uint64_t traffic_bytes, const Part& part) {
  run_parts(
      machine, count, traffic_bytes,
      [](const void* context, std::size_t begin, std::size_t end) {
        (*static_cast<const Part*>(context))(begin, end);
      },
      &part);
}

// usable_ldm() returns the LDM of a slave that a launch can use: without limit
// in transfer mode view.
std::size_t usable_ldm(const Machine::Impl& machine) noexcept;

// LdmNeed is the LDM that a slave needs for the smallest tile of an operation,
// and the LDM that it has, which is unlimited in transfer mode view.
struct LdmNeed {
  std::size_t needed_bytes = 0;
  std::size_t ldm_bytes = ~std::size_t{0};

  bool fits() const noexcept { return needed_bytes <= ldm_bytes; }
};
LdmNeed ldm_need(const Machine::Impl& machine, const Operation& operation,
                 std::size_t partial_bytes) noexcept;

}  // namespace runtime
}  // namespace swamp

#endif  // SWAMP_RUNTIME_MACHINE_IMPL_H_
