// The machines that the tests of lists run on.
#ifndef SWAMP_TESTS_MASTER_MACHINES_H_
#define SWAMP_TESTS_MASTER_MACHINES_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/machine_impl.h"
#include "runtime/memory_check.h"
#include "support/ci.h"
#include "swamp/machine.h"

namespace swamp::test {

// MachineShape is the number of slaves and the LDM of each.
struct MachineShape {
  std::uint32_t core_groups;
  std::uint32_t slaves_per_group;
  std::size_t ldm_bytes;
};

// They give one visit with one tile or several, and two visits.
inline const std::vector<MachineShape> kRowShapes = {
    {1, 3, 64 * 1024}, {1, 2, 256 * 1024}, {6, 64, 64 * 1024}};

// make_machine() makes a machine that spawns whatever the traffic is; in
// transfer mode view, threads claim the slaves if the backend can.
inline std::unique_ptr<Machine> make_machine(MachineConfig config) {
  auto machine = std::make_unique<Machine>(config);
  runtime::Tuning& tuning = machine->impl().tuning;
  tuning.spawn = {};
  if (machine->impl().transfer == runtime::Transfer::view) {
    tuning.claim_traffic_bytes = 0;
  }
  return machine;
}

// Returns the machine of the environment. Making one takes longer than most
// launches: hwloc looks for the machine's cores.
inline Machine& plain_machine() {
  static Machine plain(MachineConfig{});
  return plain;
}

// machine_configs() returns every backend x transfer x shape of this build with
// the best ISA, and with `all_isas` also every transfer x shape x ISA of the
// serial backend: kernels do not depend on the backend. With backend athread it
// returns that one and a serial one to compare with: other builds test the rest.
inline std::vector<MachineConfig> machine_configs(
    const std::vector<MachineShape>& shapes, bool all_isas) {
  static const MachineInfo info = plain_machine().info();
  static const bool has_athread =
      std::find(info.backends.begin(), info.backends.end(), "athread") !=
      info.backends.end();
  std::vector<MachineConfig> configs;
  for (const std::string& backend : info.backends) {
    for (const std::string& transfer : info.transfers) {
      // The slaves of athread transfer in one way only.
      const bool is_first = transfer == info.transfers[0];
      if (backend == "athread" && !is_first) continue;
      if (has_athread && backend != "athread" &&
          (backend != "serial" || !is_first)) {
        continue;
      }
      for (const std::string& isa : info.isas) {
        const bool best = isa == info.isas[0];
        if (!best && (!all_isas || backend != "serial")) continue;
        for (const MachineShape& shape : shapes) {
#ifdef SWAMP_TEST_EMULATED
          if (backend == "threads" && shape.core_groups > 1) continue;
#endif
          MachineConfig config;
          config.backend = backend;
          config.transfer = transfer;
          config.isa = isa;
          config.core_groups = shape.core_groups;
          config.slaves_per_group = shape.slaves_per_group;
          config.ldm_bytes = shape.ldm_bytes;
          configs.push_back(config);
        }
      }
    }
  }
  return configs;
}

inline std::string to_text(const MachineConfig& config) {
  return config.backend + " " + config.transfer + " " + config.isa + " " +
         std::to_string(config.core_groups) + "x" +
         std::to_string(config.slaves_per_group) + " LDM " +
         std::to_string(config.ldm_bytes);
}

// on_machines() runs `body` on each of machine_configs(), until a check fails.
// Outside of CI, a call runs on a third of many, and the next call on another
// third: with three shapes, on every other option with one shape. It keeps the
// machines of several calls, because starting 384 threads takes longer than
// most launches, and most tests alternate between a few shapes.
inline void on_machines(const std::vector<MachineShape>& shapes, bool all_isas,
                        const std::function<void(Machine&)>& body) {
  constexpr std::size_t kManyThreads = 2400;
  static std::map<std::string, std::unique_ptr<Machine>> machines;
  static std::size_t threads = 0, calls = 0;
  if (threads > kManyThreads) {
    machines.clear();
    threads = 0;
  }
  const std::vector<MachineConfig> configs = machine_configs(shapes, all_isas);
  const std::size_t step = is_ci() || configs.size() < 9 ? 1 : 3;
  for (std::size_t i = calls++ % step; i < configs.size(); i += step) {
    const MachineConfig& config = configs[i];
    const std::string text = to_text(config);
    SCOPED_TRACE(text);
    std::unique_ptr<Machine>& machine = machines[text];
    if (machine == nullptr) {
      machine = make_machine(config);
      if (config.backend == "threads") {
        threads += config.core_groups * config.slaves_per_group;
      }
    }
    body(*machine);
    if (testing::Test::HasFailure()) return;
  }
}

// on_all_machines() also runs every ISA, and expects no report of the checker.
inline void on_all_machines(const std::vector<MachineShape>& shapes,
                            const std::function<void(Machine&)>& body) {
  const std::size_t reports = runtime::report_count();
  on_machines(shapes, true, body);
  EXPECT_EQ(runtime::report_count(), reports);
}

}  // namespace swamp::test

#endif  // SWAMP_TESTS_MASTER_MACHINES_H_
