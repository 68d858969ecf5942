// Softmax, LayerNorm, RMSNorm and residual add: the same bits on every machine,
// so also of whole rows and of passes; and the errors of all row operators. The
// kernels' own tests compare every bit with the references; the softmax of the
// golden records is in rows_golden_test.cpp, exact norms in
// exact_golden_test.cpp.
#include "swamp/rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <vector>

#include "row_values.h"
#include "runtime/machine_impl.h"
#include "support/errors.h"
#include "support/formats.h"
#include "support/random.h"

namespace swamp::test {
namespace {

struct SoftmaxCase {
  const char* name;
  std::size_t rows, columns, causal_rows;
  int mask;  // 0: none; 1: a third of it; 2: also whole rows; heads 2
  bool zero_masked_rows;
};
constexpr SoftmaxCase kSoftmaxCases[] = {
    {"one", 1, 1, 0, 0, true},
    {"short", 301, 17, 0, 0, true},
    {"causal", 3 * 64, 64, 64, 0, true},
    {"masked", 2 * 2 * 50, 129, 0, 1, true},
    {"masked rows", 2 * 2 * 50, 129, 0, 2, true},
    {"masked rows, uniform", 2 * 2 * 50, 129, 0, 2, false},
    {"4096", 9, 4096, 0, 0, true},
    {"long", 2, 50257, 0, 0, true},
    {"long causal", 4, 20000, 2, 0, true},
    {"long masked", 2 * 2 * 2, 16391, 0, 2, true},
};

TEST(Rows, Softmax) {
  for (const SoftmaxCase& one : kSoftmaxCases) {
    for (const ScalarType type : kRowTypes) {
      SCOPED_TRACE(std::string(one.name) + " " + format_of(type).name);
      const Values x = with_special_rows(one.rows, one.columns, type, 7);
      const Values gradient(one.rows, one.columns, type, 8);
      std::vector<std::uint8_t> mask(one.rows / 2 * one.columns + 1);
      Random random(9);
      for (std::uint8_t& byte : mask) byte = random.below(3) == 0;
      if (one.mask == 2) {
        std::memset(mask.data() + one.columns, 1, one.columns);
      }
      SoftmaxOptions options;
      options.scale = 0.3f;
      options.causal_rows = one.causal_rows;
      options.zero_masked_rows = one.zero_masked_rows;
      if (one.mask != 0) {
        options.mask = {mask.data(), 2, 2, one.rows / 4};
      }
      const std::vector<Bytes> results = expect_same([&](Machine& machine) {
        Values y(one.rows, one.columns, type);
        scaled_softmax(x.matrix, y.matrix, options, &machine);
        Values in_place = x;
        scaled_softmax(in_place.matrix, in_place.matrix, options, &machine);
        EXPECT_TRUE(in_place.bits() == y.bits());
        Values dx = gradient;
        scaled_softmax_backward(dx.matrix, y.matrix, dx.matrix, options,
                                &machine);
        Values other(one.rows, one.columns, type);
        scaled_softmax_backward(gradient.matrix, y.matrix, other.matrix,
                                options, &machine);
        EXPECT_TRUE(other.bits() == dx.bits());
        return std::vector<Bytes>{y.bits(), dx.bits()};
      });
      if (one.mask == 0) continue;
      // The two heads of a batch share its part of the mask.
      std::vector<std::uint8_t> whole;
      const std::size_t part = one.rows / 4 * one.columns;
      for (const std::size_t batch : {0u, 0u, 1u, 1u}) {
        whole.insert(whole.end(), &mask[batch * part],
                     &mask[batch * part] + part);
      }
      options.mask = {whole.data(), 1, 1, one.rows};
      Values y(one.rows, one.columns, type);
      scaled_softmax(x.matrix, y.matrix, options);
      EXPECT_TRUE(y.bits() == results[0]);
    }
  }
}

constexpr RowVector kNone{nullptr, kFloat32};

struct NormCase {
  const char* name;
  std::size_t rows, columns;
  bool weight, bias, zero_centered;
};
constexpr NormCase kNormCases[] = {
    {"one", 1, 1, true, true, false},
    {"plain", 65, 33, false, false, false},
    {"weight", 700, 64, true, false, false},
    {"zero-centered", 129, 129, true, true, true},
    {"many rows", 5001, 16, true, true, false},
    {"1000", 65, 1000, true, true, false},
    {"1025", 70, 1025, true, true, false},
    {"2048", 5, 2048, true, true, true},
    {"long", 9, 9000, true, true, false},
};

// Norm is one case of layer_norm() or, without a mean, rms_norm().
struct Norm {
  NormCase one;
  ScalarType type, weight_type;
  bool with_mean;
  Values x, gradient, weight, bias;

  Norm(const NormCase& of, ScalarType x_type, ScalarType w_type, bool mean)
      : one(of),
        type(x_type),
        weight_type(w_type),
        with_mean(mean),
        x(of.rows, of.columns, x_type, 41),
        gradient(of.rows, of.columns, x_type, 42),
        weight(1, of.columns, w_type, 43),
        bias(1, of.columns, w_type, 44) {}

  std::vector<Bytes> run(Machine& machine) const {
    const NormOptions options{1e-5, one.zero_centered};
    RowVector w = kNone, b = kNone;
    if (one.weight) w = {weight.memory.data(), weight_type};
    if (one.bias) b = {bias.memory.data(), weight_type};
    Values y(one.rows, one.columns, type), dx = gradient;
    std::vector<float> mean(one.rows), rstd(one.rows), dweight(one.columns),
        dbias(one.columns);
    if (with_mean) {
      layer_norm(x.matrix, w, b, y.matrix, mean.data(), rstd.data(), options,
                 &machine);
      layer_norm_backward(dx.matrix, x.matrix, mean.data(), rstd.data(), w,
                          dx.matrix, dweight.data(), dbias.data(), options,
                          &machine);
    } else {
      rms_norm(x.matrix, w, y.matrix, rstd.data(), options, &machine);
      rms_norm_backward(dx.matrix, x.matrix, rstd.data(), w, dx.matrix,
                        dweight.data(), options, &machine);
    }
    return {y.bits(),      dx.bits(),        bits_of(mean),
            bits_of(rstd), bits_of(dweight), bits_of(dbias)};
  }
};

TEST(Rows, LayerNormAndRmsNorm) {
  for (const NormCase& one : kNormCases) {
    for (const ScalarType type : kRowTypes) {
      for (const bool with_mean : {true, false}) {
        std::vector<ScalarType> weight_types = {kFloat32};
        if (type != kFloat32) weight_types.push_back(type);
        for (const ScalarType weight_type : weight_types) {
          SCOPED_TRACE(std::string(one.name) + " " + format_of(type).name +
                       " " + format_of(weight_type).name +
                       (with_mean ? " layer_norm" : " rms_norm"));
          Norm norm(one, type, weight_type, with_mean);
          norm.x = with_special_rows(one.rows, one.columns, type, 41);
          expect_same([&](Machine& machine) { return norm.run(machine); });
        }
      }
    }
  }
}

// The sums of 8192 rows of ones, where 16-bit sums stop at 256 or 2048.
TEST(Rows, SumsOfManyRowsAreExact) {
  constexpr std::size_t kRows = 8192, kColumns = 24;
  for (const ScalarType type : {kFloat16, kBFloat16}) {
    Values ones(kRows, kColumns, type), dx = ones;
    const std::uint16_t one = type == kFloat16 ? 0x3c00 : 0x3f80;
    for (std::size_t i = 0; i < kRows * kColumns; ++i) {
      store_bits(format_of(type), ones.memory.data(), i, one);
    }
    const std::vector<float> mean(kRows), rstd(kRows, 1.0f);
    std::vector<float> dweight(kColumns), dbias(kColumns);
    layer_norm_backward(ones.matrix, ones.matrix, mean.data(), rstd.data(),
                        kNone, dx.matrix, dweight.data(), dbias.data());
    EXPECT_EQ(dbias, std::vector<float>(kColumns, 8192.0f));
    EXPECT_EQ(dweight, std::vector<float>(kColumns, 8192.0f));
  }
}

// By hand: tests/api/c_abi_rows.c.
TEST(Rows, ResidualAdd) {
  for (const std::size_t columns : {1u, 17u, 1000u, 20001u}) {
    for (const ScalarType type : kRowTypes) {
      for (const bool with_bias : {false, true}) {
        const std::size_t rows = columns > 1000 ? 3 : 41;
        const Values residual(rows, columns, kFloat32, 51);
        const Values x(rows, columns, type, 52), bias(1, columns, type, 53);
        RowVector vector = kNone;
        if (with_bias) vector = {bias.memory.data(), type};
        expect_same([&](Machine& machine) {
          Values sum = residual;
          residual_add_(sum.matrix, x.matrix, vector, &machine);
          return std::vector<Bytes>{sum.memory};
        });
      }
    }
  }
}

TEST(Rows, Errors) {
  Values x(4, 6, kFloat16, 1), y(4, 6, kFloat16), wide(4, 7, kFloat16),
      other(4, 6, kBFloat16);
  std::vector<std::int64_t> targets = {0, 5, -100, 6};
  std::vector<float> row(4);
  std::vector<std::uint8_t> mask(24);
  Matrix null{nullptr, 4, 6, kFloat16};
  Matrix odd{y.memory.data() + 1, 3, 6, kFloat16};
  Matrix unknown{y.memory.data(), 4, 6, static_cast<ScalarType>(3)};
  SoftmaxOptions both;
  both.causal_rows = 2;
  both.mask = {mask.data(), 1, 1, 4};
  SoftmaxOptions uneven;
  uneven.mask = {mask.data(), 1, 1, 3};
  SoftmaxOptions batches;
  batches.mask = {mask.data(), 3, 1, 2};
  CrossEntropyOptions smooth;
  smooth.label_smoothing = 1.5;
  const auto loss = [&](const CrossEntropyOptions& options, float* losses) {
    cross_entropy(x.matrix, targets.data(), losses, row.data(), nullptr,
                  options);
  };
  struct Row {
    std::function<void()> call;
    const char* text;
    swamp_status status;
  };
  const Row rows[] = {
      {[&] { scaled_softmax(null, y.matrix); },
       "x.data: got null, expected the address of 4 x 6 elements",
       SWAMP_INVALID_ARGUMENT},
      {[&] { scaled_softmax(x.matrix, odd); },
       "y.data: got an address that is not a multiple of 2",
       SWAMP_INVALID_ARGUMENT},
      {[&] { scaled_softmax(unknown, y.matrix); },
       "x.dtype: got 3 (float64), expected 0 (float16), 1 (bfloat16) or 2",
       SWAMP_UNSUPPORTED},
      {[&] { scaled_softmax(x.matrix, wide.matrix); },
       "y.columns: got 7, expected 6 (as 'x' has)", SWAMP_INVALID_ARGUMENT},
      {[&] { scaled_softmax(x.matrix, other.matrix); },
       "y.dtype: got 1, expected 0 (as 'x' has)", SWAMP_INVALID_ARGUMENT},
      {[&] { scaled_softmax(x.matrix, y.matrix, both); },
       "options.causal_rows: got 2, expected 0 with a mask",
       SWAMP_INVALID_ARGUMENT},
      {[&] { scaled_softmax(x.matrix, y.matrix, uneven); },
       "options.mask.query_rows: got 3, expected a divisor",
       SWAMP_INVALID_ARGUMENT},
      {[&] { scaled_softmax(x.matrix, y.matrix, batches); },
       "options.mask.batches: got 3, expected 1 or 2", SWAMP_INVALID_ARGUMENT},
      {[&] { loss({}, row.data()); },
       "targets[3]: got 6, expected a class from 0 to 6 - 1",
       SWAMP_INVALID_ARGUMENT},
      {[&] { loss(smooth, row.data()); }, "options.label_smoothing: got 1.5",
       SWAMP_INVALID_ARGUMENT},
      {[&] {
         targets[3] = 1;
         loss({}, nullptr);
       },
       "losses: got null, expected the address of 4 values",
       SWAMP_INVALID_ARGUMENT},
      {[&] { log_softmax(x.matrix, wide.matrix); },
       "y.columns: got 7, expected 6 (as 'x' has)", SWAMP_INVALID_ARGUMENT},
      {[&] { log_softmax_backward(x.matrix, x.matrix, wide.matrix); },
       "dx.columns: got 7, expected 6 (as 'gradient' has)",
       SWAMP_INVALID_ARGUMENT},
      {[&] {
         CrossEntropyOptions weighted;
         weighted.class_weights = row.data();
         vocab_parallel_cross_entropy_backward(
             {6, 12}, x.matrix, targets.data(), row.data(), nullptr, row.data(),
             y.matrix, weighted);
       },
       "options.class_weights: got an array, expected null", SWAMP_UNSUPPORTED},
  };
  const Bytes before = y.memory;
  for (const Row& one : rows) {
    expect_refused(one.call, {one.text}, one.status);
  }
  EXPECT_TRUE(y.memory == before);
  EXPECT_EQ(row, std::vector<float>(4));
}

// A row that fits in neither way, and rows and columns of 0.
TEST(Rows, LdmAndEmpty) {
  MachineConfig config;
  config.transfer = "copy";
  config.ldm_bytes = 8 * 1024;
  Machine machine(config);
  Values x(2, 5000, kFloat32, 3);
  expect_refused(
      [&] { scaled_softmax(x.matrix, x.matrix, {}, &machine); },
      {"x: got rows of 20000 bytes", "a slave has 8192 (SWAMP_LDM_BYTES)"},
      SWAMP_UNSUPPORTED);
  const Matrix none{nullptr, 0, 5, kFloat16};
  const Matrix narrow{nullptr, 5, 0, kFloat16};
  for (const Matrix& empty : {none, narrow}) {
    scaled_softmax(empty, empty, {}, &machine);
    scaled_softmax_backward(empty, empty, empty, {}, &machine);
  }
  EXPECT_EQ(cross_entropy(none, nullptr, nullptr, nullptr, nullptr).weight, 0);
}

}  // namespace
}  // namespace swamp::test
