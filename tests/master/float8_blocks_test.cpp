// quantize_blocks, dequantize_blocks and what they need: the same on every
// machine, and the errors. The golden data are replayed by the program's tests.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "float8_codes.h"
#include "row_values.h"
#include "support/errors.h"
#include "swamp/float8.h"
#include "swamp/float_formats.h"

namespace swamp::test {
namespace {

// By value: a plain loop, and the sums of Hadamard's matrix, which are exact in
// double.
TEST(Float8Blocks, AmaxAndHadamardByValue) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  constexpr char kSigns[] = "+++-+------+-+--";
  Random random(84);
  for (const ScalarType type : {kFloat16, kBFloat16, kFloat32}) {
    for (const std::size_t units : {1u, 2u, 5u, 63u, 700u}) {
      for (const int kind : {0, 1, 2, 3}) {  // numbers, tiny ones, inf, nan
        SCOPED_TRACE(testing::Message() << kFloatFormats[type].name << " "
                                        << units << " kind " << kind);
        const std::size_t count = units * 16;
        Bytes x(count * kFloatFormats[type].bytes), out(x.size());
        float largest = 0;
        bool has_nan = false;
        for (std::size_t i = 0; i < count; ++i) {
          // Tiny ones are subnormal.
          float value = static_cast<float>(random.below(512)) - 255;
          const int place = type == kFloat16   ? -24
                            : type == kFloat32 ? -149
                                               : -133;
          if (kind == 1) value = std::ldexp(std::fmod(value, 128.0f), place);
          if (kind > 1 && random.below(40) == 0) {
            value = std::copysign(kind == 2 ? kInf : std::nanf(""), value);
          }
          store_value(type, x.data(), i, value);
          value = widen(type, x.data(), i);
          has_nan = has_nan || std::isnan(value);
          if (!std::isnan(value)) largest = std::max(largest, std::abs(value));
        }
        on_all_machines(kRowShapes, [&](Machine& machine) {
          const Tensor tensor{x.data(), count, type};
          EXPECT_EQ(amax(tensor, true, &machine), largest);
          const float with_nan = amax(tensor, false, &machine);
          EXPECT_TRUE(has_nan ? std::isnan(with_nan) : with_nan == largest);
          hadamard_transform({x.data(), units, 16, type},
                             {out.data(), units, 16, type}, &machine);
          for (std::size_t i = 0; i < count; ++i) {
            double sum = 0;
            for (std::size_t j = 0; j < 16; ++j) {
              int ones = 0;  // of Sylvester's matrix
              for (std::size_t b = i % 16 & j; b != 0; b /= 2) ones += b % 2;
              const double value =
                  static_cast<double>(widen(type, x.data(), i / 16 * 16 + j));
              sum += (ones % 2 == 0) == (kSigns[j] == '+') ? value : -value;
            }
            Bytes expected(8);
            store_value(type, expected.data(), 0, static_cast<float>(sum / 4));
            const float want = widen(type, expected.data(), 0);
            const float found = widen(type, out.data(), i);
            // The sign of inf - inf is the CPU's, which no result shows.
            ASSERT_TRUE(std::isnan(want)
                            ? std::isnan(found) && !std::signbit(found)
                            : found == want)
                << i << ": " << found << ", expected " << want;
          }
        });
      }
    }
  }
}

// The original's floor(|x| / smallest + 1/2), in float32, rounds up the number
// before 1/2.
TEST(Float8Blocks, MicroxcalingBelowATie) {
  for (const char* name : {"e4m3", "e5m2", "e3m2", "e2m3", "e2m1", "int8"}) {
    SCOPED_TRACE(name);
    const FloatFormat& format = kFloatFormats[code_type(name)];
    const float half = code_to_float(format.type, 1) / 2;
    const float below = std::nextafter(half, 0.0f);
    // The scale of the block is 1.
    const float one = std::ldexp(
        1.0f, std::ilogb(code_to_float(
                  format.type, static_cast<std::uint8_t>(format.largest()))));
    const float values[] = {
        one, half, below, -below, std::nextafter(below, 0.0f), -half};
    for (const Rounding rounding :
         {Rounding::nearest_away, Rounding::nearest_even}) {
      const float tie = rounding == Rounding::nearest_away ? 2 * half : 0;
      const float expected[] = {one, tie, 2 * half, -2 * half, 0, -tie};
      BlockOptions options;
      options.scaling = S::microxcaling;
      options.rounding = rounding;
      for (const std::size_t size : {6u, 32u, 96u}) {
        std::vector<float> x(32 * size), found(x.size());
        for (std::size_t i = 0; i < x.size(); ++i) {
          x[i] = i % size < 6 ? values[i % size] : 0;
        }
        const Matrix matrix{x.data(), 32, size, kFloat32};
        on_all_machines(kRowShapes, [&](Machine& machine) {
          const Both out =
              run(matrix, format.type, options, true, true, &machine);
          dequantize_blocks(out.rows.view, {found.data(), 32, size, kFloat32},
                            options, &machine);
          for (std::size_t i = 0; i < x.size(); ++i) {
            ASSERT_EQ(found[i], i % size < 6 ? expected[i % size] : 0) << i;
          }
        });
      }
      // Along columns, as rows of the transpose.
      std::vector<float> x(32 * 64), turned(x.size());
      for (std::size_t i = 0; i < x.size(); ++i) {
        x[i] = values[i / 64 % 6] * (i % 2 == 0 ? 1.0f : -1.0f);
        turned[i % 64 * 32 + i / 64] = x[i];
      }
      on_all_machines(kRowShapes, [&](Machine& machine) {
        const Octets codes = run({turned.data(), 64, 32, kFloat32}, format.type,
                                 options, true, false, &machine)
                                 .rows.codes;
        EXPECT_EQ(run({x.data(), 32, 64, kFloat32}, format.type, options, true,
                      true, &machine)
                      .columns.codes,
                  codes);
      });
    }
  }
}

// A nan code stays as it is, whatever its scale.
TEST(Float8Blocks, NanCodesAndScales) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInf = std::numeric_limits<float>::infinity();
  BlockOptions options;
  options.scaling = S::te_block;
  for (const Format& format : kFloatFormats) {
    if (format.width != 8 || format.specials == Specials::exponent) continue;
    SCOPED_TRACE(format.name);
    std::vector<float> scales;
    Octets codes;
    for (unsigned i = 0; i < 512; ++i) {  // rows of 128 and of half a code each
      const float kinds[] = {2, kNan, -kNan, kInf, -2, 0.5f, 1, 1};
      scales.push_back(kinds[i % 7]);
      for (unsigned c = 0; c < 128; ++c) {
        codes.push_back(static_cast<std::uint8_t>((i + c) / (1 + i % 3)));
      }
    }
    const BlockCodes view{{codes.data(), codes.size(), format.type},
                          {scales.data(), scales.size(), kFloat32}};
    std::vector<float> found(codes.size());
    dequantize_blocks(view, {found.data(), 512, 128, kFloat32}, options);
    for (std::size_t i = 0; i < found.size(); ++i) {
      const float value = code_to_float(format.type, codes[i]);
      const float scaled = value * scales[i / 128];
      if (std::isnan(scaled) && !std::isnan(value)) {
        ASSERT_TRUE(std::isnan(found[i])) << i;
        continue;
      }
      ASSERT_EQ(float_to_bits(found[i]),
                float_to_bits(std::isnan(value) ? value : scaled))
          << i;
    }
  }
}

TEST(Float8Blocks, Errors) {
  float x[32 * 32] = {};
  Octets codes(1024, 9), scales(1024, 9);
  struct Request {
    Matrix x;
    BlockCodes rows, columns;
    BlockOptions options;
    bool by_row = true, by_column = true;
  };
  const std::vector<Refusal<Request>> rows = {
      {[](Request& c) { c.by_row = c.by_column = false; },
       "rows: got null, expected codes along rows or along columns"},
      {[](Request& c) { c.x.dtype = kFloat64; }, "x.dtype: got 3 (float64)",
       SWAMP_UNSUPPORTED},
      {[](Request& c) { c.options.scaling = static_cast<S>(12); },
       "options.scaling: got 12, expected 0 (mx_floor) to 11"},
      {[](Request& c) { c.options.block = 24; },
       "options.block: got 24, expected 16, 32, 64 or 128 (along columns"},
      {[](Request& c) {
         c.by_column = false;
         c.options.block = 24;
       },
       "options.block: got 24, expected 16, 32, 64 or 128, or the columns, 32"},
      {[](Request& c) { c.options.scaling = S::te_nvfp4; },
       "options.tensor_amax: got nan, expected the largest magnitude"},
      {[](Request& c) { c.options.scaling = S::torchao_nvfp4; },
       "options.tensor_amax: got nan, expected the largest magnitude"},
      {[](Request& c) {
         c.options.scaling = S::te_nvfp4;
         c.options.tensor_amax = -1;
       },
       "options.tensor_amax: got -1, expected the largest magnitude"},
      {[](Request& c) {
         c.options.scaling = S::te_nvfp4;
         c.options.tensor_amax = 1;
       },
       "rows.codes.dtype: got float8_e4m3fn, expected a format with a rule of "
       "te_nvfp4",
       SWAMP_UNSUPPORTED},
      {[](Request& c) { c.rows.codes.dtype = kFloat8E8M0FNU; },
       "rows.codes.dtype: got 12 (float8_e8m0fnu), expected 4",
       SWAMP_UNSUPPORTED},
      {[](Request& c) { c.rows.codes.count = 5; },
       "rows.codes.count: got 5, expected 1024"},
      {[](Request& c) { c.columns.codes.data = nullptr; },
       "columns.codes.data: got null, expected"},
      {[](Request& c) { c.columns.scales.dtype = kFloat32; },
       "columns.scales.dtype: got 2 (float32), expected 12 (float8_e8m0fnu)",
       SWAMP_UNSUPPORTED},
      {[](Request& c) { c.rows.scales.count = 31; },
       "rows.scales.count: got 31, expected 32, one for each block of 32"},
      {[](Request& c) { c.columns.codes.dtype = kFloat8E5M2; },
       "columns.codes.dtype: got float8_e5m2, expected float8_e4m3fn"},
      {[](Request& c) { c.options.rounding = static_cast<Rounding>(5); },
       "options.rounding: got 5"},
      {[](Request& c) {
         c.rows.codes.dtype = c.columns.codes.dtype = kFloat4E2M1FNX2;
         c.by_column = false;
         c.x.columns = 31;
       },
       "x.columns: got 31, expected an even number"},
      {[](Request& c) {
         c.rows.codes.dtype = c.columns.codes.dtype = kFloat4E2M1FNX2;
         c.by_row = false;
         c.x.rows = 31;
       },
       "x.rows: got 31, expected an even number"},
      {[](Request& c) {
         c.rows.codes.dtype = c.columns.codes.dtype = kFloat4E2M1FNX2;
       },
       "rows.codes.count: got 1024, expected 512, half of the elements of 'x'"},
      {[](Request& c) {
         c.options.scaling = S::torchao_float8;
         c.by_row = false;
         c.x.columns = 31;
       },
       "options.block: got 0, expected 16, 32, 64 or 128 (along columns"},
      {[](Request& c) {
         c.by_column = false;
         c.options.hadamard = true;
       },
       "options.hadamard: got true, expected false without columns"}};
  const BlockCodes all = {{codes.data(), 1024, kFloat8E4M3FN},
                          {scales.data(), 32, kFloat8E8M0FNU}};
  expect_refusals({{x, 32, 32, kFloat32}, all, all, {}}, rows, [](Request& c) {
    quantize_blocks(c.x, c.by_row ? &c.rows : nullptr,
                    c.by_column ? &c.columns : nullptr, c.options);
  });
  const Matrix odd{x, 2, 15, kFloat32};
  expect_refused([&] { hadamard_transform(odd, odd); },
                 {"x.columns: got 15, expected a multiple of 16"});
  EXPECT_EQ(codes, Octets(1024, 9));
  EXPECT_EQ(scales, Octets(1024, 9));
  EXPECT_EQ(amax({nullptr, 0, kFloat32}), 0);
}

}  // namespace
}  // namespace swamp::test
