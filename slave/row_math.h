// The scalar arithmetic of row kernels: exp, log, and how the partial results
// of the chunks of a row are combined. Plain multiplications and additions in a
// fixed order, so that master, slaves and every ISA have the same bits.
#ifndef SWAMP_SLAVE_ROW_MATH_H_
#define SWAMP_SLAVE_ROW_MATH_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "swamp/float_formats.h"

namespace swamp::slave {

// A chunk is kChunkColumns consecutive columns, counted from the start of a
// row. Float32 sums end with a chunk; the sums of the chunks are added in
// double.
inline constexpr std::size_t kChunkColumns = 4096;
// Within a chunk, element i is added to chain i % kChains; the chains are added
// as a fixed binary tree: first those 32 apart, then 16, 8, 4, 2 and 1.
inline constexpr std::size_t kChains = 64;

// ChainSums is a sum over a part of a chunk: chain i holds the elements whose
// column is i mod kChains, added in their order.
struct ChainSums {
  float chains[kChains];

  void clear() noexcept {
    for (float& chain : chains) chain = 0;
  }

  // total() adds the chains as a fixed binary tree.
  float total() const noexcept {
    float sum[kChains];
    for (std::size_t i = 0; i < kChains; ++i) sum[i] = chains[i];
    for (std::size_t distance = kChains / 2; distance != 0; distance /= 2) {
      for (std::size_t i = 0; i < distance; ++i) sum[i] += sum[i + distance];
    }
    return sum[0];
  }
};

// exp(t) for t <= 0 is 2^n * exp(r), with n the integer nearest to t * log2(e)
// and r = t - n * ln2. The product n * kLn2High is exact. exp(r) is
// 1 + r + r^2 * (c2 + ... + c6 * r^4); the coefficients are minimax for
// |r| <= 0.3466. The error is at most 0.983 ulp, measured for every float.
namespace exp_constant {
inline constexpr float kLowest = -87.3f;  // below, exp is 0: never subnormal
inline constexpr float kLog2E = 0x1.715476p0f;
// Adding it rounds to an integer n; the low bits of the sum are then n + 127,
// the exponent of 2^n.
inline constexpr float kRound = 12583039.0f;  // 1.5 * 2^23 + 127
inline constexpr float kLn2High = 0x1.63p-1f;
inline constexpr float kMinusLn2Low = 0x1.bd0106p-13f;
inline constexpr float kC2 = 0x1.fffffcp-2f;
inline constexpr float kC3 = 0x1.555492p-3f;
inline constexpr float kC4 = 0x1.5558f2p-5f;
inline constexpr float kC5 = 0x1.1239e0p-7f;
inline constexpr float kC6 = 0x1.6a243ap-10f;
}  // namespace exp_constant

// exp_nonpositive() is E(t) of row kernels, for t <= 0 or nan, -inf included.
inline float exp_nonpositive(float t) noexcept {
  using namespace exp_constant;
  if (t < kLowest) return 0.0f;
  const float rounded = t * kLog2E + kRound;
  const float power = float_from_bits(float_to_bits(rounded) << 23);
  const float n = rounded - kRound;
  const float r = (t - n * kLn2High) + n * kMinusLn2Low;
  float q = kC6 * r + kC5;
  q = q * r + kC4;
  q = q * r + kC3;
  q = q * r + kC2;
  return ((q * (r * r) + r) + 1.0f) * power;
}

// log_positive() is log(x) of 0, inf, nan and every normal x > 0. With
// x = 2^k * (1 + f) and s = f / (2 + f), log(1 + f) = 2 * atanh(s), which is
// computed as f - (f^2/2 - s * (f^2/2 + s^2 * P(s^2))).
inline double log_positive(double x) noexcept {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  if (!(x > 0)) return x == 0 ? -kInf : x - x;
  if (x == kInf) return x;
  std::int64_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  // 1 + f lies between sqrt(1/2) and sqrt(2).
  constexpr std::int64_t kSqrtHalf = 0x3fe6a09e667f3bcd;
  const std::int64_t exponent = (bits - kSqrtHalf) >> 52;
  bits -= exponent * (std::int64_t{1} << 52);
  double f;
  std::memcpy(&f, &bits, sizeof f);
  f -= 1.0;
  const double k = static_cast<double>(exponent);
  const double s = f / (2.0 + f);
  const double z = s * s;
  double p = 0x1.2f0d8f5b2492fp-3;
  p = p * z + 0x1.39a0f4ef117e6p-3;
  p = p * z + 0x1.7466462d4d069p-3;
  p = p * z + 0x1.c71c51e7f39f9p-3;
  p = p * z + 0x1.2492494217a65p-2;
  p = p * z + 0x1.999999997fb31p-2;
  p = p * z + 0x1.5555555555593p-1;
  const double half_square = 0.5 * f * f;
  const double low = s * (half_square + z * p) + k * 0x1.a39ef35793c76p-33;
  return k * 0x1.62e42fee00000p-1 - ((half_square - low) - f);
}

// SoftmaxChunk is the partial result of one chunk: its largest element, and the
// sum of E(e - max). If an element is nan or +inf, both are nan. If all are
// -inf, max is -inf and the sum is 0.
struct SoftmaxChunk {
  float max;
  float sum;
};

// chunk_shift() returns the number that is subtracted from the elements of a
// chunk before E.
inline float chunk_shift(float chunk_max) noexcept {
  return chunk_max == -std::numeric_limits<float>::infinity() ? 0.0f
                                                              : chunk_max;
}

// LogSumExp is log(sum of exp(e)) of a row as two numbers: `high` is rounded to
// float32, and `low` is what the rounding lost. If |high| is large, it has lost
// most of the log, so log-probabilities are (e - high) - low.
struct LogSumExp {
  float high, low;
};

// log_sum_exp() returns max + log_sum.
inline LogSumExp log_sum_exp(float max, double log_sum) noexcept {
  const double wide = static_cast<double>(max);
  const float high = static_cast<float>(wide + log_sum);
  return {high,
          static_cast<float>((wide - static_cast<double>(high)) + log_sum)};
}

// SoftmaxTotal is the combined chunks of a row: sum = sum of exp(e - max).
struct SoftmaxTotal {
  float max;
  double sum;

  // factor() is what E(e - chunk_shift(chunk_max)) is multiplied by.
  float factor(float chunk_max) const noexcept {
    return static_cast<float>(
        static_cast<double>(exp_nonpositive(chunk_max - max)) / sum);
  }
};

// combine_chunks() combines the chunks of a row in order. The result is nan if
// a chunk is nan. A chunk of nothing but -inf adds nothing, and a row of
// nothing but -inf is nan.
inline SoftmaxTotal combine_chunks(const SoftmaxChunk* chunks,
                                   std::size_t count) noexcept {
  float max = -std::numeric_limits<float>::infinity();
  for (std::size_t c = 0; c < count; ++c) {
    if (max == max && !(chunks[c].max <= max)) max = chunks[c].max;
  }
  double sum = 0;
  for (std::size_t c = 0; c < count; ++c) {
    sum += static_cast<double>(chunks[c].sum) *
           static_cast<double>(exp_nonpositive(chunks[c].max - max));
  }
  return {max, sum};
}

}  // namespace swamp::slave

#endif  // SWAMP_SLAVE_ROW_MATH_H_
