#ifndef SWAMP_RUNTIME_MACHINE_IMPL_H_
#define SWAMP_RUNTIME_MACHINE_IMPL_H_

#include <cstdint>
#include <memory>
#include <string>

#include "runtime/backend.h"
#include "runtime/topology.h"
#include "runtime/tuning.h"
#include "slave/kernel.h"
#include "swamp/machine.h"

namespace swamp {

namespace runtime {
enum class Transfer : std::uint8_t { view, copy, check };
}  // namespace runtime

// Machine::Impl is what the runtime and the master know of a machine. It is
// constant once made, except that tests and benches may change `tuning`.
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

// run() performs a launch, whose first part the caller has set: spawn, tile
// loop, join. `arenas` are the calling thread's. Throws Error before the first
// slave starts if a kernel needs more LDM than there is, or if memory runs out.
void run(Machine::Impl& machine, Launch& launch, LdmArenas& arenas);

}  // namespace runtime
}  // namespace swamp

#endif  // SWAMP_RUNTIME_MACHINE_IMPL_H_
