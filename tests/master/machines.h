#ifndef SWAMP_TESTS_MASTER_MACHINES_H_
#define SWAMP_TESTS_MASTER_MACHINES_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "swamp/machine.h"

namespace swamp::test {

// MachineShape is how many slaves, and how much LDM each has.
struct MachineShape {
  std::uint32_t core_groups;
  std::uint32_t slaves_per_group;
  std::size_t ldm_bytes;
};

// make_machine() makes a machine that spawns whatever the list's size.
std::unique_ptr<Machine> make_machine(MachineConfig config);

// machine_configs() is every backend x transfer x shape of this build, and also
// x ISA when `all_isas`.
std::vector<MachineConfig> machine_configs(
    const std::vector<MachineShape>& shapes, bool all_isas);

std::string to_text(const MachineConfig& config);

// on_machines() runs `body` on each of machine_configs(), until a check fails.
void on_machines(const std::vector<MachineShape>& shapes, bool all_isas,
                 const std::function<void(Machine&)>& body);

}  // namespace swamp::test

#endif  // SWAMP_TESTS_MASTER_MACHINES_H_
