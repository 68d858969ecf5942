// The operators of amp.h: values, reports, the update of the scale.
#include "swamp/amp.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <new>

#include "machines.h"
#include "master/launch.h"
#include "sample_list.h"
#include "support/guarded_pages.h"

namespace swamp::test {
namespace {

const std::vector<MachineShape> kShapes = {{1, 3, 4096}};

std::uint64_t bits_of(double value) {
  std::uint64_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

// found_inf becomes exactly 1 whatever it was, and is never cleared. No early
// exit: every element is multiplied. The test is on the input: what overflows
// in the product is not reported. float64 is multiplied in double.
TEST(Unscale, ValuesAndFoundInf) {
  const float nan = std::nanf("");
  const double tenth = static_cast<double>(0.1f);
  const struct {
    ScalarType type;
    float inv_scale;
    std::vector<std::uint64_t> input, output;
    bool found;
    std::vector<float> before;
  } rows[] = {
      {kFloat32,
       0.5f,
       {0x3f800000, 0x7f800000, 0x40000000},
       {0x3f000000, 0x7f800000, 0x3f800000},
       true,
       {0, 1, 2, -3, nan}},
      {kFloat32, 0.5f, {0x3f800000}, {0x3f000000}, false, {0, 1, 2.5f, -0.0f}},
      {kFloat32, 1.0f, {0x3f800000}, {0x3f800000}, false, {0, 1, 2.5f, -0.0f}},
      {kFloat16, 65536, {0x7bff, 0x3c00}, {0x7c00, 0x7c00}, false, {0}},
      {kBFloat16, 65536, {0x7f7f}, {0x7f80}, false, {0}},
      {kFloat32, 65536, {0x7f7fffff}, {0x7f800000}, false, {0}},
      {kFloat64,
       0.1f,
       {bits_of(1), bits_of(1e300), bits_of(1 + 0x1p-52)},
       {bits_of(tenth), bits_of(1e300 * tenth), bits_of((1 + 0x1p-52) * tenth)},
       false,
       {0}}};
  on_machines(kShapes, false, [&](Machine& machine) {
    for (const auto& row : rows) {
      for (const float before : row.before) {
        SampleList list, expected;
        list.add_bits(row.type, row.input);
        expected.add_bits(row.type, row.output);
        float found_inf = before;
        amp_foreach_non_finite_check_and_unscale_(
            list.tensors(), found_inf, row.inv_scale, nullptr, &machine);
        const float after = row.found ? 1.0f : before;
        EXPECT_EQ(std::memcmp(&found_inf, &after, sizeof after), 0);
        EXPECT_TRUE(list.same_as(expected));
      }
    }
  });
}

// Calls without an overflow do not write found_inf, not even the same value.
TEST(UnscaleFoundInf, IsNotTouchedWhenClean) {
  GuardedPages page(2 * sizeof(float));
  auto* values = new (page.begin()) float[2]{0.0f, 0.5f};
  page.make_read_only();
  on_machines(kShapes, false, [&](Machine& machine) {
    SampleList list = mixed_list(3, 0);
    OverflowReport report{1, 2, 3, 4};
    amp_foreach_non_finite_check_and_unscale_(list.tensors(), values[0],
                                              values[1], &report, &machine);
    EXPECT_TRUE(same_report(report, {}));
  });
}

TEST(UnscaleFoundInf, InvScaleOneReadsOnly) {
  constexpr std::size_t kBytes = 64 * 1024;
  GuardedPages pages(kBytes);
  Random random(8);
  std::vector<Tensor> tensors;
  for (const Format* format : kFormats) {
    const std::size_t share = kBytes / 4;
    auto* data = pages.begin() + share * static_cast<std::size_t>(format->type);
    fill_any(*format, data, share / format->bytes, random);
    tensors.push_back(
        {data + format->bytes, share / format->bytes - 1, format->type});
  }
  const std::vector<std::byte> before(pages.begin(), pages.end());
  pages.make_read_only();
  on_machines(kShapes, false, [&](Machine& machine) {
    float found_inf = 0.0f;
    OverflowReport report;
    amp_foreach_non_finite_check_and_unscale_(tensors, found_inf, 1.0f, &report,
                                              &machine);
    EXPECT_EQ(found_inf, 1.0f);
    EXPECT_EQ(report.tensor_count, 4u);
    EXPECT_EQ(std::memcmp(pages.begin(), before.data(), before.size()), 0);
  });
}

TEST(UnscaleFoundInf, EmptyListsAndEmptyTensors) {
  on_machines(kShapes, false, [](Machine& machine) {
    for (const float inv_scale : {1.0f, 0.5f}) {
      float found_inf = 7.0f;
      OverflowReport report{1, 2, 3, 4};
      amp_foreach_non_finite_check_and_unscale_({}, found_inf, inv_scale,
                                                &report, &machine);
      EXPECT_EQ(found_inf, 7.0f);
      EXPECT_TRUE(same_report(report, {}));

      const Tensor empty[] = {{nullptr, 0, kFloat16},
                              {nullptr, 0, kFloat64},
                              {&found_inf, 0, kFloat32}};
      report = {1, 2, 3, 4};
      amp_foreach_non_finite_check_and_unscale_(empty, found_inf, inv_scale,
                                                &report, &machine);
      EXPECT_EQ(found_inf, 7.0f);
      EXPECT_TRUE(same_report(report, {}));
    }
  });
}

const std::vector<MachineShape> kReportShapes = {
    {1, 1, 16384}, {1, 7, 16384}, {1, 64, 4096}};

SampleList plain_list() {
  SampleList list;
  Random random(17);
  list.add(kFloat32, 100, 1, random);
  list.add(kFloat16, 40001, 1, random);  // divided between slaves
  list.add(kBFloat16, 0, 1, random);
  list.add(kFloat64, 30000, 1, random);
  list.add(kBFloat16, 7, 3, random);
  return list;
}

// plant() puts a nan of the tensor's dtype.
void plant(SampleList& list, std::size_t tensor, std::size_t index) {
  list.set(tensor, index, format_of(list.type(tensor)).quiet_nan());
}

// Each row: the nan that are planted, as tensor and index, and the report. In
// the second one, every grain has one: a tensor that many slaves share counts
// once. In the last, all elements are nan.
TEST(UnscaleReport, LowestPlaceAndCounts) {
  using Places = std::vector<std::pair<std::size_t, std::size_t>>;
  const SampleList clean = plain_list();
  Places all, grains = {{4, 6}};
  for (std::size_t t = 0; t < clean.tensor_count(); ++t) {
    for (std::size_t i = 0; i < clean.element_count(t); ++i) {
      all.push_back({t, i});
      if ((t == 1 || t == 3) && (i % 8192 == 8191 || i == 8192)) {
        grains.push_back({t, i});
      }
    }
  }
  std::vector<std::pair<Places, OverflowReport>> rows = {
      {{}, {}},
      {{{3, 2}, {3, 29999}, {1, 33000}, {1, 20000}}, {1, 20000, 2, 4}},
      {grains, {1, 8191, 3, grains.size()}},
      {all, {0, 0, 4, all.size()}}};
  for (std::size_t t = 0; t < clean.tensor_count(); ++t) {
    const std::size_t count = clean.element_count(t);
    if (count == 0) continue;
    rows.push_back({{{t, 0}}, {t, 0, 1, 1}});
    rows.push_back({{{t, count - 1}}, {t, count - 1, 1, 1}});
  }
  on_machines(kReportShapes, false, [&](Machine& machine) {
    for (const auto& [places, report] : rows) {
      SampleList list = clean;
      for (const auto& [tensor, index] : places) plant(list, tensor, index);
      for (const float inv_scale : {1.0f, 0.5f}) {
        EXPECT_TRUE(
            same_report(unscale(list.tensors(), inv_scale, machine), report));
      }
    }
  });
}

// reduce() by hand: the same tensor in neighbours, with clean slaves between.
TEST(UnscaleReport, ReduceCountsATensorOnce) {
  runtime::SlaveResult results[5];
  const auto flag = [&](int slave, std::uint64_t segment, std::uint64_t index,
                        std::uint64_t count) {
    Result tile;
    tile.flag(index, count);
    results[slave].add(segment, tile);
  };
  EXPECT_EQ(master::reduce(results, 5).flagged_elements, 0u);
  EXPECT_EQ(master::reduce(results, 5).first_segment,
            runtime::SlaveResult::kNone);
  flag(1, 2, 50, 1);
  flag(1, 4, 10, 2);
  flag(3, 4, 900, 3);
  flag(4, 4, 1800, 1);
  flag(4, 5, 0, 1);
  const runtime::SlaveResult all = master::reduce(results, 5);
  EXPECT_EQ(all.first_segment, 2u);
  EXPECT_EQ(all.first_index, 50u);
  EXPECT_EQ(all.flagged_segments, 3u);
  EXPECT_EQ(all.flagged_elements, 8u);
}

// ---- amp_update_scale_() in the cases of PyTorch's own operator.

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
