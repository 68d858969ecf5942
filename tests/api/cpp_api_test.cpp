// The public C++ API: Machine, MachineInfo and the operators.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <type_traits>
#include <vector>

#include "support/errors.h"
#include "swamp/machine.h"
#include "swamp/swamp.h"

namespace swamp::test {
namespace {

bool contains(const std::vector<std::string>& list, const std::string& name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

TEST(Machine, InfoListsAvailableValues) {
  const MachineInfo info = Machine().info();
  EXPECT_TRUE(contains(info.backends, "serial"));
  EXPECT_TRUE(contains(info.backends, "threads"));
  EXPECT_EQ(info.transfers,
            (std::vector<std::string>{"view", "copy", "check"}));
  EXPECT_TRUE(contains(info.isas, "scalar"));
  EXPECT_EQ(info.machines,
            (std::vector<std::string>{"host", "sw26010", "sw26010pro"}));
  EXPECT_EQ(info.binds, (std::vector<std::string>{"none", "core"}));
  // The defaults are the first of each.
  EXPECT_EQ(info.chosen.backend, info.backends[0]);
  EXPECT_EQ(info.chosen.transfer, info.transfers[0]);
  EXPECT_EQ(info.chosen.isa, info.isas[0]);
  EXPECT_EQ(info.chosen.machine, info.machines[0]);
  EXPECT_EQ(info.chosen.bind, info.binds[0]);
  EXPECT_GE(info.chosen.core_groups, 1u);
  EXPECT_GE(info.chosen.slaves_per_group, 1u);
  EXPECT_EQ(info.chosen.ldm_bytes, 256u * 1024);
  EXPECT_GE(info.cores, 1u);
  EXPECT_GE(info.threads, 1u);
  EXPECT_FALSE(info.cpu.empty());
  EXPECT_FALSE(info.topology.empty());
}

// The fields accept what info() lists.
TEST(Machine, EveryListedValueIsAccepted) {
  const MachineInfo info = Machine().info();
  const auto accept = [](std::string MachineConfig::*field,
                         const std::vector<std::string>& values) {
    for (const std::string& value : values) {
      MachineConfig config;
      config.slaves_per_group = 2;
      config.core_groups = 1;
      config.*field = value;
      EXPECT_EQ(Machine(config).info().chosen.*field, value);
    }
  };
  accept(&MachineConfig::machine, info.machines);
  accept(&MachineConfig::backend, info.backends);
  accept(&MachineConfig::transfer, info.transfers);
  accept(&MachineConfig::isa, info.isas);
  accept(&MachineConfig::bind, info.binds);
}

TEST(Machine, SunwayMachines) {
  MachineConfig config;
  config.backend = "serial";
  config.machine = "sw26010";
  MachineConfig chosen = Machine(config).info().chosen;
  EXPECT_EQ(chosen.core_groups, 4u);
  EXPECT_EQ(chosen.slaves_per_group, 64u);
  EXPECT_EQ(chosen.ldm_bytes, 64u * 1024);
  config.machine = "sw26010pro";
  chosen = Machine(config).info().chosen;
  EXPECT_EQ(chosen.core_groups, 6u);
  EXPECT_EQ(chosen.slaves_per_group, 64u);
  EXPECT_EQ(chosen.ldm_bytes, 256u * 1024);
}

TEST(Machine, SizesAtTheirLimits) {
  MachineConfig config;
  config.backend = "serial";
  config.core_groups = 4096;
  config.slaves_per_group = 16;  // 65536 slaves
  config.ldm_bytes = 1024;
  EXPECT_NO_THROW(Machine{config});
  config.slaves_per_group = 17;
  EXPECT_THROW(Machine{config}, Error);
}

// An ISA that this CPU or build lacks is known, not misspelt.
TEST(Machine, MissingIsasAreUnsupported) {
  const MachineInfo info = Machine().info();
  for (const char* isa : {"ssse3", "sse4", "avx2", "avx512"}) {
    if (contains(info.isas, isa)) continue;
    MachineConfig config;
    config.isa = isa;
    EXPECT_TRUE(
        has_words(error_of([&] { Machine machine(config); }, SWAMP_UNSUPPORTED),
                  {"scalar"}))
        << isa;
  }
}

// ---- The operators through the public C++ API.

TEST(Operators, ListsOfAllKinds) {
  float data[] = {2.0f, 4.0f};
  float found_inf = 0.0f;
  const Tensor array[] = {{data, 2, kFloat32}};
  amp_foreach_non_finite_check_and_unscale_(array, found_inf, 0.5f);
  const std::vector<Tensor> vector(array, array + 1);
  amp_foreach_non_finite_check_and_unscale_(vector, found_inf, 0.5f);
  amp_foreach_non_finite_check_and_unscale_(array[0], found_inf, 0.5f);
  amp_foreach_non_finite_check_and_unscale_({{data, 2, kFloat32}}, found_inf,
                                            0.5f);
  amp_foreach_non_finite_check_and_unscale_(std::array<Tensor, 1>{array[0]},
                                            found_inf, 4.0f);
  amp_foreach_non_finite_check_and_unscale_({array, 1}, found_inf, 0.5f);
  amp_foreach_non_finite_check_and_unscale_({}, found_inf, 0.5f);
  EXPECT_EQ(data[0], 0.25f);
  EXPECT_EQ(data[1], 0.5f);
  EXPECT_EQ(found_inf, 0.0f);
}

// Errors of the library can be caught as Error and as std::exception.
TEST(Operators, ErrorsAreCaughtByType) {
  const Tensor bad{nullptr, 1, kFloat32};
  float found_inf = 0.0f;
  EXPECT_THROW(
      amp_foreach_non_finite_check_and_unscale_({&bad, 1}, found_inf, 0.5f),
      std::runtime_error);
  static_assert(std::is_base_of_v<std::runtime_error, Error>);
  static_assert(std::is_same_v<Tensor, swamp_tensor>);
}

}  // namespace
}  // namespace swamp::test
