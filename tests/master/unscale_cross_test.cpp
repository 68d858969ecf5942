// The small end-to-end cross: backend x transfer x ISA x slaves, one list, the
// same bits everywhere.
#include <gtest/gtest.h>

#include <vector>

#include "machines.h"
#include "runtime/check.h"
#include "sample_list.h"
#include "support/float_environment_scope.h"

namespace swamp::test {
namespace {

const std::vector<MachineShape> kShapes = {
    {1, 1, 2048}, {1, 2, 4096}, {1, 64, 16384}, {6, 64, 4096}};

// expect_contract() unscales a copy of `list` on `machine`.
void expect_contract(Machine& machine, const SampleList& list,
                     const SampleList& expected,
                     const OverflowReport& expected_report, float inv_scale) {
  SampleList actual = list;
  float found_inf = 0.0f;
  OverflowReport report{9, 9, 9, 9};
  amp_foreach_non_finite_check_and_unscale_(actual.tensors(), found_inf,
                                            inv_scale, &report, &machine);
  EXPECT_EQ(found_inf, expected_report.element_count != 0 ? 1.0f : 0.0f);
  EXPECT_TRUE(same_report(report, expected_report));
  EXPECT_TRUE(actual.same_as(expected));
}

TEST(UnscaleCross, SameBitsOnEveryMachine) {
  struct Case {
    SampleList list, expected;
    OverflowReport report;
    float inv_scale;
  };
  std::vector<Case> cases;
  for (const auto& [planted, inv_scale] :
       {std::pair<std::size_t, float>{0, 0.7f}, {9, 1e-3f}, {5, 1.0f}}) {
    Case made{mixed_list(11 + planted, planted), {}, {}, inv_scale};
    made.expected = made.list;
    made.report = made.expected.unscale(inv_scale);
    ASSERT_EQ(made.report.element_count != 0, planted != 0);
    cases.push_back(std::move(made));
  }
  const std::size_t reports = runtime::report_count();
  for (const MachineConfig& config : machine_configs(kShapes, true)) {
    SCOPED_TRACE(to_text(config));
    const auto machine = make_machine(config);
    for (const Case& one : cases) {
      SCOPED_TRACE("inv_scale " + std::to_string(one.inv_scale));
      expect_contract(*machine, one.list, one.expected, one.report,
                      one.inv_scale);
    }
    if (HasFailure()) return;  // one machine's words are enough
  }
  EXPECT_EQ(runtime::report_count(), reports);  // of transfer check
}

// A list that the master does alone gives the same bits as one that is spawned.
TEST(UnscaleCross, DefaultTuningOfEveryBackend) {
  const SampleList list = mixed_list(21, 7);
  SampleList expected = list;
  const OverflowReport report = expected.unscale(0.3f);
  SampleList small;
  Random random(5);
  small.add(kFloat16, 33, 1, random);
  small.add(kFloat64, 3, 1, random);
  SampleList small_expected = small;
  small_expected.unscale(0.3f);
  for (const MachineConfig& config : machine_configs(kShapes, false)) {
    SCOPED_TRACE(to_text(config));
    Machine machine(config);
    expect_contract(machine, list, expected, report, 0.3f);
    expect_contract(machine, small, small_expected, {}, 0.3f);
  }
}

#ifdef SWAMP_TEST_HAS_MXCSR
// Every slave computes in the caller's float environment and leaves its own
// thread's as it was.
TEST(UnscaleCross, CallersFloatEnvironmentReachesEverySlave) {
  const SampleList list = mixed_list(31, 3);
  const std::vector<MachineConfig> configs = machine_configs(kShapes, false);
  SampleList plain = list;
  const OverflowReport report = plain.unscale(0x1.8p-6f);
  for (const FloatEnvironment& environment : kFloatEnvironments) {
    SCOPED_TRACE(environment.name);
    SampleList expected = list;
    {
      const MxcsrScope scope(environment.mxcsr);
      expected.unscale(0x1.8p-6f);
    }
    ASSERT_EQ(environment.mxcsr == 0, bool{expected.same_as(plain)});
    for (const MachineConfig& config : configs) {
      if (config.slaves_per_group != 64) continue;
      SCOPED_TRACE(to_text(config));
      const auto machine = make_machine(config);
      {
        const MxcsrScope scope(environment.mxcsr);
        expect_contract(*machine, list, expected, report, 0x1.8p-6f);
      }
      expect_contract(*machine, list, plain, report, 0x1.8p-6f);
      if (HasFailure()) return;
    }
  }
}
#endif

}  // namespace
}  // namespace swamp::test
