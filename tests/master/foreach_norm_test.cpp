// The norm: its sum is defined to the last bit, on every machine.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "machines.h"
#include "runtime/memory_check.h"
#include "sample_list.h"
#include "support/formats.h"
#include "support/random.h"
#include "swamp/error.h"
#include "swamp/float_formats.h"
#include "swamp/foreach.h"

namespace swamp::test {
namespace {

// value_at() is rounded to float32, except for float64.
double value_at(const SampleList& list, std::size_t tensor, std::size_t i,
                float inv_scale) {
  const Format& format = format_of(list.type(tensor));
  const double value = value_of(format, list.get(tensor, i));
  if (format.type == kFloat64) return value * static_cast<double>(inv_scale);
  return static_cast<float>(value) * inv_scale;
}

// Lanes is the sum of one grain, as foreach_norm() defines it.
struct Lanes {
  double lane[16] = {};
  std::size_t elements = 0;

  void add(double value, std::size_t index) {
    lane[index % 16] += value * value;
    ++elements;
  }
  double close() {
    for (std::size_t distance = 8; distance != 0; distance /= 2) {
      for (std::size_t i = 0; i < distance; ++i) lane[i] += lane[i + distance];
    }
    const double total = lane[0];
    *this = {};
    return total;
  }
};

constexpr std::size_t kBlock = 8192;

// expected_norm() uses grains of 8192 elements of large tensors, and of runs of
// small ones.
double expected_norm(const SampleList& list, float inv_scale) {
  double sum = 0;
  Lanes lanes;
  const auto close = [&] { sum += lanes.close(); };
  for (std::size_t t = 0; t < list.tensor_count(); ++t) {
    const std::size_t count = list.element_count(t);
    if (lanes.elements != 0 && lanes.elements + count > kBlock) close();
    if (lanes.elements != 0 && count >= kBlock) close();
    for (std::size_t i = 0; i < count; ++i) {
      lanes.add(value_at(list, t, i, inv_scale), i);
      if (count >= kBlock && (i + 1) % kBlock == 0) close();
    }
    if (count >= kBlock && lanes.elements != 0) close();
  }
  if (lanes.elements != 0) close();
  return std::sqrt(sum);
}

// tame() keeps the squares of doubles finite.
void tame(SampleList& list, Random& random) {
  for (std::size_t t = 0; t < list.tensor_count(); ++t) {
    if (list.type(t) != kFloat64) continue;
    for (std::size_t i = 0; i < list.element_count(t); ++i) {
      const double value = static_cast<double>(random.next() >> 11) * 1e-13;
      std::uint64_t bits;
      std::memcpy(&bits, &value, sizeof bits);
      list.set(t, i, bits);
    }
  }
}

TEST(ForeachNorm, SameBitsOnEveryMachine) {
  SampleList list = mixed_list(31, 0);
  Random random(7);
  tame(list, random);
  list.add(kFloat32, 40000, 1, random);
  list.add(kFloat16, 16384, 0, random);
  for (int i = 0; i < 700; ++i) {
    list.add(kFloat32, random.below(60), 0, random);
  }
  const float inv_scale = 0.3f;
  const double expected = expected_norm(list, inv_scale);
  ASSERT_TRUE(std::isfinite(expected));
  const SampleList before = list;
  const std::size_t reports = runtime::report_count();
  for (const MachineConfig& config : machine_configs(
           {{1, 1, 4096}, {1, 2, 4096}, {1, 64, 16384}, {6, 64, 4096}}, true)) {
    SCOPED_TRACE(to_text(config));
    const auto machine = make_machine(config);
    float found_inf = 0;
    OverflowReport report{9, 9, 9, 9};
    EXPECT_EQ(foreach_norm(list.tensors(), inv_scale, &found_inf, &report,
                           machine.get()),
              expected);
    EXPECT_EQ(found_inf, 0.0f);
    EXPECT_EQ(report.element_count, 0u);
    if (HasFailure()) return;
  }
  EXPECT_TRUE(list.same_as(before));  // it only reads
  EXPECT_EQ(runtime::report_count(), reports);
}

TEST(ForeachNorm, ChecksLikeUnscale) {
  SampleList list = mixed_list(32, 5);
  SampleList unscaled = list;
  const OverflowReport expected = unscaled.unscale(0.5f);
  for (const MachineConfig& config : machine_configs({{1, 3, 4096}}, false)) {
    SCOPED_TRACE(to_text(config));
    const auto machine = make_machine(config);
    float found_inf = 0;
    OverflowReport report;
    const double norm =
        foreach_norm(list.tensors(), 0.5f, &found_inf, &report, machine.get());
    EXPECT_FALSE(std::isfinite(norm));
    EXPECT_EQ(found_inf, 1.0f);
    EXPECT_TRUE(same_report(report, expected));
  }
}

TEST(ForeachNorm, EmptyLists) {
  EXPECT_EQ(foreach_norm({}), 0.0);
  const Tensor empty[] = {{nullptr, 0, kFloat32}, {nullptr, 0, kFloat16}};
  float found_inf = 0;
  EXPECT_EQ(foreach_norm(empty, 0.5f, &found_inf), 0.0);
  EXPECT_EQ(found_inf, 0.0f);
}

// Empty tensors at every place of a list, so that runs begin and end with them.
TEST(ForeachNorm, EmptyTensorsBetween) {
  const auto machine = make_machine({});
  std::vector<float> ones(9000, 1.0f);
  for (const std::size_t count : {1u, 100u, 8191u, 8192u, 9000u}) {
    const Tensor none{nullptr, 0, kFloat32};
    const Tensor some{ones.data(), count, kFloat32};
    const std::vector<Tensor> list = {none, some, none, none, some, none};
    EXPECT_EQ(foreach_norm(list, 1, nullptr, nullptr, machine.get()),
              std::sqrt(2.0 * static_cast<double>(count)));
  }
}

// The square would overflow or underflow in float32, but not in double.
TEST(ForeachNorm, LargeAndSmall) {
  std::vector<float> large(100, 1e30f), small(100, 1e-30f);
  EXPECT_NEAR(foreach_norm(Tensor{large.data(), 100, kFloat32}) / 1e31, 1,
              1e-6);
  EXPECT_NEAR(foreach_norm(Tensor{small.data(), 100, kFloat32}) / 1e-29, 1,
              1e-6);
}

// A list that is divided before a tensor of a block or more has the same sums.
TEST(ForeachNorm, SquaresOfParts) {
  constexpr std::size_t kCounts[] = {3, 20000, 8191, 0, 1, 8192, 5, 9000, 40};
  Random random(7);
  std::vector<std::vector<float>> values;
  std::vector<Tensor> all;
  for (const std::size_t count : kCounts) {
    values.emplace_back(count);
    for (float& value : values.back()) {
      value = static_cast<float>(random.below(1 << 24)) * 0x1p-20f;
    }
    all.push_back({values.back().data(), count, kFloat32});
  }
  for (const std::size_t cut : {0u, 1u, 5u, 7u}) {
    std::vector<double> squares;
    float found = 0;
    const auto add = [&](double grain) { squares.push_back(grain); };
    foreach_squares({all.data(), cut}, 0.5f, &found, add);
    foreach_squares({all.data() + cut, all.size() - cut}, 0.5f, &found, add);
    double sum = 0;
    for (const double grain : squares) sum += grain;
    EXPECT_EQ(std::sqrt(sum), foreach_norm(all, 0.5f)) << cut;
    EXPECT_EQ(found, 0);
  }
  values[7][8999] = std::numeric_limits<float>::infinity();
  float found = 0;
  foreach_squares(all, 1, &found, [](double) {});
  EXPECT_EQ(found, 1);
}

TEST(ClipCoefficient, IsMindsporesWithoutASummand) {
  const auto clip = [](double max_norm, double norm) {
    return clip_coefficient(max_norm, norm, ClipRule::mindspore);
  };
  EXPECT_EQ(clip(1.0, 3.0), static_cast<float>(1.0 / 3.0));
  EXPECT_EQ(clip(1e-7, 2e-7), 0.5f);  // 0.0833 with 1e-6
  EXPECT_EQ(clip(1.0, 1.0), 1.0f);
  EXPECT_EQ(clip(1.0, 0.0), 1.0f);
  EXPECT_EQ(clip(0.0, 5.0), 1.0f);
}

TEST(ClipCoefficient, IsMegatrons) {
  EXPECT_EQ(clip_coefficient(1.0, 5.0), static_cast<float>(1.0 / (5.0 + 1e-6)));
  EXPECT_EQ(clip_coefficient(1.0, 0.5), 1.0f);
  EXPECT_EQ(clip_coefficient(1.0, 1.0), static_cast<float>(1 / (1 + 1e-6)));
  EXPECT_EQ(clip_coefficient(0.0, 5.0), 1.0f);
  EXPECT_EQ(clip_coefficient(1.0, std::numeric_limits<double>::infinity()), 0);
  EXPECT_EQ(clip_coefficient(1.0, std::nan("")), 1.0f);  // not below 1
}

}  // namespace
}  // namespace swamp::test
