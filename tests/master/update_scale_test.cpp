// amp_update_scale_() in the cases of PyTorch's own operator.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>

#include "swamp/amp.h"

namespace swamp::test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr double kGrowth = 2.0;
constexpr double kBackoff = 0.5;

struct State {
  float scale;
  std::int32_t tracker;
};

// update() also expects that the returned value is the new scale.
State update(State state, float found_inf, std::int64_t interval,
             double growth = kGrowth, double backoff = kBackoff) {
  const float returned = amp_update_scale_(
      state.scale, state.tracker, found_inf, growth, backoff, interval);
  EXPECT_TRUE(returned == state.scale ||
              (std::isnan(returned) && std::isnan(state.scale)));
  return state;
}

void expect_state(State actual, float scale, std::int32_t tracker) {
  EXPECT_EQ(actual.scale, scale);
  EXPECT_EQ(actual.tracker, tracker);
}

// test_grad_scaling_update_scale of PyTorch.
TEST(UpdateScale, GrowsThenBacksOff) {
  State state{4.0f, 0};
  state = update(state, 0.0f, 2, 2.0, 0.25);
  expect_state(state, 4.0f, 1);
  state = update(state, 0.0f, 2, 2.0, 0.25);
  expect_state(state, 8.0f, 0);
  state = update(state, 1.0f, 2, 2.0, 0.25);
  expect_state(state, 2.0f, 0);
}

TEST(UpdateScale, AnythingButZeroCountsAsFound) {
  for (const float found :
       {1.0f, 2.0f, -1.0f, 1e-45f, kInfinity, std::nanf(""), -kInfinity}) {
    expect_state(update({8.0f, 1}, found, 2), 4.0f, 0);
  }
  expect_state(update({8.0f, 1}, -0.0f, 2), 16.0f, 0);
}

TEST(UpdateScale, GrowthToInfinityIsGuarded) {
  const float large = 0x1p127f;
  expect_state(update({large, 0}, 0.0f, 1), large, 0);
  expect_state(update({large, 4}, 0.0f, 5), large, 0);
  expect_state(update({1e38f, 0}, 0.0f, 1, 16.0), 1e38f, 0);
  // The factor may be infinite, or nan.
  expect_state(update({1.0f, 0}, 0.0f, 1, kInfinity), 1.0f, 0);
  expect_state(update({1.0f, 0}, 0.0f, 1, std::nan("")), 1.0f, 0);
  // Just below the limit it grows.
  expect_state(update({0x1p126f, 0}, 0.0f, 1), 0x1p127f, 0);
}

TEST(UpdateScale, BackoffIsNotGuarded) {
  expect_state(update({1.0f, 3}, 1.0f, 9, 2.0, kInfinity), kInfinity, 0);
  expect_state(update({0x1p-149f, 3}, 1.0f, 9), 0.0f, 0);
  expect_state(update({0.0f, 3}, 1.0f, 9), 0.0f, 0);
  EXPECT_TRUE(std::isnan(update({1.0f, 3}, 1.0f, 9, 2.0, std::nan("")).scale));
}

TEST(UpdateScale, ScaleZeroStaysZero) {
  expect_state(update({0.0f, 0}, 0.0f, 1), 0.0f, 0);
  expect_state(update({-0.0f, 0}, 0.0f, 2), 0.0f, 1);
}

// Equality, not "at least": an interval that was lowered below the tracker is
// never reached.
TEST(UpdateScale, IntervalBelowTheTracker) {
  State state{4.0f, 10};
  for (int i = 1; i <= 100; ++i) {
    state = update(state, 0.0f, 5);
    expect_state(state, 4.0f, 10 + i);
  }
  state = update(state, 1.0f, 5);
  expect_state(state, 2.0f, 0);
  for (int i = 0; i < 5; ++i) state = update(state, 0.0f, 5);
  expect_state(state, 4.0f, 0);
}

TEST(UpdateScale, IntervalsThatAreNeverMet) {
  expect_state(update({4.0f, 0}, 0.0f, 0), 4.0f, 1);
  expect_state(update({4.0f, 0}, 0.0f, -3), 4.0f, 1);
  // Compared in 64 bits.
  expect_state(update({4.0f, 0}, 0.0f, (std::int64_t{1} << 32) + 1), 4.0f, 1);
  expect_state(update({4.0f, 6}, 0.0f, std::int64_t{1} << 40), 4.0f, 7);
  // A negative tracker may reach an interval of 0.
  expect_state(update({4.0f, -1}, 0.0f, 0), 8.0f, 0);
}

TEST(UpdateScale, TrackerAtItsEndDoesNotTrap) {
  const State state = update({4.0f, INT32_MAX}, 0.0f, 2000);
  expect_state(state, 4.0f, INT32_MIN);
  expect_state(update({4.0f, INT32_MAX}, 1.0f, 2000), 2.0f, 0);
  expect_state(update({4.0f, INT32_MAX - 1}, 0.0f, INT32_MAX), 8.0f, 0);
  expect_state(update({4.0f, INT32_MAX}, 0.0f, std::int64_t{INT32_MAX} + 1),
               4.0f, INT32_MIN);
}

// float * double is formed in double: factors that no float can hold would
// otherwise round twice.
TEST(UpdateScale, ProductsAreFormedInDouble) {
  std::uint32_t differing = 0;
  for (int i = 1; i < 2000; ++i) {
    const float scale = 3.3f * static_cast<float>(i);
    const double growth = 1.1;
    const double backoff = 0.7;
    const auto grown = static_cast<float>(static_cast<double>(scale) * growth);
    const auto backed =
        static_cast<float>(static_cast<double>(scale) * backoff);
    expect_state(update({scale, 0}, 0.0f, 1, growth, backoff), grown, 0);
    expect_state(update({scale, 0}, 1.0f, 1, growth, backoff), backed, 0);
    if (grown != scale * static_cast<float>(growth)) ++differing;
  }
  EXPECT_GT(differing, 100u);  // the test can distinguish the two
}

// 166 backoffs from 65536 reach 0, by way of the subnormals.
TEST(UpdateScale, RepeatedOverflow) {
  State state{65536.0f, 0};
  for (int i = 0; i < 165; ++i) state = update(state, 1.0f, 2000);
  EXPECT_EQ(state.scale, 0x1p-149f);
  state = update(state, 1.0f, 2000);
  EXPECT_EQ(state.scale, 0.0f);
}

}  // namespace
}  // namespace swamp::test
