#include "master/cli/cross_entropy.h"

#include <cmath>
#include <cstring>

namespace swamp::cli {
namespace {

// exp_of() and log_of() are + - * / only: libm chooses its exp and log by CPU,
// and the same seed must give the same weights everywhere.

double power_of_two(std::int64_t exponent) {  // a normal one
  const auto bits = static_cast<std::uint64_t>(exponent + 1023) << 52;
  double value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// exp_of() takes x <= 0, -inf or nan.
double exp_of(double x) {
  if (std::isnan(x)) return x;
  if (x < -700.0) return 0.0;
  const auto n = static_cast<std::int64_t>(x * 1.4426950408889634 - 0.5);
  // ln 2 in two parts; the product with the first is exact.
  const double r = x - static_cast<double>(n) * 0x1.62e42feep-1 -
                   static_cast<double>(n) * 0x1.a39ef35793c76p-33;
  double sum = 1.0;  // Taylor's series, |r| < 0.35
  for (int k = 13; k > 0; --k) sum = 1.0 + sum * r / k;
  return sum * power_of_two(n);
}

// log_of() takes x >= 1, inf or nan.
double log_of(double x) {
  if (!std::isfinite(x)) return x;
  std::uint64_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  const auto exponent = static_cast<std::int64_t>(bits >> 52) - 1023;
  const double mantissa = x * power_of_two(-exponent);  // 1 <= mantissa < 2
  const double s = (mantissa - 1.4142135623730951) /
                   (mantissa + 1.4142135623730951);  // |s| < 0.172
  double sum = 0.0;  // log(mantissa / sqrt(2)) = 2 atanh(s)
  for (int k = 21; k > 0; k -= 2) sum = sum * s * s + 1.0 / k;
  return (static_cast<double>(exponent) + 0.5) * 0.6931471805599453 +
         2.0 * s * sum;
}

// row_loss() turns one row of logits into probabilities.
double row_loss(float* logits, std::size_t count, std::size_t target,
                std::vector<double>& exps) {
  float largest = logits[0];
  for (std::size_t i = 1; i < count; ++i) {
    if (logits[i] > largest) largest = logits[i];
  }
  double sum = 0.0;
  for (std::size_t i = 0; i < count; ++i) {
    exps[i] = exp_of(double{logits[i]} - double{largest});
    sum += exps[i];
  }
  const double loss = log_of(sum) - (double{logits[target]} - double{largest});
  for (std::size_t i = 0; i < count; ++i) {
    logits[i] = static_cast<float>(exps[i] / sum);
  }
  return loss;
}

}  // namespace

double cross_entropy(Matrix& logits, const std::vector<std::uint8_t>& targets,
                     float scale) {
  std::vector<double> exps(logits.columns);
  const float row_scale = scale / static_cast<float>(logits.rows);
  double total = 0.0;
  for (std::size_t r = 0; r < logits.rows; ++r) {
    float* row = logits.row(r);
    total += row_loss(row, logits.columns, targets[r], exps);
    row[targets[r]] -= 1.0f;
    for (std::size_t i = 0; i < logits.columns; ++i) row[i] *= row_scale;
  }
  return total / static_cast<double>(logits.rows);
}

}  // namespace swamp::cli
