// Softmax's mask, sums of LayerNorm, and the errors of all row operators. The
// softmax of the golden records is in rows_golden_test.cpp, exact norms in
// exact_golden_test.cpp, the bits of the references, on every machine, in
// operators_test.cpp.
#include "swamp/rows.h"

#include <gtest/gtest.h>

#include <vector>

#include "row_values.h"
#include "support/errors.h"
#include "support/formats.h"
#include "support/random.h"

namespace swamp::test {
namespace {

// The two heads of a batch share its part of the mask.
TEST(Rows, SoftmaxMaskOfHeads) {
  constexpr std::size_t kRows = 2 * 2 * 50, kColumns = 129, kPart = 50;
  Random random(9);
  std::vector<std::uint8_t> mask(kRows / 2 * kColumns), whole;
  for (std::uint8_t& byte : mask) byte = random.below(3) == 0;
  for (const std::size_t batch : {0u, 0u, 1u, 1u}) {
    const std::uint8_t* part = mask.data() + batch * kPart * kColumns;
    whole.insert(whole.end(), part, part + kPart * kColumns);
  }
  for (const ScalarType type : kRowTypes) {
    const Values x = with_special_rows(kRows, kColumns, type, 7);
    Values y(kRows, kColumns, type), expected = y;
    SoftmaxOptions options;
    options.mask = {mask.data(), 2, 2, kPart};
    scaled_softmax(x.matrix, y.matrix, options);
    options.mask = {whole.data(), 1, 1, kRows};
    scaled_softmax(x.matrix, expected.matrix, options);
    EXPECT_TRUE(y.bits() == expected.bits());
  }
}

constexpr RowVector kNone{nullptr, kFloat32};

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
  const Bytes before = y.memory;
  expect_refused({
      {[&] { scaled_softmax(null, y.matrix); },
       "x.data: got null, expected the address of 4 x 6 elements"},
      {[&] { scaled_softmax(x.matrix, odd); },
       "y.data: got an address that is not a multiple of 2"},
      {[&] { scaled_softmax(unknown, y.matrix); },
       "x.dtype: got 3 (float64), expected 0 (float16), 1 (bfloat16) or 2",
       SWAMP_UNSUPPORTED},
      {[&] { scaled_softmax(x.matrix, wide.matrix); },
       "y.columns: got 7, expected 6 (as 'x' has)"},
      {[&] { scaled_softmax(x.matrix, other.matrix); },
       "y.dtype: got bfloat16, expected float16 (as 'x' has)"},
      {[&] { scaled_softmax(x.matrix, y.matrix, both); },
       "options.causal_rows: got 2, expected 0 with a mask"},
      {[&] { scaled_softmax(x.matrix, y.matrix, uneven); },
       "options.mask.query_rows: got 3, expected a divisor"},
      {[&] { scaled_softmax(x.matrix, y.matrix, batches); },
       "options.mask.batches: got 3, expected 1 or 2"},
      {[&] { loss({}, row.data()); },
       "targets[3]: got 6, expected a class from 0 to 6 - 1"},
      {[&] { loss(smooth, row.data()); }, "options.label_smoothing: got 1.5"},
      {[&] {
         targets[3] = 1;
         loss({}, nullptr);
       },
       "losses: got null, expected the address of 4 values"},
      {[&] { log_softmax(x.matrix, wide.matrix); },
       "y.columns: got 7, expected 6 (as 'x' has)"},
      {[&] { log_softmax_backward(x.matrix, x.matrix, wide.matrix); },
       "dx.columns: got 7, expected 6 (as 'gradient' has)"},
      {[&] {
         CrossEntropyOptions weighted;
         weighted.class_weights = row.data();
         vocab_parallel_cross_entropy_backward(
             {6, 12}, x.matrix, targets.data(), row.data(), nullptr, row.data(),
             y.matrix, weighted);
       },
       "options.class_weights: got an array, expected null", SWAMP_UNSUPPORTED},
  });
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
