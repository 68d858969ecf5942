// Scratchpads and tiles of all sizes: a machine refuses a list or gives the
// right bits, nothing between.
#include <gtest/gtest.h>

#include "machines.h"
#include "runtime/check.h"
#include "runtime/machine_impl.h"
#include "sample_list.h"
#include "swamp/error.h"

namespace swamp::test {
namespace {

MachineConfig serial(const char* transfer, std::size_t ldm_bytes) {
  MachineConfig config;
  config.backend = "serial";
  config.transfer = transfer;
  config.core_groups = 1;
  config.slaves_per_group = 5;
  config.ldm_bytes = ldm_bytes;
  return config;
}

class UnscaleLdm : public testing::TestWithParam<const char*> {
 protected:
  UnscaleLdm() : list_(mixed_list(41, 5)), expected_(list_) {
    expected_report_ = expected_.unscale(0.7f);
  }

  void expect_contract(Machine& machine) {
    SampleList actual = list_;
    float found_inf = 0.0f;
    OverflowReport report;
    amp_foreach_non_finite_check_and_unscale_(actual.tensors(), found_inf, 0.7f,
                                              &report, &machine);
    EXPECT_EQ(found_inf, 1.0f);
    EXPECT_TRUE(same_report(report, expected_report_));
    EXPECT_TRUE(actual.same_as(expected_));
  }

  SampleList list_, expected_;
  OverflowReport expected_report_;
  std::size_t reports_ = runtime::report_count();
};

TEST_P(UnscaleLdm, EverySizeIsRefusedOrRight) {
  int refused = 0;
  int right = 0;
  for (std::size_t bytes = 1024; bytes < 4096;
       bytes += bytes % 3 == 0 ? 61 : 67) {
    SCOPED_TRACE(std::to_string(bytes) + " bytes of LDM");
    const auto machine = make_machine(serial(GetParam(), bytes));
    try {
      expect_contract(*machine);
      ++right;
    } catch (const Error&) {
      EXPECT_EQ(right, 0) << "more LDM than what was enough before";
      ++refused;
    }
    if (HasFailure()) return;
  }
  EXPECT_GT(refused, 0);
  EXPECT_GT(right, 20);
  EXPECT_EQ(runtime::report_count(), reports_);
}

TEST_P(UnscaleLdm, TilesOfAnySize) {
  for (const std::size_t tile_bytes :
       {std::size_t{0}, std::size_t{1}, std::size_t{129}, std::size_t{1000},
        std::size_t{8192}, std::size_t{65536}, ~std::size_t{0} / 2}) {
    SCOPED_TRACE(std::to_string(tile_bytes) + " bytes a tile");
    const auto machine = make_machine(serial(GetParam(), 64 * 1024));
    machine->impl().tuning.tile_bytes = tile_bytes;
    expect_contract(*machine);
  }
  EXPECT_EQ(runtime::report_count(), reports_);
}

INSTANTIATE_TEST_SUITE_P(All, UnscaleLdm, testing::Values("copy", "check"),
                         [](const testing::TestParamInfo<const char*>& it) {
                           return std::string(it.param);
                         });

}  // namespace
}  // namespace swamp::test
