// quantized_values and block_amax: what the codes of quantize_blocks() give, on
// every machine, and the errors.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "float8_codes.h"
#include "row_values.h"
#include "support/errors.h"
#include "swamp/float8.h"
#include "swamp/float_formats.h"

namespace swamp::test {
namespace {

// value_of() is element (r, c) of a matrix of codes times its scale.
float value_of(const Output& out, std::size_t r, std::size_t c,
               std::size_t columns, const BlockOptions& options) {
  const ScalarType format = out.view.codes.dtype;
  const BlockScales how = block_scales(options.scaling);
  const std::size_t block = options.block != 0 ? options.block
                            : how.block != 0   ? how.block
                                               : columns;
  const std::size_t i = r * columns + c;
  const bool is_packed = format == kFloat4E2M1FNX2;
  std::uint8_t code = out.codes[is_packed ? i / 2 : i];
  if (is_packed) code = i % 2 == 0 ? code & 15 : code >> 4;
  const bool single = options.square && how.dtype == kFloat32;
  const std::size_t at =
      (single ? r / block : r) * ((columns + block - 1) / block) + c / block;
  float scale;
  if (how.dtype == kFloat32) {
    std::memcpy(&scale, &out.scales[4 * at], 4);
  } else {
    scale = code_to_float(how.dtype, out.scales[at]);
  }
  const float value = code_to_float(format, code);
  return std::isnan(value) ? value : value * scale;
}

bool same(float a, float b) {
  return float_to_bits(a) == float_to_bits(b) ||
         (std::isnan(a) && std::isnan(b));
}

// Values are code times scale, along rows and along columns, with the same
// random bits, for every dtype of x; bfloat16 if it has all of them.
TEST(Float8Values, ValuesAreCodesTimesScales) {
  struct Row {
    S scaling;
    const char* format;
    std::size_t rows, columns;
    bool square, hadamard;
    Rounding rounding;
    float magnitude;
    bool exact;  // whether bfloat16 has all values of a float32 x
  };
  constexpr Rounding kEven = Rounding::nearest_even,
                     kAway = Rounding::nearest_away,
                     kRandom = Rounding::stochastic;
  const Row table[] = {
      {S::mx_floor, "e4m3", 64, 96, false, false, kEven, 1, true},
      {S::mx_rceil, "e5m2", 40, 130, false, false, kAway, 1e-30f, true},
      {S::te_mxfp8, "e4m3", 200, 300, false, false, kRandom, 1, true},
      {S::te_mxfp8, "e4m3", 64, 64, true, false, kEven, 1e30f, true},
      // Subnormal numbers that bfloat16 lacks.
      {S::te_mxfp8, "e4m3", 64, 64, false, false, kEven, 1e-40f, false},
      {S::microxcaling, "int8", 64, 96, false, false, kAway, 1, true},
      {S::te_nvfp4, "e2m1", 96, 80, false, true, kRandom, 1, true},
      {S::te_nvfp4, "e2m1", 48, 160, true, false, kEven, 1e-30f, true},
      {S::torchao_nvfp4, "e2m1", 32, 64, false, false, kEven, 1e20f, true},
      {S::te_block, "e4m3", 130, 260, false, false, kEven, 1, false},
      {S::te_block, "e4m3", 130, 260, true, false, kEven, 1, false},
      {S::te_block_power_of_2, "e4m3", 256, 140, false, false, kEven, 1, true},
      {S::torchao_float8_power_of_2, "e5m2", 9, 70, false, false, kEven, 1,
       true}};
  Random random(91);
  for (const Row& row : table) {
    const ScalarType format = code_type(row.format);
    // Stripes of 128 rows and columns need more LDM.
    std::vector<MachineShape> shapes = kRowShapes;
    if (block_scales(row.scaling).block == 128) shapes = {{1, 2, 512 * 1024}};
    const bool has_columns =
        !row.square && row.scaling != S::torchao_float8_power_of_2;
    for (const ScalarType type : {kFloat16, kBFloat16, kFloat32}) {
      const std::size_t count = row.rows * row.columns;
      Bytes x(count * kFloatFormats[type].bytes);
      for (std::size_t i = 0; i < count; ++i) {
        const float value =
            (static_cast<float>(random.below(20001)) - 10000) / 7000;
        store_value(type, x.data(), i,
                    type == kFloat16 ? value : value * row.magnitude);
      }
      const Matrix matrix{x.data(), row.rows, row.columns, type};
      BlockOptions options;
      options.scaling = row.scaling;
      options.square = row.square;
      options.hadamard = row.hadamard;
      options.rounding = row.rounding;
      options.seed = 5;
      options.tensor_amax = amax({x.data(), count, type});
      for (const ScalarType wide : {kBFloat16, kFloat32}) {
        SCOPED_TRACE(testing::Message() << row.format << " scaling "
                                        << static_cast<int>(row.scaling)
                                        << " of " << kFloatFormats[type].name
                                        << " as " << kFloatFormats[wide].name);
        const bool is_large = row.square && wide == kFloat32 &&
                              type == kFloat32 &&
                              block_scales(row.scaling).block == 128;
        on_all_machines(shapes, [&](Machine& machine) {
          // Two squares of 128 x 128 float32 as input, and two as output, do
          // not fit into the LDM of a Sunway slave.
          if (is_large && machine.info().chosen.backend == "athread") return;
          const Both codes =
              run(matrix, format, options, true, has_columns, &machine);
          Bytes found[2] = {Bytes(count * kFloatFormats[wide].bytes),
                            Bytes(count * kFloatFormats[wide].bytes)};
          const Matrix rows{found[0].data(), row.rows, row.columns, wide};
          const Matrix columns{found[1].data(), row.rows, row.columns, wide};
          const ValueReport report = quantized_values(
              matrix, format, &rows, has_columns ? &columns : nullptr, options,
              &machine);
          // Subnormal bfloat16 elements, and all float16, keep their bits.
          const bool exact =
              row.exact || (type != kFloat32 && row.scaling != S::te_block);
          EXPECT_EQ(report.exact, exact || wide == kFloat32);
          EXPECT_FALSE(report.has_nan);
          EXPECT_EQ(report.amax, options.tensor_amax);
          if (!report.exact) return;
          for (std::size_t i = 0; i < count; ++i) {
            const std::size_t r = i / row.columns, c = i % row.columns;
            ASSERT_PRED2(same, widen(wide, found[0].data(), i),
                         value_of(codes.rows, r, c, row.columns, options))
                << "rows " << i;
            if (!has_columns) continue;
            ASSERT_PRED2(same, widen(wide, found[1].data(), i),
                         value_of(codes.columns, c, r, row.rows, options))
                << "columns " << i;
          }
        });
      }
    }
  }
}

// The largest magnitudes of blocks, and values by factors of rows and columns
// that are given.
TEST(Float8Values, AmaxOfBlocksAndGivenFactors) {
  constexpr std::size_t kRows = 70, kColumns = 300;
  Random random(92);
  std::vector<float> x, row_factors, column_factors;
  for (std::size_t i = 0; i < kRows * kColumns; ++i) {
    x.push_back((static_cast<float>(random.below(20001)) - 10000) / 700);
  }
  for (std::size_t i = 0; i < kRows; ++i) {
    row_factors.push_back(std::ldexp(1.0f, static_cast<int>(i % 9) - 4));
  }
  for (std::size_t i = 0; i < kColumns; ++i) {
    column_factors.push_back(0.1f * static_cast<float>(i % 11 + 1));
  }
  const Matrix matrix{x.data(), kRows, kColumns, kFloat32};
  on_all_machines(kRowShapes, [&](Machine& machine) {
    std::vector<float> of_rows(kRows * 3), of_columns(kColumns);
    const Tensor rows{of_rows.data(), of_rows.size(), kFloat32};
    const Tensor columns{of_columns.data(), of_columns.size(), kFloat32};
    const ValueReport report =
        block_amax(matrix, &rows, &columns, {}, &machine);
    std::vector<float> expected_rows(of_rows.size()),
        expected_columns(of_columns.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
      const std::size_t r = i / kColumns, c = i % kColumns;
      float& row = expected_rows[r * 3 + c / 128];
      row = std::max(row, std::abs(x[i]));
      expected_columns[c] = std::max(expected_columns[c], std::abs(x[i]));
    }
    EXPECT_EQ(of_rows, expected_rows);
    EXPECT_EQ(of_columns, expected_columns);
    EXPECT_EQ(report.amax, *std::max_element(of_rows.begin(), of_rows.end()));
    EXPECT_EQ(report.column_amax, report.amax);
    for (const ScalarType format : {kFloat8E4M3FN, kHiFloat8}) {
      BlockOptions options;
      options.rounding =
          format == kHiFloat8 ? Rounding::nearest_away : Rounding::nearest_even;
      options.row_factors = row_factors.data();
      options.column_factors = column_factors.data();
      for (const bool divide : {false, true}) {
        options.divide = divide;
        std::vector<float> found[2] = {std::vector<float>(x.size()),
                                       std::vector<float>(x.size())};
        const Matrix out[2] = {{found[0].data(), kRows, kColumns, kFloat32},
                               {found[1].data(), kRows, kColumns, kFloat32}};
        quantized_values(matrix, format, &out[0], &out[1], options, &machine);
        for (std::size_t i = 0; i < x.size(); ++i) {
          const float factors[] = {row_factors[i / kColumns],
                                   column_factors[i % kColumns]};
          for (const int way : {0, 1}) {
            float v = x[i] * factors[way];
            std::uint8_t code;
            QuantizeOptions how;
            how.rounding = options.rounding;
            if (i % 97 == 0) {
              quantize({&v, 1, kFloat32}, {&code, 1, format}, how);
              const float value = code_to_float(format, code);
              ASSERT_PRED2(same, found[way][i],
                           divide ? value * (1 / factors[way]) : value)
                  << i;
            }
          }
        }
      }
    }
  });
}

TEST(Float8Values, ErrorsOfValues) {
  float x[32 * 32] = {}, out[32 * 32] = {}, factors[32] = {};
  struct Request {
    Matrix x, rows, columns;
    BlockOptions options;
    ScalarType format = kFloat8E4M3FN;
    bool by_row = true, by_column = true;
  };
  const std::vector<Refusal<Request>> table = {
      {[](Request& c) { c.by_row = c.by_column = false; },
       "rows: got null, expected values along rows or along columns"},
      {[](Request& c) { c.format = kFloat16; }, "format: got 0 (float16)",
       SWAMP_UNSUPPORTED},
      {[](Request& c) { c.format = kFloat8E8M0FNU; }, "format: got 12",
       SWAMP_UNSUPPORTED},
      {[](Request& c) { c.format = kHiFloat8; },
       "format: got hifloat8, expected a format with a rule of te_mxfp8",
       SWAMP_UNSUPPORTED},
      {[](Request& c) { c.rows.dtype = kFloat16; },
       "rows.dtype: got 0 (float16), expected 1 (bfloat16) or 2 (float32)",
       SWAMP_UNSUPPORTED},
      {[](Request& c) { c.columns.dtype = kBFloat16; },
       "columns.dtype: got bfloat16, expected float32 (as 'rows' has)"},
      {[](Request& c) { c.rows.rows = 31; }, "rows.rows: got 31, expected 32"},
      {[](Request& c) { c.options.square = true; },
       "columns: got values, expected null if square"},
      {[](Request& c) { c.options.column_factors = nullptr; },
       "options.column_factors: got null, expected the factors"},
      {[](Request& c) { c.options.hadamard = true; },
       "options.hadamard: got true, expected false if factors are given"}};
  const Matrix all{out, 32, 32, kFloat32};
  for (const Refusal<Request>& one : table) {
    Request base{{x, 32, 32, kFloat32}, all, all, {}};
    if (std::string(one.text).find("options.") == 0) {
      base.options.row_factors = base.options.column_factors = factors;
    }
    expect_refusals(base, {one}, [](Request& c) {
      quantized_values(c.x, c.format, c.by_row ? &c.rows : nullptr,
                       c.by_column ? &c.columns : nullptr, c.options);
    });
  }
  for (const float value : out) ASSERT_EQ(value, 0);
}

}  // namespace
}  // namespace swamp::test
