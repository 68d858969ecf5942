// What Adam with less memory adds to the formula: stochastic rounding without
// bias, and the codes of 8-bit moments.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "run_kernel.h"
#include "slave/block_code.h"
#include "slave/kernel_args.h"
#include "support/formats.h"
#include "support/random.h"

namespace swamp::test {
namespace {

using slave::AdamArgs;
using slave::AdamBlockArgs;
using slave::kBlockColumns;
using slave::RoundingKey;

// A step that keeps the moments.
AdamArgs keep_args() {
  AdamArgs args{};
  args.inv_scale = args.clip_coefficient = 1;
  args.beta2 = args.bias_correction2_sqrt = args.decay = args.eps = 1;
  return args;
}

// round_many() rounds `value` once for each index and key: a step whose update
// is the value, of weights that are 0.
std::vector<double> round_many(const KernelTable& table, ScalarType type,
                               float value, int keys, std::size_t count) {
  const int id = kernel_of(F::adam_stochastic, {type, type, kFloat32});
  AdamArgs args = keep_args();
  args.step_size = -value;  // weight = 0 + value * m / (sqrt(0) + 1)
  std::vector<double> results;
  for (int k = 0; k < keys; ++k) {
    RoundingKey key{static_cast<std::uint32_t>(k) * 0x9e3779b9U,
                    static_cast<std::uint32_t>(k) * 0x85ebca6bU};
    std::vector<std::uint16_t> g(count), weight(count);
    std::vector<float> m(count, 1.0f), v(count, 0.0f);
    run_kernel(table, id, &args,
               {g.data(), weight.data(), m.data(), v.data(), &key}, count);
    for (const std::uint16_t bits : weight) {
      results.push_back(value_of(format_of(type), bits));
    }
  }
  return results;
}

TEST(StochasticRounding, IsUnbiasedAndKeepsWhatIsExact) {
  struct Case {
    ScalarType type;
    float value;
    double below, above;  // the neighbours
  };
  const float inf = std::numeric_limits<float>::infinity();
  const Case cases[] = {{kBFloat16, 1.0f, 1, 1},
                        {kBFloat16, 1.001f, 1, 1.0078125},
                        {kBFloat16, -1.007f, -1.0078125, -1},
                        {kBFloat16, 0x1.5p-130f, 0x1.4p-130, 0x1.6p-130},
                        {kBFloat16, 0x1p-135f, 0, 0x1p-133},
                        {kBFloat16, inf, inf, inf},
                        {kFloat16, 0.25f, 0.25, 0.25},
                        {kFloat16, 1.0001f, 1, 1.0009765625},
                        {kFloat16, -3.0005f, -3.001953125, -3},
                        {kFloat16, 0x1.004p-15f, 0x1p-15, 0x1.008p-15},
                        {kFloat16, 0x1.3p-24f, 0x1p-24, 0x1p-23},
                        {kFloat16, -0x1.8p-27f, -0x1p-24, 0},
                        {kFloat16, 0x1.008p-15f, 0x1.008p-15, 0x1.008p-15},
                        {kFloat16, -inf, -inf, -inf}};
  const KernelTable& best = kernel_tables_here()[1];
  for (const Case& one : cases) {
    SCOPED_TRACE(one.value);
    const std::vector<double> results =
        round_many(best, one.type, one.value, 200, 1001);
    double sum = 0;
    for (const double result : results) {
      ASSERT_TRUE(result == one.below || result == one.above) << result;
      sum += (result - one.below) / (one.above - one.below);
    }
    if (one.below == one.above) continue;
    // The number of those rounded up is binomial: six standard deviations.
    const double p =
        (static_cast<double>(one.value) - one.below) / (one.above - one.below);
    const auto n = static_cast<double>(results.size());
    EXPECT_LT(std::fabs(sum - n * p), 6 * std::sqrt(n * p * (1 - p)));
  }
}

// Weight, m and v are rounded by independent bits, and neighbours too.
TEST(StochasticRounding, BitsAreIndependent) {
  constexpr std::size_t kCount = 1 << 18;
  double up[4] = {}, both[4][4] = {};
  bool before = false;
  for (std::size_t i = 0; i < kCount; ++i) {
    const slave::RoundingBits bits = slave::rounding_bits({5, 9}, i);
    const bool is_up[4] = {bits.weight < 0x4000, bits.m < 0x4000,
                           bits.v < 0x4000, before};
    before = is_up[0];
    for (int a = 0; a < 4; ++a) {
      up[a] += is_up[a];
      for (int b = 0; b < a; ++b) both[a][b] += is_up[a] && is_up[b];
    }
  }
  for (int a = 0; a < 4; ++a) {
    EXPECT_NEAR(up[a] / kCount, 0.25, 6 * std::sqrt(3.0 / 16 / kCount));
    for (int b = 0; b < a; ++b) {
      EXPECT_NEAR(both[a][b] / kCount, 1.0 / 16,
                  6 * std::sqrt(15.0 / 256 / kCount))
          << a << " and " << b;
    }
  }
}

// ---- Codes

// The maps, literally as bitsandbytes' create_dynamic_map makes them.
std::vector<double> dynamic_map(bool is_signed) {
  std::vector<double> map = {0, 1};
  for (int i = 0; i < 7; ++i) {
    const int count = 1 << (is_signed ? i : i + 1);
    for (int k = 0; k < count; ++k) {
      const double low = 0.1 + 0.9 * k / count;
      const double high = 0.1 + 0.9 * (k + 1) / count;
      const double value = std::pow(10.0, i - 6) * (low + high) / 2;
      map.push_back(value);
      if (is_signed) map.push_back(-value);
    }
  }
  std::sort(map.begin(), map.end());
  return map;
}

// Block is one block of a float32 tensor. A step with it decodes the moments
// and encodes them again.
struct Block {
  std::vector<float> g = std::vector<float>(kBlockColumns, 0.0f), w = g;
  std::vector<std::uint8_t> m = std::vector<std::uint8_t>(kBlockColumns, 127),
                            v = std::vector<std::uint8_t>(kBlockColumns, 0);
  float absmax[2] = {0, 0};
  std::uint32_t float8 = 0;

  void run(const KernelTable& table, AdamArgs numbers) {
    const AdamBlockArgs args{numbers, kBlockColumns, float8};
    run_kernel(table, kernel_of(F::adam_8bit, {kFloat32}), &args,
               {g.data(), w.data(), m.data(), v.data(), absmax, nullptr}, 1);
  }
};

TEST(BlockCodes, AreBitsandbytesDynamicMap) {
  const std::vector<double> m_map = dynamic_map(true);
  const std::vector<double> v_map = dynamic_map(false);
  ASSERT_EQ(m_map.size(), 256u);
  ASSERT_EQ(v_map.size(), 256u);
  for (const KernelTable& table : kernel_tables_here()) {
    SCOPED_TRACE(table.isa);
    // Every code has its value: w = 0 + 1 * m / (0 + 1).
    Block block;
    for (std::size_t i = 0; i < kBlockColumns; ++i) {
      block.m[i] = static_cast<std::uint8_t>(i);
    }
    block.absmax[0] = 3;
    AdamArgs args = keep_args();
    args.step_size = -1;
    block.run(table, args);
    for (std::size_t i = 0; i < kBlockColumns; ++i) {
      EXPECT_NEAR(static_cast<double>(block.w[i]), 3 * m_map[i],
                  3e-7 * std::fabs(3 * m_map[i]));
      EXPECT_EQ(block.m[i], i);  // and is encoded as itself
    }
    EXPECT_EQ(block.absmax[0], 3.0f);
    // w = 0 + 1 * 1 / sqrt(v).
    Block squares;
    for (std::size_t i = 0; i < kBlockColumns; ++i) {
      squares.m[i] = 255;
      squares.v[i] = static_cast<std::uint8_t>(i);
    }
    squares.absmax[0] = 1;
    squares.absmax[1] = 5;
    args.eps = 0;
    squares.run(table, args);
    for (std::size_t i = 1; i < kBlockColumns; ++i) {
      const double w = static_cast<double>(squares.w[i]);
      EXPECT_NEAR(1 / (w * w), 5 * v_map[i], 1e-6 * 5 * v_map[i]);
      EXPECT_EQ(squares.v[i], i);
    }
    EXPECT_EQ(squares.v[0], 0);
    EXPECT_EQ(squares.absmax[1], 5.0f);
  }
}

// A moment gets the nearest code, or one of two at nearly the same distance.
TEST(BlockCodes, AreNearest) {
  const std::vector<double> maps[] = {dynamic_map(true), dynamic_map(false)};
  const KernelTable& best = kernel_tables_here()[1];
  AdamArgs args = keep_args();
  args.one_minus_beta1 = args.one_minus_beta2 = 1;  // m = g, v = g * g
  args.beta2 = 0;
  Random random(3);
  for (int round = 0; round < 400; ++round) {
    Block block;
    for (float& g : block.g) {
      const double decades = static_cast<double>(random.below(8000)) / 1000;
      g = static_cast<float>(std::pow(10, -decades) *
                             (random.below(2) != 0 ? 1 : -1));
    }
    block.run(best, args);
    for (std::size_t i = 0; i < kBlockColumns; ++i) {
      const float square = block.g[i] * block.g[i];
      const double exact[] = {
          static_cast<double>(block.g[i]) /
              static_cast<double>(block.absmax[0]),
          static_cast<double>(square) / static_cast<double>(block.absmax[1])};
      const std::uint8_t codes[] = {block.m[i], block.v[i]};
      for (int s = 0; s < 2; ++s) {
        // A v above 0 does not become 0.
        const bool above_0 = s == 1 && square > 0;
        double nearest = 2;
        for (std::size_t c = above_0 ? 1 : 0; c < maps[s].size(); ++c) {
          nearest = std::min(nearest, std::fabs(maps[s][c] - exact[s]));
        }
        ASSERT_TRUE(codes[s] != 0 || !above_0) << exact[s];
        ASSERT_LE(std::fabs(maps[s][codes[s]] - exact[s]),
                  nearest + 1e-6 * std::fabs(exact[s]))
            << exact[s] << " code " << int{codes[s]};
      }
    }
  }
}

// quantize_fp8() of torchao, literally; of two codes at the same distance the
// even one.
std::uint8_t torchao_code(float value, float absmax) {
  const float ratio = value / ((absmax < 1e-12f ? 1e-12f : absmax) / 448.0f);
  if (std::isnan(ratio)) return 0x7f;
  const auto size = std::fabs(static_cast<double>(ratio));
  int nearest = 0;
  double least = 500;
  for (int code = 0; code < 0x7f; ++code) {
    const double number = code < 8 ? std::ldexp(code, -9)
                                   : std::ldexp(8 + code % 8, code / 8 - 10);
    const double distance = std::fabs(size - number);
    if (distance < least || (distance == least && code % 2 == 0)) {
      nearest = code;
      least = distance;
    }
  }
  return static_cast<std::uint8_t>(nearest | (std::signbit(ratio) ? 0x80 : 0));
}

// And a step decodes every code.
TEST(BlockCodes, OfFloat8AreTorchaos) {
  const float inf = std::numeric_limits<float>::infinity();
  const float firsts[] = {1, 0, 1e-12f, 1e-30f, 1e15f, inf, std::nanf("")};
  AdamArgs args = keep_args();
  args.one_minus_beta1 = args.one_minus_beta2 = 1;  // m = g, v = g * g
  args.beta2 = 0;
  AdamArgs keep = keep_args();
  keep.step_size = -1;  // w = 0 + m / (sqrt(v) + 1)
  for (const KernelTable& table : kernel_tables_here()) {
    SCOPED_TRACE(table.isa);
    Random random(4);
    for (const float first : firsts) {
      SCOPED_TRACE(first);
      Block block;
      block.float8 = 1;
      for (float& g : block.g) {
        const double decades = static_cast<double>(random.below(5000)) / 1000;
        g = first * static_cast<float>(std::pow(10, -decades) *
                                       (random.below(2) != 0 ? 1 : -1));
      }
      block.run(table, args);
      for (std::size_t i = 0; i < kBlockColumns; ++i) {
        const float g = block.g[i];
        ASSERT_EQ(block.m[i], torchao_code(g, block.absmax[0])) << g;
        ASSERT_EQ(block.v[i], torchao_code(g * g, block.absmax[1])) << g;
      }
    }
    Block all;
    all.float8 = 1;
    for (std::size_t i = 0; i < kBlockColumns; ++i) {
      // But nan and -0, which the step makes +0.
      all.m[i] =
          static_cast<std::uint8_t>(i % 0x80 == 0x7f || i == 0x80 ? 0 : i);
    }
    const std::vector<std::uint8_t> codes = all.m;
    all.absmax[0] = 448;
    all.run(table, keep);
    EXPECT_EQ(all.m, codes);
    for (std::size_t i = 0; i < kBlockColumns; ++i) {
      EXPECT_EQ(torchao_code(all.w[i], 448) & 0x7f, codes[i] & 0x7f);
      EXPECT_EQ(all.w[i]<0, codes[i]> 0x80);
    }
  }
}

// Gradients spread over many decades in a block, and then small ones: no update
// is far above the learning rate, as it was when a v of 0 stood beside an m.
TEST(BlockCodes, KeepUpdatesSmall) {
  for (const KernelTable& table : kernel_tables_here()) {
    SCOPED_TRACE(table.isa);
    for (const double decades : {3.5, 5.0, 8.0, 18.0}) {
      SCOPED_TRACE(decades);
      Block block;
      for (std::size_t i = 0; i < kBlockColumns; ++i) {
        block.g[i] = static_cast<float>(
            std::pow(10, -decades * static_cast<double>(i) / kBlockColumns));
      }
      AdamArgs args = keep_args();
      args.one_minus_beta1 = 0.1f;
      args.beta2 = 0.999f;
      args.one_minus_beta2 = 0.001f;
      args.eps = 1e-30f;
      for (int step = 1; step <= 3; ++step) {
        args.step_size = static_cast<float>(0.001 / (1 - std::pow(0.9, step)));
        args.bias_correction2_sqrt =
            static_cast<float>(std::sqrt(1 - std::pow(0.999, step)));
        const std::vector<float> before = block.w;
        block.run(table, args);
        for (std::size_t i = 0; i < kBlockColumns; ++i) {
          EXPECT_LT(std::fabs(block.w[i] - before[i]), 0.003f) << i;
          EXPECT_NE(block.v[i], 0) << i;
          block.g[i] *= 1e-3f;
        }
      }
    }
  }
}

}  // namespace
}  // namespace swamp::test
