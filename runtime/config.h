#ifndef SWAMP_RUNTIME_CONFIG_H_
#define SWAMP_RUNTIME_CONFIG_H_

#include <string>
#include <vector>

#include "runtime/machine_impl.h"
#include "swamp/machine.h"

namespace swamp::runtime {

// configure() fills in `impl` (all but the backend itself) from `config`, the
// environment, the machine's row and the defaults, in this order. Throws Error
// and names the source, the value and the good values.
void configure(const MachineConfig& config, Machine::Impl& impl);

// What the fields of MachineConfig accept in this build on this CPU.
std::vector<std::string> machine_names();
std::vector<std::string> backend_names();
std::vector<std::string> transfer_names();
std::vector<std::string> isa_names();
std::vector<std::string> bind_names();

}  // namespace swamp::runtime

#endif  // SWAMP_RUNTIME_CONFIG_H_
