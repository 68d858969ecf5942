// What a build without the kernels of swamp chooses, and what it lacks. The
// rows of machines and the environment are tested in tests/api.
#include <gtest/gtest.h>

#include "support/errors.h"
#include "swamp/machine.h"
#include "tests/runtime/test_kernels.h"

namespace swamp {
namespace {

// If slaves are not threads of the host, the default machine is a Sunway and
// transfers are real.
bool is_athread() { return test::backends().front() == "athread"; }

TEST(ConfigTest, Defaults) {
  const MachineInfo info = Machine().info();
  EXPECT_EQ(info.chosen.machine, is_athread() ? "sw26010pro" : "host");
  EXPECT_EQ(info.chosen.backend, test::backends().front());
  EXPECT_EQ(info.chosen.transfer, is_athread() ? "copy" : "view");
  EXPECT_EQ(info.chosen.bind, "none");
  EXPECT_GE(info.chosen.core_groups * info.chosen.slaves_per_group, info.cores);
}

TEST(ConfigTest, NumbersAreNotQuoted) {
  MachineConfig config;
  config.core_groups = 5000;
  EXPECT_EQ(
      test::error_of([&] { Machine machine(config); }, SWAMP_INVALID_ARGUMENT),
      "config.core_groups: got 5000, expected a whole number from 1 to "
      "4096");
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

}  // namespace
}  // namespace swamp
