// The environment, the config and the machine rows.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "support/errors.h"
#include "swamp/machine.h"
#include "tests/runtime/test_kernels.h"

namespace swamp {
namespace {

// Env sets variables for a scope.
class Env {
 public:
  using Values = std::map<std::string, std::string>;
  explicit Env(const Values& values) {
    for (const auto& [name, value] : values) {
      const char* old = std::getenv(name.c_str());
      old_[name] = old == nullptr ? "" : old;
      setenv(name.c_str(), value.c_str(), 1);
    }
  }
  ~Env() {
    for (const auto& [name, value] : old_) {
      value.empty() ? unsetenv(name.c_str())
                    : setenv(name.c_str(), value.c_str(), 1);
    }
  }

 private:
  std::map<std::string, std::string> old_;
};

// If slaves are not threads of the host, the default machine is a Sunway and
// transfers are real.
bool is_athread() { return test::backends().front() == "athread"; }
std::string default_name() { return is_athread() ? "sw26010pro" : "host"; }

TEST(ConfigTest, Rows) {
  MachineConfig config;
  config.machine = "sw26010";
  MachineInfo info = Machine(config).info();
  EXPECT_EQ(info.chosen.core_groups, 4u);
  EXPECT_EQ(info.chosen.slaves_per_group, 64u);
  EXPECT_EQ(info.chosen.ldm_bytes, 64u * 1024);
  config.machine = "sw26010pro";
  info = Machine(config).info();
  EXPECT_EQ(info.chosen.core_groups, 6u);
  EXPECT_EQ(info.chosen.slaves_per_group, 64u);
  EXPECT_EQ(info.chosen.ldm_bytes, 256u * 1024);
  info = Machine().info();
  EXPECT_EQ(info.chosen.machine, default_name());
  EXPECT_EQ(info.chosen.backend, test::backends().front());
  EXPECT_EQ(info.chosen.transfer, is_athread() ? "copy" : "view");
  EXPECT_EQ(info.chosen.bind, "none");
  EXPECT_GE(info.chosen.core_groups * info.chosen.slaves_per_group, info.cores);
}

TEST(ConfigTest, ConfigPrecedesEnvironmentPrecedesRow) {
  const Env env({{"SWAMP_MACHINE", "sw26010"},
                 {"SWAMP_CORE_GROUPS", "3"},
                 {"SWAMP_TRANSFER", "copy"},
                 {"SWAMP_ISA", "second"}});
  MachineConfig config;
  config.core_groups = 2;
  const MachineConfig chosen = Machine(config).info().chosen;
  EXPECT_EQ(chosen.machine, "sw26010");
  EXPECT_EQ(chosen.core_groups, 2u);
  EXPECT_EQ(chosen.slaves_per_group, 64u);
  EXPECT_EQ(chosen.transfer, "copy");
  EXPECT_EQ(chosen.isa, "second");
}

TEST(ConfigTest, EmptyVariableCountsAsUnset) {
  const Env env({{"SWAMP_MACHINE", ""}, {"SWAMP_LDM_BYTES", ""}});
  EXPECT_EQ(Machine().info().chosen.machine, default_name());
}

TEST(ConfigTest, BadEnvironment) {
  const struct {
    const char* variable;
    const char* value;
    const char* expected;
  } cases[] = {
      {"SWAMP_MACHINE", "sw26011", "host, sw26010, sw26010pro"},
      {"SWAMP_BACKEND", "omp", "serial"},
      {"SWAMP_TRANSFER", "View", "view, copy, check"},
      {"SWAMP_ISA", "avx", "first, second"},
      {"SWAMP_BIND", "socket", "none, core"},
      {"SWAMP_CORE_GROUPS", "0", "from 1 to 4096"},
      {"SWAMP_CORE_GROUPS", "4097", "from 1 to 4096"},
      {"SWAMP_CORE_GROUPS", "-1", "from 1 to 4096"},
      {"SWAMP_SLAVES_PER_GROUP", "8x", "from 1 to 4096"},
      {"SWAMP_SLAVES_PER_GROUP", "99999999999999999999", "from 1 to 4096"},
      {"SWAMP_LDM_BYTES", "1023", "from 1024 to 1073741824"},
      {"SWAMP_LDM_BYTES", "64K", "from 1024 to 1073741824"},
  };
  for (const auto& bad : cases) {
    const Env env(Env::Values{{bad.variable, bad.value}});
    EXPECT_TRUE(test::has_words(
        test::error_of([] { Machine machine; }),
        {std::string(bad.variable) + ": got \"" + bad.value + "\", expected ",
         bad.expected}));
  }
}

TEST(ConfigTest, MissingPartsAreUnsupported) {
  MachineConfig config;
  config.backend = is_athread() ? "openmp" : "athread";
  EXPECT_TRUE(test::has_words(
      test::error_of([&] { Machine machine(config); }, SWAMP_UNSUPPORTED),
      {"config.backend: got \"" + config.backend + "\"", "serial"}));
  config = {};
  config.isa = "neon";  // known, but not among this test's kernels
  EXPECT_TRUE(test::has_words(
      test::error_of([&] { Machine machine(config); }, SWAMP_UNSUPPORTED),
      {"config.isa: got \"neon\"", "first, second"}));
}

TEST(ConfigTest, TooManySlaves) {
  MachineConfig config;
  config.core_groups = 4096;
  config.slaves_per_group = 17;
  EXPECT_TRUE(test::has_words(test::error_of([&] { Machine machine(config); }),
                              {"4096 * 17", "at most 65536"}));
}

TEST(ConfigTest, DefaultMachineForgetsAFailure) {
  {
    const Env env(Env::Values{{"SWAMP_BACKEND", "omp"}});
    EXPECT_TRUE(
        test::has_words(test::error_of([] { Machine::default_machine(); }),
                        {"SWAMP_BACKEND: got \"omp\"", "serial"}));
  }
  Machine& machine = Machine::default_machine();
  EXPECT_EQ(&Machine::default_machine(), &machine);
}

}  // namespace
}  // namespace swamp
