// The environment variables, and the default machine that is made from them.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "support/errors.h"
#include "swamp/swamp.h"

namespace swamp::test {
namespace {

// EnvironmentVariable is set as long as it lives.
class EnvironmentVariable {
 public:
  EnvironmentVariable(const char* name, const char* value) : name_(name) {
    setenv(name, value, 1);
  }
  ~EnvironmentVariable() { unsetenv(name_); }
  EnvironmentVariable(const EnvironmentVariable&) = delete;
  EnvironmentVariable& operator=(const EnvironmentVariable&) = delete;

 private:
  const char* name_;
};

void expect_bad(const char* name, const char* value, swamp_status status,
                const char* good) {
  const EnvironmentVariable variable(name, value);
  const std::string text = value;
  const bool is_number =
      text.find_first_not_of("0123456789") == std::string::npos;
  const std::string quote = is_number ? "" : "\"";
  expect_refused(
      [] { Machine machine; },
      {std::string(name) + ": got " + quote + text + quote + ", expected ",
       good},
      status);
}

TEST(Environment, BadValuesListTheGoodOnes) {
  const swamp_status invalid = SWAMP_INVALID_ARGUMENT;
  expect_bad("SWAMP_MACHINE", "sunway", invalid, "sw26010");
  expect_bad("SWAMP_BACKEND", "omp", invalid, "serial");
  expect_bad("SWAMP_BACKEND", "athread", SWAMP_UNSUPPORTED, "serial");
  expect_bad("SWAMP_TRANSFER", "dma", invalid, "check");
  expect_bad("SWAMP_ISA", "sse3", invalid, "scalar");
  expect_bad("SWAMP_BIND", "yes", invalid, "core");
  for (const char* value : {"0", "-1", "x", "1.5", "4097", " 2", "2 ", "0x10",
                            "+1", "99999999999999999999999"}) {
    expect_bad("SWAMP_CORE_GROUPS", value, invalid, "4096");
    expect_bad("SWAMP_SLAVES_PER_GROUP", value, invalid, "4096");
  }
  expect_bad("SWAMP_LDM_BYTES", "1023", invalid, "1024");
  expect_bad("SWAMP_LDM_BYTES", "64K", invalid, "1024");
  expect_bad("SWAMP_LDM_BYTES", "1073741825", invalid, "1073741824");
}

TEST(Environment, GoodValuesAreTaken) {
  const EnvironmentVariable machine_name("SWAMP_MACHINE", "sw26010");
  const EnvironmentVariable backend("SWAMP_BACKEND", "serial");
  const EnvironmentVariable transfer("SWAMP_TRANSFER", "copy");
  const EnvironmentVariable groups("SWAMP_CORE_GROUPS", "3");
  const EnvironmentVariable slaves("SWAMP_SLAVES_PER_GROUP", "5");
  const EnvironmentVariable ldm("SWAMP_LDM_BYTES", "4096");
  const EnvironmentVariable isa("SWAMP_ISA", "scalar");
  const EnvironmentVariable bind("SWAMP_BIND", "core");
  const MachineConfig chosen = Machine().info().chosen;
  EXPECT_EQ(chosen.machine, "sw26010");
  EXPECT_EQ(chosen.backend, "serial");
  EXPECT_EQ(chosen.transfer, "copy");
  EXPECT_EQ(chosen.core_groups, 3u);
  EXPECT_EQ(chosen.slaves_per_group, 5u);
  EXPECT_EQ(chosen.ldm_bytes, 4096u);
  EXPECT_EQ(chosen.isa, "scalar");
  EXPECT_EQ(chosen.bind, "core");
}

TEST(Environment, TheConfigComesFirst) {
  const EnvironmentVariable backend("SWAMP_BACKEND", "omp");  // bad
  const EnvironmentVariable machine("SWAMP_MACHINE", "sw26010");
  const EnvironmentVariable groups("SWAMP_CORE_GROUPS", "3");
  MachineConfig config;
  config.backend = "serial";
  config.core_groups = 2;
  const MachineConfig chosen = Machine(config).info().chosen;
  EXPECT_EQ(chosen.backend, "serial");
  EXPECT_EQ(chosen.core_groups, 2u);
  EXPECT_EQ(chosen.slaves_per_group, 64u);  // of the machine
}

TEST(Environment, EmptyVariablesAreUnset) {
  const EnvironmentVariable backend("SWAMP_BACKEND", "");
  const EnvironmentVariable groups("SWAMP_CORE_GROUPS", "");
  EXPECT_NO_THROW(Machine());
}

// Runs in a new process, which has no default machine yet.
int default_machine_failures() {
  int failures = 0;
  const auto check = [&](bool good) { failures += good ? 0 : 1; };
  float data = 4.0f;
  const swamp_tensor tensor = {&data, 1, SWAMP_FLOAT32};
  float found_inf = 0.0f;
  const float inv_scale = 0.5f;
  const auto unscale = [&] {
    return swamp_amp_foreach_non_finite_check_and_unscale(
        nullptr, &tensor, 1, &found_inf, &inv_scale);
  };
  setenv("SWAMP_BACKEND", "omp", 1);
  for (int i = 0; i < 2; ++i) {
    check(unscale() == SWAMP_INVALID_ARGUMENT);
    check(std::string(swamp_last_error()).find("SWAMP_BACKEND") !=
          std::string::npos);
    check(data == 4.0f);
  }
  setenv("SWAMP_BACKEND", "athread", 1);
  check(unscale() == SWAMP_UNSUPPORTED);
  unsetenv("SWAMP_BACKEND");
  check(unscale() == SWAMP_OK);
  check(data == 2.0f);
  // Now the default machine exists, and the environment is not read again.
  setenv("SWAMP_BACKEND", "omp", 1);
  check(unscale() == SWAMP_OK);
  check(data == 1.0f);
  check(&Machine::default_machine() == &Machine::default_machine());
  return failures;
}

TEST(EnvironmentDeathTest, FailuresOfTheDefaultMachineAreNotRemembered) {
#ifdef SWAMP_TEST_EMULATED
  GTEST_SKIP() << "the kernel cannot start this program again";
#endif
  testing::FLAGS_gtest_death_test_style = "threadsafe";  // a new process
  EXPECT_EXIT(std::exit(default_machine_failures()), testing::ExitedWithCode(0),
              "");
}

}  // namespace
}  // namespace swamp::test
