// The errors of the activations against long double, for every 16-bit number
// and many float32, and refused arguments. The same bits on every machine are
// in operators_test.cpp.
#include "swamp/activation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "support/ci.h"
#include "support/errors.h"
#include "support/formats.h"
#include "support/random.h"

namespace swamp::test {
namespace {

using Real = long double;

Real normal_below(Real x) { return std::erfc(-x / std::sqrt(Real{2})) / 2; }
Real sigmoid(Real x) {
  return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x));
}
Real sigmoid_slope(Real x) { return sigmoid(x) * sigmoid(-x); }
constexpr Real kGeluTanh = 1.5957691216057307117597842397375274738L;
Real inner(Real x) { return kGeluTanh * (x + 0.044715L * x * x * x); }
Real inner_slope(Real x) { return kGeluTanh * (1 + 3 * 0.044715L * x * x); }
constexpr Real kBeta = 1.5L, kThreshold = 8, kAlpha = 1.25L, kScale = 0.75L;
Real softplus(Real z) {
  return z > 0 ? z + std::log1p(std::exp(-z)) : std::log1p(std::exp(z));
}

struct FunctionRow {
  const char* name;
  Activation function;
  Real (*value)(Real x);
  Real (*derivative)(Real x);
  // Whether backward reads the result: the derivative is a function of it.
  bool of_result = false;
};
constexpr FunctionRow kFunctions[] = {
    {"silu", Activation::silu, [](Real x) { return x * sigmoid(x); },
     [](Real x) { return sigmoid(x) + x * sigmoid_slope(x); }},
    {"gelu", Activation::gelu, [](Real x) { return x * normal_below(x); },
     [](Real x) {
       return normal_below(x) +
              x * std::exp(-x * x / 2) * 0.39894228040143267793994605993438L;
     }},
    {"gelu_tanh", Activation::gelu_tanh,
     [](Real x) { return x * sigmoid(inner(x)); },
     [](Real x) {
       return sigmoid(inner(x)) + x * sigmoid_slope(inner(x)) * inner_slope(x);
     }},
    {"tanh", Activation::tanh, [](Real x) { return std::tanh(x); },
     [](Real y) { return (1 - y) * (1 + y); }, true},
    {"sigmoid", Activation::sigmoid, sigmoid,
     [](Real y) { return (1 - y) * y; }, true},
    {"relu", Activation::relu, [](Real x) { return x < 0 ? 0 : x; },
     [](Real x) { return Real{x <= 0 ? 0 : 1.0L}; }},
    {"relu_squared", Activation::relu_squared,
     [](Real x) { return x < 0 ? 0 : x * x; },
     [](Real x) { return x < 0 ? 0 : 2 * x; }},
    {"softplus", Activation::softplus,
     [](Real x) {
       const Real z = kBeta * x;
       if (z > kThreshold) return x;
       return softplus(z) / kBeta;
     },
     [](Real x) {
       return kBeta * x > kThreshold ? Real{1} : sigmoid(kBeta * x);
     }},
    {"exp", Activation::exp, [](Real x) { return std::exp(x); },
     [](Real y) { return y; }, true},
    {"log", Activation::log, [](Real x) { return std::log(x); },
     [](Real x) { return 1 / x; }},
    {"log1p", Activation::log1p, [](Real x) { return std::log1p(x); },
     [](Real x) { return 1 / (1 + x); }},
    {"expm1", Activation::expm1, [](Real x) { return std::expm1(x); },
     [](Real y) { return y + 1; }, true},
    {"rsqrt", Activation::rsqrt, [](Real x) { return 1 / std::sqrt(x); },
     [](Real y) { return -y * y * y / 2; }, true},
    {"mish", Activation::mish,
     [](Real x) { return x * std::tanh(softplus(x)); },
     [](Real x) {
       const Real tanh = std::tanh(softplus(x));
       const Real cosh = x > 5000 ? 0 : 1 / std::cosh(softplus(x));
       return tanh + x * cosh * cosh * sigmoid(x);
     }},
    {"elu", Activation::elu,
     [](Real x) {
       return kScale * (x > 0 ? x : kAlpha * std::expm1(kBeta * x));
     },
     [](Real x) {
       return kScale * (x > 0 ? 1 : kAlpha * kBeta * std::exp(kBeta * x));
     }},
    {"pow", Activation::pow, [](Real x) { return std::pow(x, kBeta); },
     [](Real x) { return kBeta * std::pow(x, kBeta - 1); }},
    {"pow_base", Activation::pow_base,
     [](Real x) { return std::pow(kBeta, x); },
     [](Real x) { return std::pow(kBeta, x) * std::log(kBeta); }},
};

ActivationOptions options_of(Activation function,
                             float beta = static_cast<float>(kBeta)) {
  return {function,
          beta,
          static_cast<float>(kThreshold),
          0,
          static_cast<float>(kAlpha),
          static_cast<float>(kScale)};
}

// inputs() is every number of a 16-bit type, or float32 numbers of all
// exponents, half of them in the range where the functions bend.
std::vector<float> inputs(ScalarType type) {
  std::vector<float> x;
  if (type != kFloat32) {
    for (std::uint32_t bits = 0; bits < 65536; ++bits) {
      x.push_back(static_cast<float>(value_of(format_of(type), bits)));
    }
    return x;
  }
  Random random(5);
  const std::size_t count = std::size_t{1} << (is_ci() ? 20 : 16);
  for (std::size_t i = 0; i < count; ++i) {
    const float any =
        float_from_bits(static_cast<std::uint32_t>(random.next()));
    const float bent = static_cast<float>(
        (static_cast<double>(random.next() >> 11) * 0x1p-52 - 1) * 16);
    x.push_back(i % 2 == 0 ? any : bent);
  }
  // Where a derivative is 0.
  for (const float root :
       {-1.2784645f, -0.7517916f, -0.7524614f, -1.1924143f}) {
    std::uint32_t bits;
    std::memcpy(&bits, &root, sizeof bits);
    for (std::uint32_t i = 0; i < 64; ++i) {
      x.push_back(float_from_bits(bits - 32 + i));
    }
  }
  for (const float special :
       {0.0f, -0.0f, std::numeric_limits<float>::infinity(),
        -std::numeric_limits<float>::infinity(), std::nanf("")}) {
    x.push_back(special);
  }
  return x;
}

// ulps() is the distance of a number from the exact result, in units in the
// last place of the exact one; 0 if both round to inf, or are nan.
Real ulps(ScalarType type, double actual, Real exact) {
  const Format& format = format_of(type);
  if (std::isnan(exact) || std::isnan(actual)) {
    return std::isnan(exact) == std::isnan(actual)
               ? 0
               : std::numeric_limits<Real>::infinity();
  }
  const auto largest = static_cast<Real>(value_of(format, format.largest()));
  if (std::fabs(exact) > largest) {
    if (std::isinf(actual)) return 0;
    exact = std::copysign(largest, exact);
  }
  int exponent = 0;
  std::frexp(exact, &exponent);
  const int lowest = 2 - format.bias();  // as frexp() counts
  const int digits = static_cast<int>(format.mantissa_bits) + 1;
  const Real place = std::ldexp(
      Real{1}, (exact == 0 ? lowest : std::max(exponent, lowest)) - digits);
  return std::fabs(static_cast<Real>(actual) - exact) / place;
}

// Elements is a column of a type.
struct Elements {
  Elements(ScalarType of, const std::vector<float>& values)
      : type(of), memory(values.size()) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      store_bits(format_of(type), memory.data(), i,
                 bits_of(format_of(type), values[i]));
    }
  }
  double value(std::size_t i) const {
    return value_of(format_of(type), load_bits(format_of(type), data(), i));
  }
  const std::uint8_t* data() const {
    return reinterpret_cast<const std::uint8_t*>(memory.data());
  }
  Matrix matrix() { return {memory.data(), 1, memory.size(), type}; }

  ScalarType type;
  std::vector<float> memory;
};

// worst() returns the largest error of forward or backward; the test's XML says
// where it is.
Real worst(const FunctionRow& row, ScalarType type, bool backward) {
  const std::vector<float> values = inputs(type);
  Elements x(type, values), y = x,
                            ones(type, std::vector<float>(values.size(), 1.0f));
  const ActivationOptions options = options_of(row.function);
  if (backward) {
    activation_backward(ones.matrix(), x.matrix(), y.matrix(), options);
  } else {
    activation(x.matrix(), y.matrix(), options);
  }
  Real most = 0;
  double where = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double at = x.value(i);
    const Real exact = (backward ? row.derivative : row.value)(at);
    // 0 times inf is nan, but for a limit that is known.
    if (std::isinf(at)) continue;
    const Real error = ulps(type, y.value(i), exact);
    if (error > most) most = error, where = at;
  }
  testing::Test::RecordProperty(
      std::string(row.name) + (backward ? "_backward" : ""),
      std::to_string(most) + " at " + std::to_string(where));
  return most;
}

TEST(Activation, IsRoundedOnce) {
  for (const FunctionRow& row : kFunctions) {
    for (const ScalarType type : {kFloat16, kBFloat16, kFloat32}) {
      for (const bool backward : {false, true}) {
        // Beside a derivative's 0, both of its terms are larger than the
        // result.
        EXPECT_LE(worst(row, type, backward), backward ? 0.6L : 0.501L)
            << row.name << " of type " << type << (backward ? " backward" : "");
      }
    }
  }
}

// Every function as a gate: both gradients, rounded once from exact products.
TEST(Activation, GatesAreRoundedOnce) {
  for (const FunctionRow& row : kFunctions) {
    if (row.of_result) continue;  // these derivatives are of the result
    for (const ScalarType type : {kFloat16, kBFloat16, kFloat32}) {
      Random random(7);
      std::vector<float> values[3];
      for (std::vector<float>& some : values) {
        for (int i = 0; i < 5000; ++i) {
          some.push_back(static_cast<float>(
              (static_cast<double>(random.next() >> 11) * 0x1p-52 - 1) * 6));
        }
      }
      Elements gate(type, values[0]), up(type, values[1]),
          gradient(type, values[2]), y = gate, dgate = gate, dup = gate;
      const ActivationOptions options = options_of(row.function);
      gated_activation(gate.matrix(), up.matrix(), y.matrix(), options);
      gated_activation_backward(gradient.matrix(), gate.matrix(), up.matrix(),
                                dgate.matrix(), dup.matrix(), options);
      for (std::size_t i = 0; i < values[0].size(); ++i) {
        const Real x = gate.value(i), u = up.value(i), g = gradient.value(i);
        ASSERT_LE(ulps(type, y.value(i), row.value(x) * u), 0.502L) << row.name;
        ASSERT_LE(ulps(type, dup.value(i), g * row.value(x)), 0.502L)
            << row.name;
        ASSERT_LE(ulps(type, dgate.value(i), g * u * row.derivative(x)), 0.6L)
            << row.name;
      }
    }
  }
}

// Exponents whose powers overflow, are subnormal, have a sign, or are roots;
// and bases.
TEST(Activation, PowersAreRoundedOnce) {
  for (const ScalarType type : {kFloat16, kBFloat16, kFloat32}) {
    const std::vector<float> values = inputs(type);
    Elements x(type, values), y = x;
    for (const Activation function : {Activation::pow, Activation::pow_base}) {
      for (const float beta :
           {-127.5f, -37.0f, -3.0f, -2.0f, -1.0f, -0.5f, -0.3f, 0x1p-30f, 0.25f,
            0.5f, 1.7f, 2.0f, 3.0f, 5.0f, 6.0f, 127.3f, 10000.0f, 8388609.0f}) {
        activation(x.matrix(), y.matrix(), options_of(function, beta));
        const std::size_t step = (type == kFloat32 ? 7 : 1) * (is_ci() ? 1 : 5);
        for (std::size_t i = 0; i < values.size(); i += step) {
          const Real at = x.value(i);
          const Real exact = function == Activation::pow
                                 ? std::pow(at, Real{beta})
                                 : std::pow(Real{beta}, at);
          ASSERT_LE(ulps(type, y.value(i), exact), 0.501L)
              << static_cast<double>(at) << ' ' << beta << ' ' << y.value(i);
        }
      }
    }
  }
}

// The sign of 0, inf and nan are those of C's functions.
TEST(Activation, SpecialValuesAreOfC) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::nanf("");
  const std::vector<float> values = {
      nan, inf, -inf, 0,     -0.0f, 1,    -1,     2,    -2,     3,   -3,
      0.5, -4,  -7,   -0.5f, 1.5f,  -2.5, 1e-40f, -256, -65504, 200, -200};
  const auto expect = [](const Elements& x, const Elements& y, std::size_t i,
                         double exact, float beta) {
    const auto text = testing::Message()
                      << x.value(i) << ' ' << beta << " of type " << x.type;
    EXPECT_EQ(std::isnan(y.value(i)), std::isnan(exact)) << text;
    if (std::isnan(exact)) return;
    EXPECT_LE(ulps(x.type, y.value(i), exact), 0.501L) << text << ' ' << exact;
    EXPECT_EQ(std::signbit(y.value(i)), std::signbit(exact)) << text;
  };
  for (const ScalarType type : {kFloat16, kBFloat16, kFloat32}) {
    Elements x(type, values), y = x;
    for (const float beta : values) {
      activation(x.matrix(), y.matrix(), options_of(Activation::pow, beta));
      for (std::size_t i = 0; i < values.size(); ++i) {
        expect(x, y, i, std::pow(x.value(i), double{beta}), beta);
      }
      activation(x.matrix(), y.matrix(),
                 options_of(Activation::pow_base, beta));
      for (std::size_t i = 0; i < values.size(); ++i) {
        expect(x, y, i, std::pow(double{beta}, x.value(i)), beta);
      }
    }
    const struct {
      Activation function;
      double (*exact)(double x);
    } kRows[] = {
        {Activation::exp, [](double v) { return std::exp(v); }},
        {Activation::log, [](double v) { return std::log(v); }},
        {Activation::log1p, [](double v) { return std::log1p(v); }},
        {Activation::expm1, [](double v) { return std::expm1(v); }},
        {Activation::rsqrt, [](double v) { return 1 / std::sqrt(v); }},
    };
    for (const auto& row : kRows) {
      activation(x.matrix(), y.matrix(), options_of(row.function));
      for (std::size_t i = 0; i < values.size(); ++i) {
        expect(x, y, i, row.exact(x.value(i)),
               static_cast<float>(static_cast<int>(row.function)));
      }
    }
  }
}

// Of powers that are products.
TEST(Activation, GradientsOfWholePowers) {
  for (const ScalarType type : {kFloat16, kBFloat16, kFloat32}) {
    const std::vector<float> values = inputs(type);
    Elements x(type, values), dx = x,
                              ones(type, std::vector<float>(values.size(), 1));
    for (const float beta : {-2.0f, -1.0f, 2.0f, 3.0f}) {
      activation_backward(ones.matrix(), x.matrix(), dx.matrix(),
                          options_of(Activation::pow, beta));
      for (std::size_t i = 0; i < values.size(); ++i) {
        const Real at = x.value(i);
        ASSERT_LE(ulps(type, dx.value(i), Real{beta} * std::pow(at, beta - 1)),
                  0.6L)
            << static_cast<double>(at) << ' ' << beta << ' ' << dx.value(i);
      }
    }
  }
}

// Powers that do not depend on x have a derivative of 0.
TEST(Activation, ConstantPowersHaveNoGradient) {
  for (const ScalarType type : {kFloat16, kBFloat16, kFloat32}) {
    const std::vector<float> values = {0, 1, 2.5f};
    Elements x(type, values), ones(type, {1, 1, 1}), dx = x;
    for (const Activation function : {Activation::pow, Activation::pow_base}) {
      activation_backward(ones.matrix(), x.matrix(), dx.matrix(),
                          options_of(function, 0));
      for (std::size_t i = 0; i < values.size(); ++i) {
        EXPECT_EQ(dx.value(i), 0) << values[i];
      }
    }
  }
}

// Of a masked element the gradient is 0, even if an overflow made it inf; nan
// is passed on.
TEST(Activation, ReluMasksAnyGradient) {
  const float inf = std::numeric_limits<float>::infinity();
  for (const ScalarType type : {kFloat16, kBFloat16, kFloat32}) {
    for (const Activation function :
         {Activation::relu, Activation::relu_squared}) {
      Elements x(type, {std::nanf(""), -1, 0, 1, -inf}),
          gradient(type, std::vector<float>(5, inf)), dx = x;
      activation_backward(gradient.matrix(), x.matrix(), dx.matrix(),
                          {function});
      for (const std::size_t masked : {1u, 2u, 4u}) {
        EXPECT_EQ(dx.value(masked), 0) << masked;
      }
      EXPECT_EQ(dx.value(3), double{inf});
      EXPECT_FALSE(std::isfinite(dx.value(0)));
    }
  }
}

// Only relu passes the gradient on.
TEST(Activation, GradientAtNanIsNan) {
  for (const FunctionRow& row : kFunctions) {
    const Activation function = options_of(row.function).function;
    if (function == Activation::relu || function == Activation::relu_squared) {
      continue;
    }
    for (const ScalarType type : {kFloat16, kBFloat16, kFloat32}) {
      for (const std::size_t count : {1u, 40u}) {
        Elements x(type, std::vector<float>(count, std::nanf(""))),
            gradient(type, std::vector<float>(count, 1)), dx = x;
        activation_backward(gradient.matrix(), x.matrix(), dx.matrix(),
                            options_of(row.function));
        EXPECT_TRUE(std::isnan(dx.value(count - 1))) << row.name;
      }
    }
  }
}

TEST(Activation, RefusesWrongArguments) {
  float data[8] = {};
  const Matrix x{data, 2, 2, kFloat32}, wide{data, 2, 4, kFloat32},
      half{data, 2, 2, kFloat16}, none{nullptr, 2, 2, kFloat32};
  const auto step = [](std::size_t elements) {
    return ActivationOptions{Activation::silu, 1, 20, elements};
  };
  const ActivationOptions unknown{static_cast<Activation>(17)};
  expect_refused({
      {[&] { activation(none, x); }, "x.data: got null"},
      {[&] { activation(x, wide); }, "y.columns: got 4, expected 2"},
      {[&] { activation(x, half); },
       "y.dtype: got float16, expected float32 (as 'x' has)"},
      {[&] { activation(x, x, unknown); }, "options.function: got 17"},
      {[&] { activation(x, x, step(4)); },
       "options.row_step: got 4, expected 0 without a gate"},
      {[&] { activation_backward(x, x, x, step(4)); },
       "options.row_step: got 4, expected 0 without a gate"},
      {[&] { activation_backward(x, wide, x); }, "x.columns: got 4"},
      {[&] { activation_backward(x, x, wide); }, "dx.columns: got 4"},
      {[&] { gated_activation(x, wide, x); }, "up.columns: got 4"},
      {[&] { gated_activation(x, x, x, step(1)); },
       "options.row_step: got 1, expected 0, or from 2 to 536870912"},
      {[&] { gated_activation_backward(x, x, x, x, wide); },
       "dup.columns: got 4"},
      {[&] { gated_activation_backward(x, x, wide, x, x); },
       "up.columns: got 4"},
  });
}

}  // namespace
}  // namespace swamp::test
