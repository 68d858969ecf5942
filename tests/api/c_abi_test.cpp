#include "c_abi.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <thread>

#include "c_abi_released.h"
#include "swamp/c_api.h"

namespace swamp::test {
namespace {

#define SWAMP_TEST(name, function) \
  TEST(CAbi, name) { EXPECT_EQ(function(), 0); }
SWAMP_C_ABI_CHECKS(SWAMP_TEST)
#undef SWAMP_TEST

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

// The text has a fixed length, and a long value is truncated.
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
