#include "c_abi.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <thread>

#include "swamp/c_api.h"

namespace swamp::test {
namespace {

TEST(CAbi, Version) { EXPECT_EQ(c_abi_version(), 0); }
TEST(CAbi, MachineCreate) { EXPECT_EQ(c_abi_machine_create(), 0); }
TEST(CAbi, MachineErrors) { EXPECT_EQ(c_abi_machine_errors(), 0); }
TEST(CAbi, Unscale) { EXPECT_EQ(c_abi_unscale(), 0); }
TEST(CAbi, UnscaleReport) { EXPECT_EQ(c_abi_unscale_report(), 0); }
TEST(CAbi, UnscaleNulls) { EXPECT_EQ(c_abi_unscale_nulls(), 0); }
TEST(CAbi, UnscaleBadTensors) { EXPECT_EQ(c_abi_unscale_bad_tensors(), 0); }
TEST(CAbi, UnscaleTooMany) { EXPECT_EQ(c_abi_unscale_too_many(), 0); }
TEST(CAbi, UpdateScale) { EXPECT_EQ(c_abi_update_scale(), 0); }
TEST(CAbi, CheckReports) { EXPECT_EQ(c_abi_check_reports(), 0); }
TEST(CAbi, Scaler) { EXPECT_EQ(c_abi_scaler(), 0); }
TEST(CAbi, ScalerErrors) { EXPECT_EQ(c_abi_scaler_errors(), 0); }

TEST(CAbi, Cast) { EXPECT_EQ(c_abi_cast(), 0); }
TEST(CAbi, Step) { EXPECT_EQ(c_abi_step(), 0); }
TEST(CAbi, StepSgd) { EXPECT_EQ(c_abi_step_sgd(), 0); }
TEST(CAbi, StepOverflow) { EXPECT_EQ(c_abi_step_overflow(), 0); }
TEST(CAbi, StepErrors) { EXPECT_EQ(c_abi_step_errors(), 0); }
TEST(CAbi, StepSecondPassFails) {
  EXPECT_EQ(c_abi_step_second_pass_fails(), 0);
}

TEST(CAbi, LastErrorBelongsToTheThread) {
  EXPECT_EQ(swamp_machine_create(nullptr, nullptr), SWAMP_INVALID_ARGUMENT);
  ASSERT_STRNE(swamp_last_error(), "");
  std::thread([] {
    EXPECT_STREQ(swamp_last_error(), "");
    EXPECT_EQ(swamp_amp_update_scale(nullptr, nullptr, nullptr, 2, 0.5, 1),
              SWAMP_INVALID_ARGUMENT);
    EXPECT_NE(std::strstr(swamp_last_error(), "scale"), nullptr);
  }).join();
  EXPECT_NE(std::strstr(swamp_last_error(), "out"), nullptr);
}

// The text is of fixed length; a long value may be cut, no more than that.
TEST(CAbi, LongValuesInTexts) {
  const std::string name(100000, 'x');
  swamp_config config = {};
  config.struct_size = sizeof config;
  config.backend = name.c_str();
  swamp_machine* machine = nullptr;
  EXPECT_EQ(swamp_machine_create(&config, &machine), SWAMP_INVALID_ARGUMENT);
  EXPECT_NE(std::strstr(swamp_last_error(), "backend"), nullptr);
  EXPECT_NE(std::strstr(swamp_last_error(), "xxxx"), nullptr);
}

}  // namespace
}  // namespace swamp::test
