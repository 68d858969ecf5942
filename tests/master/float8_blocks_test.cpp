// quantize_blocks, dequantize_blocks and what they need: the codes and scales
// of shared golden data, the same on every machine, and the errors.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "machines.h"
#include "row_values.h"
#include "slave/scale_rules.h"
#include "support/errors.h"
#include "support/json_fields.h"
#include "swamp/float8.h"
#include "swamp/float_formats.h"

namespace swamp::test {
namespace {

using Octets = std::vector<std::uint8_t>;
using S = BlockScaling;

const std::vector<MachineShape> kShapes = {
    {1, 3, 64 * 1024}, {1, 2, 256 * 1024}, {6, 64, 64 * 1024}};
// Blocks of 128 x 128 float32 and their codes need more than 64 KiB.
const std::vector<MachineShape> kLargeShapes = {{1, 3, 512 * 1024},
                                                {1, 2, 1024 * 1024}};

// Input is a matrix of float32 that are bfloat16, and of bfloat16.
struct Input {
  std::size_t rows, columns;
  std::vector<float> wide;
  std::vector<std::uint16_t> bits;

  Matrix matrix() const {
    return {const_cast<std::uint16_t*>(bits.data()), rows, columns, kBFloat16};
  }
  Matrix wide_matrix() const {
    return {const_cast<float*>(wide.data()), rows, columns, kFloat32};
  }
  Tensor tensor() const {
    return {const_cast<std::uint16_t*>(bits.data()), bits.size(), kBFloat16};
  }
};

const Input& input(const std::string& name) {
  static const std::map<std::string, Input> inputs = [] {
    std::map<std::string, Input> all;
    for_each_golden("blocks/inputs", [&](JsonFields fields) {
      Input& one = all[fields.text("name")];
      one.rows = std::stoul(fields.text("rows"));
      one.columns = std::stoul(fields.text("cols"));
      for (const std::uint32_t word : fields.words("bf16", 4)) {
        one.bits.push_back(static_cast<std::uint16_t>(word));
        one.wide.push_back(float_from_bits(word << 16));
      }
    });
    return all;
  }();
  return inputs.at(name);
}

ScalarType code_type(const std::string& name) {
  return name == "e4m3"   ? kFloat8E4M3FN
         : name == "e5m2" ? kFloat8E5M2
         : name == "e2m3" ? kFloat6E2M3FN
         : name == "e3m2" ? kFloat6E3M2FN
         : name == "int8" ? kMxInt8
                          : kFloat4E2M1FNX2;
}

Octets octets(const std::vector<std::uint32_t>& words) {
  return Octets(words.begin(), words.end());
}

struct Scaled {
  ScalarType scales;
  std::size_t block;
};
Scaled scaled(const BlockOptions& options, std::size_t columns) {
  const bool mx = options.scaling <= S::microxcaling;
  const bool nvfp4 = !mx && options.scaling <= S::torchao_nvfp4;
  const std::size_t block = mx      ? 32
                            : nvfp4 ? 16
                            : options.scaling <= S::te_block_power_of_2
                                ? 128
                                : columns;
  return {mx      ? kFloat8E8M0FNU
          : nvfp4 ? kFloat8E4M3FN
                  : kFloat32,
          options.block != 0 ? options.block : block};
}

// Output owns the codes and scales of a matrix of this shape.
struct Output {
  Octets codes, scales;
  BlockCodes view;

  Output(std::size_t rows, std::size_t columns, ScalarType format,
         const BlockOptions& options) {
    const Scaled how = scaled(options, columns);
    const std::size_t blocks = (columns + how.block - 1) / how.block;
    const bool single = options.square && how.scales == kFloat32;
    const std::size_t scale_count =
        blocks * (single ? (rows + how.block - 1) / how.block : rows);
    codes.assign(rows * columns / (format == kFloat4E2M1FNX2 ? 2 : 1), 0xa5);
    scales.assign(scale_count * (how.scales == kFloat32 ? 4 : 1), 0xa5);
    view = {{codes.data(), codes.size(), format},
            {scales.data(), scale_count, how.scales}};
  }
  // As float32 bits.
  std::vector<std::uint32_t> wide_scales() const {
    std::vector<std::uint32_t> bits(scales.size() / 4);
    std::memcpy(bits.data(), scales.data(), scales.size());
    return bits;
  }
};

struct Both {
  Output rows, columns;
};

Both run(const Matrix& x, ScalarType format, const BlockOptions& options,
         bool with_rows, bool with_columns, Machine* machine) {
  Both out{Output(x.rows, x.columns, format, options),
           Output(x.columns, x.rows, format, options)};
  quantize_blocks(x, with_rows ? &out.rows.view : nullptr,
                  with_columns ? &out.columns.view : nullptr, options, machine);
  return out;
}

// on_all() calls check(machine, x, rows, columns) with every machine, both
// dtypes, and each way to ask for an output.
template <class Check>
void on_all(const Input& from, bool with_rows, bool with_columns,
            const std::vector<MachineShape>& shapes, Check check) {
  on_all_machines(shapes, [&](Machine& machine) {
    for (const Matrix& x : {from.matrix(), from.wide_matrix()}) {
      SCOPED_TRACE(kFloatFormats[x.dtype].name);
      if (with_rows) check(machine, x, true, false);
      if (with_columns) check(machine, x, false, true);
      if (with_rows && with_columns) check(machine, x, true, true);
    }
  });
}

TEST(Float8Blocks, GoldenMx) {
  for_each_golden("blocks/te_mxfp8", [](JsonFields fields) {
    const Input& from = input(fields.text("input"));
    const ScalarType format = code_type(fields.text("fmt"));
    const bool by_row = fields.text("dir") == "row";
    const Octets scales = octets(fields.words("scales", 2));
    const Octets codes = octets(fields.words("codes", 2));
    BlockOptions options;
    options.policy = CastPolicy::cuda_saturate;
    on_all(from, true, true, kShapes,
           [&](Machine& machine, const Matrix& x, bool rows, bool columns) {
             if (by_row ? !rows : !columns) return;
             const Both out = run(x, format, options, rows, columns, &machine);
             const Output& found = by_row ? out.rows : out.columns;
             EXPECT_EQ(found.scales, scales);
             EXPECT_EQ(found.codes, codes);
           });
  });
  for_each_golden("blocks/torchao_mx", [](JsonFields fields) {
    const Input& from = input(fields.text("input"));
    const ScalarType format = code_type(fields.text("fmt"));
    const std::string mode = fields.text("mode");
    BlockOptions options;
    options.scaling = mode == "floor"  ? S::mx_floor
                      : mode == "ceil" ? S::mx_ceil
                      : mode == "even" ? S::mx_even
                                       : S::mx_rceil;
    const Octets scales = octets(fields.words("scales", 2));
    const Octets codes = octets(fields.words("codes", 2));
    on_all(from, true, false, kShapes,
           [&](Machine& machine, const Matrix& x, bool, bool) {
             const Output found =
                 run(x, format, options, true, false, &machine).rows;
             EXPECT_EQ(found.scales, scales);
             // A block whose scale is nan has no specified codes.
             const std::size_t octets_each = codes.size() / scales.size();
             for (std::size_t i = 0; i < codes.size(); ++i) {
               if (scales[i / octets_each] == 0xff) continue;
               ASSERT_EQ(found.codes[i], codes[i]) << i;
             }
           });
  });
}

TEST(Float8Blocks, GoldenNvfp4) {
  for_each_golden("blocks/te_nvfp4", [](JsonFields fields) {
    const Input& from = input(fields.text("input"));
    BlockOptions options;
    options.scaling = S::te_nvfp4;
    options.square = fields.text("tile") == "16x16";
    options.policy = CastPolicy::cuda_saturate;
    const bool by_row = fields.text("dir") == "row";
    options.tensor_amax = amax(from.tensor());
    ASSERT_EQ(options.tensor_amax, fields.number("global_amax"));
    const Octets scales = octets(fields.words("scales", 2));
    const Octets codes = octets(fields.words("codes", 2));
    on_all(from, true, true, kShapes,
           [&](Machine& machine, const Matrix& x, bool rows, bool columns) {
             if (by_row ? !rows : !columns) return;
             const Both out =
                 run(x, kFloat4E2M1FNX2, options, rows, columns, &machine);
             const Output& found = by_row ? out.rows : out.columns;
             // The scales of square blocks are those of the transpose, too:
             // shared data have them row after row of the matrix quantized.
             EXPECT_EQ(found.scales, scales);
             EXPECT_EQ(found.codes, codes);
           });
    if (!fields.has("codes_stochastic")) return;
    const Octets random = octets(fields.words("random_octets", 2));
    const Octets stochastic = octets(fields.words("codes_stochastic", 2));
    options.rounding = Rounding::stochastic;
    options.random = random.data();
    on_all(from, true, false, kShapes,
           [&](Machine& machine, const Matrix& x, bool, bool) {
             EXPECT_EQ(run(x, kFloat4E2M1FNX2, options, true, false, &machine)
                           .rows.codes,
                       stochastic);
           });
  });
}

TEST(Float8Blocks, GoldenFloat32Scales) {
  for_each_golden("blocks/te_block", [](JsonFields fields) {
    const Input& from = input(fields.text("input"));
    BlockOptions options;
    options.square = fields.text("tile") == "128x128";
    const ScalarType format = code_type(fields.text("fmt"));
    options.scaling =
        fields.text("pow2") == "true" ? S::te_block_power_of_2 : S::te_block;
    options.policy = CastPolicy::cuda_saturate;
    const bool by_row = fields.text("dir") == "row";
    const std::vector<std::uint32_t> scales = fields.words("scale_inv", 8);
    const Octets codes = octets(fields.words("codes", 2));
    on_all(from, true, !options.square, options.square ? kLargeShapes : kShapes,
           [&](Machine& machine, const Matrix& x, bool rows, bool columns) {
             // An infinite scale becomes the largest number of the input.
             if (by_row ? !rows : !columns) return;
             if (x.dtype == kFloat32) return;
             const Both out = run(x, format, options, rows, columns, &machine);
             const Output& found = by_row ? out.rows : out.columns;
             EXPECT_EQ(found.wide_scales(), scales);
             EXPECT_EQ(found.codes, codes);
           });
  });
  // Scales of whole tensors: the largest magnitude, the rule, the cast.
  const auto of_tensor = [](JsonFields fields, bool te) {
    const Input& from = input(fields.text("input"));
    const ScalarType format = code_type(fields.text("fmt"));
    const float largest = format == kFloat8E4M3FN ? 448.0f : 57344.0f;
    const float a = amax(from.tensor(), te);
    const bool power_of_2 = te && fields.text("pow2") == "true";
    QuantizeOptions options;
    options.scale =
        te ? slave::te_scale(a, largest, slave::kFloatMax, power_of_2)
           : slave::torchao_scale(a, largest);
    ASSERT_EQ(options.scale, fields.number("scale"));
    if (te) options.policy = CastPolicy::cuda_saturate;
    Octets codes(from.bits.size());
    quantize(from.tensor(), {codes.data(), codes.size(), format}, options);
    EXPECT_EQ(codes, octets(fields.words("codes", 2)));
  };
  for_each_golden("blocks/te_current",
                  [&](JsonFields fields) { of_tensor(fields, true); });
  for_each_golden("blocks/torchao_float8", [&](JsonFields fields) {
    JsonFields copy = fields;
    const Input& from = input(fields.text("input"));
    if (fields.text("recipe") == "torchao.tensorwise") {
      of_tensor(copy, false);
      return;
    }
    BlockOptions options;
    options.scaling = S::torchao_float8_power_of_2;
    const std::vector<std::uint32_t> scales = fields.words("scale", 8);
    const Octets codes = octets(fields.words("codes", 2));
    on_all(from, true, false, kShapes,
           [&](Machine& machine, const Matrix& x, bool, bool) {
             const Output found =
                 run(x, kFloat8E4M3FN, options, true, false, &machine).rows;
             for (std::size_t i = 0; i < scales.size(); ++i) {
               EXPECT_EQ(float_from_bits(found.wide_scales()[i]),
                         1 / float_from_bits(scales[i]));
             }
             EXPECT_EQ(found.codes, codes);
           });
  });
}

TEST(Float8Blocks, GoldenHadamard) {
  for_each_golden("blocks/te_rht", [](JsonFields fields) {
    const Input& from = input(fields.text("input"));
    const std::vector<std::uint32_t> expected = fields.words("bf16", 4);
    std::vector<std::uint16_t> turned(from.bits.size()), found(turned.size());
    for (std::size_t r = 0; r < from.rows; ++r) {
      for (std::size_t c = 0; c < from.columns; ++c) {
        turned[c * from.rows + r] = from.bits[r * from.columns + c];
      }
    }
    const Matrix x{turned.data(), from.columns, from.rows, kBFloat16};
    const Matrix out{found.data(), from.columns, from.rows, kBFloat16};
    BlockOptions options;
    options.scaling = S::te_nvfp4;
    options.policy = CastPolicy::cuda_saturate;
    on_all_machines(kShapes, [&](Machine& machine) {
      hadamard_transform(x, out, &machine);
      for (std::size_t i = 0; i < expected.size(); ++i) {
        // The sign of a zero depends on the order of the sum.
        if (expected[i] << 17 == 0 && (found[i] & 0x7fffu) == 0) continue;
        ASSERT_EQ(found[i], expected[i]) << i;
      }
      // Fused into the copy of the columns: the codes of that.
      options.tensor_amax = amax({found.data(), found.size(), kBFloat16});
      options.hadamard = false;
      const Output separate =
          run(out, kFloat4E2M1FNX2, options, true, false, &machine).rows;
      options.hadamard = true;
      const Both fused =
          run(from.matrix(), kFloat4E2M1FNX2, options, true, true, &machine);
      EXPECT_EQ(fused.columns.scales, separate.scales);
      EXPECT_EQ(fused.columns.codes, separate.codes);
    });
  });
}

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
        on_all_machines(kShapes, [&](Machine& machine) {
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

// Sums of inf - inf and of nan are the positive nan, also in the columns.
TEST(Float8Blocks, HadamardOfInfAndNan) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  constexpr std::size_t kRows = 32, kColumns = 64;
  Random random(86);
  std::vector<float> x, turned(kRows * kColumns), out(turned.size());
  for (std::size_t i = 0; i < turned.size(); ++i) {
    const float kinds[] = {kInf, -kInf, std::nanf(""), -std::nanf("")};
    const std::size_t kind = random.below(64);
    x.push_back(kind < 4 ? kinds[kind] : 1.0f);
    turned[i % kColumns * kRows + i / kColumns] = x.back();
  }
  for (const ScalarType format : {kFloat8E4M3FN, kFloat8E5M2}) {
    on_all_machines(kShapes, [&](Machine& machine) {
      BlockOptions options;
      hadamard_transform({turned.data(), kColumns, kRows, kFloat32},
                         {out.data(), kColumns, kRows, kFloat32}, &machine);
      const Output separate = run({out.data(), kColumns, kRows, kFloat32},
                                  format, options, true, false, &machine)
                                  .rows;
      options.hadamard = true;
      const Output fused = run({x.data(), kRows, kColumns, kFloat32}, format,
                               options, false, true, &machine)
                               .columns;
      EXPECT_EQ(fused.scales, separate.scales);
      EXPECT_EQ(fused.codes, separate.codes);
      for (std::size_t i = 0; i < out.size(); ++i) {
        if (!std::isnan(out[i])) continue;
        ASSERT_EQ(float_to_bits(out[i]), 0x7fc00000u) << i;
        ASSERT_EQ(fused.codes[i], 0x7f) << i;
      }
    });
  }
}

// Fake quantization: codes, and their values.
TEST(Float8Blocks, GoldenMicroxcaling) {
  for_each_golden("blocks/microxcaling", [](JsonFields fields) {
    const Input& all = input(fields.text("input"));
    const std::string format = fields.text("fmt");
    BlockOptions options;
    options.scaling = S::microxcaling;
    options.rounding = fields.text("round") == "away" ? Rounding::nearest_away
                                                      : Rounding::nearest_even;
    const std::size_t first = std::stoul(fields.text("first_row"));
    const std::size_t rows = std::stoul(fields.text("rows"));
    const std::vector<std::uint32_t> values = fields.words("values", 8);
    const float* const from = all.wide.data() + first * all.columns;
    const Matrix x{const_cast<float*>(from), rows, all.columns, kFloat32};
    on_all_machines(kShapes, [&](Machine& machine) {
      const Output out =
          run(x, code_type(format), options, true, false, &machine).rows;
      std::vector<float> found(values.size());
      dequantize_blocks(out.view, {found.data(), rows, all.columns, kFloat32},
                        options, &machine);
      for (std::size_t i = 0; i < values.size(); ++i) {
        // There an exact -0 loses its sign; codes of MXINT8 have no -0.
        const float value = from[i] == 0 ? std::abs(found[i]) : found[i];
        const bool loses_sign = format == "int8" && values[i] << 1 == 0;
        ASSERT_EQ(float_to_bits(value), loses_sign ? 0 : values[i]) << i;
      }
    });
  });
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
        on_all_machines(kShapes, [&](Machine& machine) {
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
      on_all_machines(kShapes, [&](Machine& machine) {
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

// Codes of nan and scales of nan: the same bits everywhere. A nan code stays as
// it is, whatever its scale.
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
    std::vector<std::uint32_t> expected;
    on_all_machines(kShapes, [&](Machine& machine) {
      dequantize_blocks(view, {found.data(), 512, 128, kFloat32}, options,
                        &machine);
      const bool first = expected.empty();
      for (std::size_t i = 0; i < found.size(); ++i) {
        const std::uint32_t bits = float_to_bits(found[i]);
        if (first) expected.push_back(bits);
        ASSERT_EQ(bits, expected[i]) << i;
        const float value = code_to_float(format.type, codes[i]);
        const float scaled = value * scales[i / 128];
        const std::uint32_t want =
            float_to_bits(std::isnan(value) ? value : scaled);
        ASSERT_TRUE(bits == want || (std::isnan(scaled) && !std::isnan(value) &&
                                     std::isnan(found[i])))
            << i << ": " << found[i];
      }
    });
  }
}

// Any LDM: the right bits, or an error that has written nothing.
TEST(Float8Blocks, LittleLdm) {
  Random random(85);
  const std::size_t reports = runtime::report_count();
  for (const char* transfer : {"copy", "check"}) {
    std::size_t succeeded = 0;
    for (std::size_t ldm = 2048; ldm <= 160 * 1024;
         ldm += 128 * (1 + random.below(ldm / 256))) {
      MachineConfig config;
      config.backend = "serial";
      config.transfer = transfer;
      config.core_groups = 1;
      config.slaves_per_group = 2;
      config.ldm_bytes = ldm;
      const auto machine = make_machine(config);
      for (int i = 0; i < 8; ++i) {
        BlockOptions options;
        options.scaling =
            std::array{S::te_mxfp8, S::te_nvfp4, S::te_block}[random.below(3)];
        // Some have one column more than the parts that fit.
        const bool one_more = options.scaling != S::te_nvfp4 && i % 2 == 0;
        const std::size_t some = 1 + random.below(160);
        const std::size_t rows = 16 * (1 + random.below(10)),
                          columns =
                              one_more ? (some / 32 + 1) * 32 + 1 : 2 * some;
        options.square = random.below(4) == 0;
        options.tensor_amax = 1000;
        options.hadamard = !options.square && random.below(2) == 0;
        const ScalarType format =
            options.scaling == S::te_nvfp4 ? kFloat4E2M1FNX2 : kFloat8E4M3FN;
        const ScalarType type = kRowTypes[random.below(3)];
        const Values x(rows, columns, type, random.next());
        const bool with_rows = !options.hadamard && random.below(2) == 0;
        SCOPED_TRACE(testing::Message()
                     << transfer << " LDM " << ldm << ", " << rows << " x "
                     << columns << " " << format_of(type).name << " scaling "
                     << static_cast<int>(options.scaling) << " square "
                     << options.square << " hadamard " << options.hadamard
                     << " rows " << with_rows);
        const Both expected =
            run(x.matrix, format, options, with_rows, true, nullptr);
        Both out{Output(rows, columns, format, options),
                 Output(columns, rows, format, options)};
        const Both before = out;
        const auto same = [&](const Both& other) {
          return out.rows.codes == other.rows.codes &&
                 out.rows.scales == other.rows.scales &&
                 out.columns.codes == other.columns.codes &&
                 out.columns.scales == other.columns.scales;
        };
        try {
          quantize_blocks(x.matrix, with_rows ? &out.rows.view : nullptr,
                          &out.columns.view, options, machine.get());
          ASSERT_TRUE(same(expected));
          ++succeeded;
        } catch (const Error& error) {
          ASSERT_EQ(error.status(), SWAMP_UNSUPPORTED) << error.what();
          ASSERT_TRUE(same(before)) << error.what();
        }
      }
    }
    EXPECT_GT(succeeded, 20u);
  }
  EXPECT_EQ(runtime::report_count(), reports);
}

// Shapes that blocks do not divide, and generated random bits.
TEST(Float8Blocks, SameOnEveryMachine) {
  Random random(83);
  for (const S scaling :
       {S::te_mxfp8, S::te_nvfp4, S::te_block, S::torchao_float8}) {
    for (const auto& [rows, columns] :
         {std::pair{1u, 2u}, std::pair{9u, 20u}, std::pair{150u, 310u},
          std::pair{64u, 2048u}}) {
      std::vector<float> values;
      for (unsigned i = 0; i < rows * columns; ++i) {
        // Rows of different sizes, so that each needs its own scale.
        values.push_back(
            std::ldexp(static_cast<float>(random.below(4096)) - 2048,
                       static_cast<int>(i / columns % 8)));
      }
      const Matrix x{values.data(), rows, columns, kFloat32};
      const bool nvfp4 = scaling == S::te_nvfp4;
      const ScalarType format = nvfp4 ? kFloat4E2M1FNX2 : kFloat8E4M3FN;
      BlockOptions options;
      options.scaling = scaling;
      options.rounding = nvfp4 ? Rounding::stochastic : Rounding::nearest_even;
      options.seed = 3;
      options.tensor_amax = 2048 * 128;
      const bool by_column =
          scaling != S::torchao_float8 && (!nvfp4 || rows % 2 == 0);
      SCOPED_TRACE(testing::Message() << static_cast<int>(scaling) << " "
                                      << rows << "x" << columns);
      const Both expected = run(x, format, options, true, by_column, nullptr);
      std::vector<float> back(values.size());
      on_all_machines(kShapes, [&](Machine& machine) {
        const Both found = run(x, format, options, true, by_column, &machine);
        EXPECT_EQ(found.rows.scales, expected.rows.scales);
        EXPECT_EQ(found.rows.codes, expected.rows.codes);
        EXPECT_EQ(found.columns.scales, expected.columns.scales);
        EXPECT_EQ(found.columns.codes, expected.columns.codes);
        dequantize_blocks(found.rows.view,
                          {back.data(), rows, columns, kFloat32}, options,
                          &machine);
        for (std::size_t i = 0; i < back.size(); ++i) {
          // Half a step of float4, or a step if stochastic.
          ASSERT_NEAR(
              back[i], values[i],
              std::ldexp(nvfp4 ? 900 : 200, static_cast<int>(i / columns % 8)))
              << i;
        }
      });
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
  struct Row {
    void (*change)(Request& c);
    const char* text;
    swamp_status status = SWAMP_INVALID_ARGUMENT;
  };
  const Row rows[] = {
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
  for (const Row& row : rows) {
    Request c{{x, 32, 32, kFloat32},
              {{codes.data(), 1024, kFloat8E4M3FN},
               {scales.data(), 32, kFloat8E8M0FNU}},
              {{codes.data(), 1024, kFloat8E4M3FN},
               {scales.data(), 32, kFloat8E8M0FNU}},
              {}};
    row.change(c);
    EXPECT_TRUE(has_words(
        error_of(
            [&] {
              quantize_blocks(c.x, c.by_row ? &c.rows : nullptr,
                              c.by_column ? &c.columns : nullptr, c.options);
            },
            row.status),
        {row.text}));
  }
  const Matrix odd{x, 2, 15, kFloat32};
  EXPECT_TRUE(has_words(error_of([&] { hadamard_transform(odd, odd); }),
                        {"x.columns: got 15, expected a multiple of 16"}));
  EXPECT_EQ(codes, Octets(1024, 9));
  EXPECT_EQ(scales, Octets(1024, 9));
  EXPECT_EQ(amax({nullptr, 0, kFloat32}), 0);
}

}  // namespace
}  // namespace swamp::test
