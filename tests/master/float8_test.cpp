// quantize and dequantize: the codes of shared golden tables, the same on every
// machine, and the errors.
#include "swamp/float8.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <limits>
#include <sstream>
#include <vector>

#include "machines.h"
#include "row_values.h"
#include "support/errors.h"
#include "swamp/float_formats.h"

namespace swamp::test {
namespace {

using Codes = std::vector<std::uint8_t>;

struct Output {
  Codes codes;
  QuantizeReport report;
};

// run() quantizes values of `type`; `bits` are theirs as float32.
Output run(const std::vector<std::uint32_t>& bits, ScalarType type,
           ScalarType format, const QuantizeOptions& options,
           Machine* machine = nullptr) {
  const Format& of_x = format_of(type);
  Bytes x(bits.size() * of_x.bytes + 16);
  for (std::size_t i = 0; i < bits.size(); ++i) {
    const float value = float_from_bits(bits[i]);
    store_bits(of_x, x.data(), i,
               type == kFloat16    ? float16_from_float(value)
               : type == kBFloat16 ? bits[i] >> 16
                                   : bits[i]);
  }
  const std::size_t elements = format == kFloat4E2M1FNX2 ? 2 : 1;
  Output out{Codes(bits.size() / elements + 1, 0xa5), {}};
  const std::size_t count = out.codes.size() - 1;
  out.report = quantize({x.data(), bits.size(), type},
                        {out.codes.data(), count, format}, options, machine);
  EXPECT_EQ(out.codes.back(), 0xa5);
  out.codes.pop_back();
  return out;
}

// unpacked() has one code for each element.
Codes unpacked(const Codes& codes, ScalarType format) {
  if (format != kFloat4E2M1FNX2) return codes;
  Codes all;
  for (const std::uint8_t two : codes) {
    all.push_back(two & 15);
    all.push_back(two >> 4);
  }
  return all;
}

struct Range {
  std::uint32_t first;
  std::uint8_t code;
};

// read_runs() returns the table FORMAT.KIND. There are files of the kinds sat
// and floor; the README.md beside them says how others differ.
std::vector<Range> read_runs(const std::string& table, ScalarType type) {
  const std::size_t dot = table.find('.');
  const std::string format = table.substr(0, dot),
                    kind = dot == table.npos ? "" : table.substr(dot + 1),
                    folder = SWAMP_GOLDEN_DIR "/float8/";
  const bool is_power = type == kFloat8E8M0FNU;
  std::ifstream file(folder + format +
                     (is_power       ? ".floor"
                      : kind.empty() ? ""
                                     : ".sat") +
                     ".f32.runs");
  std::vector<Range> runs;
  unsigned first = 0, code = 0;
  while (file >> std::hex >> first >> code) {
    const std::uint32_t sign = first & 0x80000000u;
    std::uint32_t x = first ^ sign;
    if (kind == "away" && x < 0x7f800000u) x &= ~1u;
    if (is_power && kind != "floor" && code != 0) {
      x -= kind == "ceil" ? 0x7fffffu : 0x400000u;
      x = std::max(x, 0x400001u);  // 2^-127 is code 0
      if (kind == "ceil" && code == 0xff) x = 0x7f800001u;
    }
    runs.push_back({sign | x, static_cast<std::uint8_t>(code)});
  }
  EXPECT_FALSE(runs.empty()) << table;
  if (kind == "nosat") {
    std::ifstream overflows(folder + "nosat.runs");
    std::string name;
    while (name != format && overflows >> name >> std::hex >> first >> code) {
    }
    EXPECT_EQ(name, format);
    // Whatever has this code begins there.
    const auto begin =
        std::find_if(runs.begin(), runs.end(),
                     [&](const Range& r) { return r.first > first; });
    const Range range = {first, static_cast<std::uint8_t>(code)};
    if (begin->code == code) {
      *begin = range;
    } else {
      runs.insert(begin, range);
    }
  }
  if (runs.back().first >> 31 == 0) {
    const bool has_minus_zero = code_to_float(type, 0x80) == 0;
    const std::size_t count = runs.size();
    for (std::size_t i = 0; i < count; ++i) {
      const auto [x, c] = runs[i];
      const bool same = is_power || (!has_minus_zero && (c & 0x7f) == 0);
      runs.push_back(
          {x | 0x80000000u, static_cast<std::uint8_t>(same ? c : c ^ 0x80)});
    }
  }
  return runs;
}

// A table of tests/golden/float8, and what differs from it for nan.
struct Golden {
  const char* table;
  ScalarType format;
  CastPolicy policy;
  Rounding rounding = Rounding::nearest_even;
  int nan = -1, negative_nan = -1;  // -1: as in the table
};
using P = CastPolicy;
constexpr Rounding kAway = Rounding::nearest_away;
constexpr Rounding kEven = Rounding::nearest_even;
constexpr Golden kGolden[] = {
    {"float8_e4m3fn.sat", kFloat8E4M3FN, P::saturate},
    {"float8_e4m3fn.nosat", kFloat8E4M3FN, P::overflow},
    {"float8_e4m3fn.away", kFloat8E4M3FN, P::saturate, kAway},
    {"float8_e5m2.sat", kFloat8E5M2, P::saturate},
    {"float8_e5m2.nosat", kFloat8E5M2, P::overflow},
    {"float8_e4m3fnuz.sat", kFloat8E4M3FNUZ, P::saturate},
    {"float8_e4m3fnuz.nosat", kFloat8E4M3FNUZ, P::overflow},
    {"float8_e5m2fnuz.sat", kFloat8E5M2FNUZ, P::saturate},
    {"float8_e5m2fnuz.nosat", kFloat8E5M2FNUZ, P::overflow},
    {"float6_e3m2.sat", kFloat6E3M2FN, P::saturate},
    {"float6_e3m2.away", kFloat6E3M2FN, P::saturate, kAway},
    {"float6_e2m3.sat", kFloat6E2M3FN, P::overflow},
    {"float6_e2m3.away", kFloat6E2M3FN, P::saturate, kAway},
    {"float4_e2m1.sat", kFloat4E2M1FNX2, P::saturate},
    {"float4_e2m1.away", kFloat4E2M1FNX2, P::saturate, kAway},
    {"hifloat8.sat", kHiFloat8, P::saturate, kAway},
    {"hifloat8.nosat", kHiFloat8, P::overflow, kAway},
    {"float8_e8m0.ceil", kFloat8E8M0FNU, P::saturate, Rounding::up},
    {"float8_e8m0.floor", kFloat8E8M0FNU, P::overflow, Rounding::down},
    {"float8_e8m0.nearest", kFloat8E8M0FNU, P::overflow, kAway},
    {"mxint8", kMxInt8, P::saturate},
    {"mxint8", kMxInt8, P::overflow},
    // FORMAT.md of the golden data: which implementation follows which table.
    {"float8_e4m3fn.sat", kFloat8E4M3FN, P::cuda_saturate, kEven, 0x7f, 0x7f},
    {"float8_e4m3fn.nosat", kFloat8E4M3FN, P::cuda, kEven, 0x7f, 0x7f},
    {"float8_e5m2.sat", kFloat8E5M2, P::cuda_saturate, kEven, 0x7f, 0x7f},
    {"float8_e5m2.nosat", kFloat8E5M2, P::cuda, kEven, 0x7f, 0x7f},
    {"float6_e3m2.sat", kFloat6E3M2FN, P::cuda, kEven, 0x1f, 0x1f},
    {"float4_e2m1.sat", kFloat4E2M1FNX2, P::cuda_saturate, kEven, 7, 7},
    {"float8_e8m0.ceil", kFloat8E8M0FNU, P::cuda_saturate, Rounding::up},
    {"float8_e8m0.nearest", kFloat8E8M0FNU, P::torch, kAway},
    {"float8_e4m3fn.sat", kFloat8E4M3FN, P::torch},
    {"float8_e5m2.nosat", kFloat8E5M2, P::torch},
    {"float8_e4m3fnuz.nosat", kFloat8E4M3FNUZ, P::torch},
    {"float8_e5m2fnuz.nosat", kFloat8E5M2FNUZ, P::torch},
    {"float8_e4m3fn.nosat", kFloat8E4M3FN, P::ml_dtypes},
    {"float8_e5m2.nosat", kFloat8E5M2, P::ml_dtypes, kEven, 0x7e, 0xfe},
    {"float8_e4m3fnuz.nosat", kFloat8E4M3FNUZ, P::ml_dtypes},
    {"float6_e2m3.sat", kFloat6E2M3FN, P::ml_dtypes, kEven, 0x20, 0},
    {"float4_e2m1.sat", kFloat4E2M1FNX2, P::ml_dtypes, kEven, 8, 0}};

bool is_nan(std::uint32_t bits) { return (bits & 0x7fffffffu) > 0x7f800000u; }

// Inputs are float32 bits, and the codes that a table has for them.
struct Inputs {
  std::vector<std::uint32_t> bits;
  Codes codes;

  void add(const Golden& golden, std::uint32_t x, std::uint8_t code) {
    bits.push_back(x);
    const int nan = x >> 31 != 0 ? golden.negative_nan : golden.nan;
    codes.push_back(is_nan(x) && nan >= 0 ? static_cast<std::uint8_t>(nan)
                                          : code);
  }
};

TEST(Float8, GoldenCasts) {
  for (const Golden& golden : kGolden) {
    SCOPED_TRACE(testing::Message() << golden.table << " policy "
                                    << static_cast<int>(golden.policy));
    const std::vector<Range> runs = read_runs(golden.table, golden.format);
    // The first, middle and last float32 of each run, and all bfloat16.
    Inputs wide, bfloat16, float16;
    for (std::size_t i = 0; i < runs.size(); ++i) {
      const std::uint32_t first = runs[i].first;
      const std::uint32_t last =
          i + 1 < runs.size() ? runs[i + 1].first - 1 : 0xffffffffu;
      for (const std::uint32_t x : {first, first + (last - first) / 2, last}) {
        wide.add(golden, x, runs[i].code);
      }
    }
    const auto code_of = [&](std::uint32_t x) {
      return std::prev(
                 std::upper_bound(runs.begin(), runs.end(), x,
                                  [](std::uint32_t bits, const Range& run) {
                                    return bits < run.first;
                                  }))
          ->code;
    };
    for (std::uint32_t x = 0; x < 0x10000; ++x) {
      bfloat16.add(golden, x << 16, code_of(x << 16));
      const std::uint32_t of_half =
          float_to_bits(float16_to_float(static_cast<std::uint16_t>(x)));
      float16.add(golden, of_half, code_of(of_half));
    }
    if (wide.bits.size() % 2 != 0) wide.add(golden, 0, runs[0].code);
    QuantizeOptions options;
    options.policy = golden.policy;
    options.rounding = golden.rounding;
    for (const auto& [inputs, type] :
         {std::pair{&wide, kFloat32}, std::pair{&bfloat16, kBFloat16},
          std::pair{&float16, kFloat16}}) {
      const Output plain = run(inputs->bits, type, golden.format, options);
      ASSERT_EQ(unpacked(plain.codes, golden.format), inputs->codes)
          << format_of(type).name;
      std::uint64_t nan_count = 0;
      float amax = 0;
      for (const std::uint32_t x : inputs->bits) {
        nan_count += is_nan(x);
        if (!is_nan(x)) amax = std::max(amax, std::abs(float_from_bits(x)));
      }
      EXPECT_EQ(plain.report.nan_count, nan_count);
      EXPECT_EQ(plain.report.amax, amax);
    }
    on_all_machines(kRowShapes, [&](Machine& machine) {
      EXPECT_EQ(
          unpacked(
              run(wide.bits, kFloat32, golden.format, options, &machine).codes,
              golden.format),
          wide.codes);
    });
  }
}

// Stochastic rounding with given bytes: the 256 results of each number.
TEST(Float8, GoldenStochastic) {
  std::ifstream file(SWAMP_GOLDEN_DIR "/float8/sr_e2m1.jsonl");
  std::string line;
  std::size_t lines = 0;
  Codes random;
  for (int i = 0; i < 256; ++i) random.push_back(static_cast<std::uint8_t>(i));
  QuantizeOptions options;
  options.rounding = Rounding::stochastic;
  options.random = random.data();
  while (std::getline(file, line)) {
    const auto text_of = [&](const std::string& key) {
      const std::size_t begin =
          line.find("\"" + key + "\": \"") + key.size() + 5;
      return line.substr(begin, line.find('"', begin) - begin);
    };
    const auto x =
        static_cast<std::uint32_t>(std::stoul(text_of("x"), nullptr, 16));
    const std::string text = text_of("codes");
    ASSERT_EQ(text.size(), 512u);
    Codes codes;
    for (std::size_t i = 0; i < text.size(); i += 2) {
      codes.push_back(static_cast<std::uint8_t>(
          std::stoul(text.substr(i, 2), nullptr, 16)));
    }
    const std::vector<std::uint32_t> bits(256, x);
    ASSERT_EQ(unpacked(run(bits, kFloat32, kFloat4E2M1FNX2, options).codes,
                       kFloat4E2M1FNX2),
              codes)
        << line.substr(0, 20);
    ++lines;
  }
  EXPECT_GT(lines, 10u);
}

TEST(Float8, StochasticIsUnbiased) {
  const std::size_t count = 40000;
  const std::vector<std::uint32_t> bits(count, float_to_bits(1.1f));
  QuantizeOptions options;
  options.rounding = Rounding::stochastic;
  Codes before;
  for (const std::uint64_t seed : {1u, 2u}) {
    options.seed = seed;
    const Codes codes = run(bits, kFloat32, kFloat8E4M3FN, options).codes;
    double sum = 0;
    for (const std::uint8_t code : codes) {
      sum += static_cast<double>(code_to_float(kFloat8E4M3FN, code));
    }
    // The standard deviation of the mean is 0.0003; steps of 1/256 of 0.125.
    EXPECT_NEAR(sum / count, 1.1, 0.002);
    EXPECT_NE(codes, before);
    before = codes;
  }
}

struct Values {
  ScalarType format;
  double least, largest;
  std::uint8_t code_of_largest, nan;
};
constexpr Values kValues[] = {{kFloat8E4M3FN, 0x1p-9, 448, 0x7e, 0x7f},
                              {kFloat8E5M2, 0x1p-16, 57344, 0x7b, 0x7f},
                              {kFloat8E4M3FNUZ, 0x1p-10, 240, 0x7f, 0x80},
                              {kFloat8E5M2FNUZ, 0x1p-17, 57344, 0x7f, 0x80},
                              {kFloat6E3M2FN, 0.0625, 28, 0x1f, 0},
                              {kFloat6E2M3FN, 0.125, 7.5, 0x1f, 0},
                              {kFloat4E2M1FNX2, 0.5, 6, 7, 0},
                              {kHiFloat8, 0x1p-22, 32768, 0x6e, 0x80},
                              {kMxInt8, 0x1p-6, 127.0 / 64, 0x7f, 0},
                              {kFloat8E8M0FNU, 0x1p-126, 0x1p127, 0xfe, 0xff}};

TEST(Float8, Dequantize) {
  for (const Values& row : kValues) {
    const Format& format = kFloatFormats[row.format];
    SCOPED_TRACE(format.name);
    const auto value = [&](std::uint8_t code) {
      return static_cast<double>(code_to_float(row.format, code));
    };
    const bool powers = row.format == kFloat8E8M0FNU;
    EXPECT_EQ(value(0), powers ? 0x1p-127 : 0);
    EXPECT_EQ(value(1), row.least);
    EXPECT_EQ(value(row.code_of_largest), row.largest);
    EXPECT_EQ(std::isnan(value(row.nan)), row.nan != 0);
    // Every code is what its value is quantized to.
    const std::size_t elements = row.format == kFloat4E2M1FNX2 ? 2 : 1;
    Codes codes;
    for (unsigned code = 0; code < 256; ++code) {
      if (format.width == 6 && code >= 64) break;
      const bool is_nan = std::isnan(
          code_to_float(row.format, static_cast<std::uint8_t>(code)));
      // quantize() does not use the least number of two's complement.
      const bool is_least = row.format == kMxInt8 && code == 0x80;
      codes.push_back(is_nan || is_least ? 0 : static_cast<std::uint8_t>(code));
    }
    const Codes singles = unpacked(codes, row.format);
    if (row.format == kMxInt8) {
      EXPECT_EQ(value(0x80), -2);
    }
    for (const ScalarType type : {kFloat32, kBFloat16, kFloat16}) {
      if (powers && type == kFloat16) continue;
      // 2^-22 is a subnormal float16, and 57344 is none.
      on_all_machines(kRowShapes, [&](Machine& machine) {
        Bytes x(codes.size() * elements * format_of(type).bytes);
        const Tensor values{x.data(), codes.size() * elements, type};
        const Tensor all{codes.data(), codes.size(), row.format};
        dequantize(all, values, 1, &machine);
        for (std::size_t i = 0; i < values.count; ++i) {
          ASSERT_EQ(widen(type, x.data(), i),
                    code_to_float(row.format, singles[i]));
        }
        QuantizeOptions options;
        options.rounding =
            powers || row.format == kHiFloat8 ? kAway : Rounding::nearest_even;
        options.policy = CastPolicy::overflow;
        Codes again(codes.size());
        quantize(values, {again.data(), again.size(), row.format}, options,
                 &machine);
        EXPECT_EQ(again, codes);
        dequantize(all, values, 0.5f, &machine);
        EXPECT_EQ(
            widen(type, x.data(), row.code_of_largest / elements * elements),
            code_to_float(row.format,
                          singles[row.code_of_largest / elements * elements]) /
                2);
      });
    }
  }
}

TEST(Float8, Errors) {
  float x[4] = {1, 2, 3, 4};
  Codes codes(4, 9);
  struct Call {
    Tensor x, codes;
    QuantizeOptions options;
  };
  const std::vector<Refusal<Call>> rows = {
      {[](Call& c) { c.x.data = nullptr; }, "x.data: got null, expected"},
      {[](Call& c) { c.codes.data = nullptr; },
       "codes.data: got null, expected the address of 4 elements"},
      {[](Call& c) { c.x.dtype = kFloat64; }, "x.dtype: got 3 (float64)",
       SWAMP_UNSUPPORTED},
      {[](Call& c) { c.codes.dtype = kFloat16; },
       "codes.dtype: got 0 (float16), expected 4 (float8_e4m3fn), 5",
       SWAMP_UNSUPPORTED},
      {[](Call& c) { c.codes.count = 3; },
       "codes.count: got 3, expected 4, as in 'x'"},
      {[](Call& c) { c.codes.dtype = kFloat4E2M1FNX2; },
       "codes.count: got 4, expected 2, half of the elements of 'x'"},
      {[](Call& c) {
         c.codes.dtype = kFloat4E2M1FNX2;
         c.codes.count = 1;
         c.x.count = 3;
       },
       "x.count: got 3, expected an even number, as float4_e2m1fn_x2 has two"},
      {[](Call& c) { c.x.count = c.codes.count = ~std::size_t{0} / 4; },
       "x.count: got 4611686018427387903, expected at most "},
      {[](Call& c) { c.options.scale = 0; },
       "options.scale: got 0, expected a finite number larger than 0"},
      {[](Call& c) { c.options.scale = std::nanf(""); },
       "options.scale: got nan"},
      {[](Call& c) { c.options.scale = -1; }, "options.scale: got -1"},
      {[](Call& c) { c.options.rounding = static_cast<Rounding>(5); },
       "options.rounding: got 5, expected 0 (nearest_even) to 4 (down)"},
      {[](Call& c) { c.options.rounding = Rounding::up; },
       "options.rounding: got up, expected nearest_even, nearest_away or "
       "stochastic (the rounding of float8_e4m3fn)",
       SWAMP_UNSUPPORTED},
      {[](Call& c) { c.codes.dtype = kFloat8E8M0FNU; },
       "options.rounding: got nearest_even, expected nearest_away, up or down "
       "(the rounding of float8_e8m0fnu)",
       SWAMP_UNSUPPORTED},
      {[](Call& c) {
         c.codes.dtype = kFloat8E8M0FNU;
         c.options.rounding = kAway;
         c.options.policy = CastPolicy::ml_dtypes;
       },
       "options.policy: got ml_dtypes, expected a policy with a rule for "
       "float8_e8m0fnu",
       SWAMP_UNSUPPORTED},
      {[](Call& c) {
         c.codes.dtype = kMxInt8;
         c.options.policy = CastPolicy::cuda_saturate;
       },
       "options.policy: got cuda_saturate, expected a policy with a rule for "
       "mxint8",
       SWAMP_UNSUPPORTED},
      {[](Call& c) { c.options.policy = static_cast<CastPolicy>(6); },
       "options.policy: got 6, expected 0 (saturate) to 5 (ml_dtypes)"},
      {[](Call& c) {
         c.codes.dtype = kFloat6E3M2FN;
         c.options.policy = CastPolicy::torch;
       },
       "options.policy: got torch, expected a policy with a rule for "
       "float6_e3m2fn",
       SWAMP_UNSUPPORTED},
      {[](Call& c) {
         c.codes.dtype = kFloat8E5M2FNUZ;
         c.options.policy = CastPolicy::cuda;
       },
       "options.policy: got cuda, expected", SWAMP_UNSUPPORTED},
      {[](Call& c) { c.codes.dtype = kHiFloat8; },
       "options.rounding: got nearest_even, expected nearest_away",
       SWAMP_UNSUPPORTED},
  };
  expect_refusals(
      {{x, 4, kFloat32}, {codes.data(), 4, kFloat8E4M3FN}, {}}, rows,
      [](Call& call) { quantize(call.x, call.codes, call.options); });
  expect_refused(
      [&] {
        dequantize({codes.data(), 4, kFloat8E4M3FN}, {x, 4, kFloat32},
                   std::numeric_limits<float>::infinity());
      },
      {"scale: got inf, expected a finite number"});
  expect_refused([] { code_to_float(kFloat32, 0); },
                 {"format: got 2 (float32)"}, SWAMP_UNSUPPORTED);
  EXPECT_EQ(codes, Codes(4, 9));
  EXPECT_EQ(quantize({nullptr, 0, kFloat32}, {nullptr, 0, kFloat8E5M2}).amax,
            0);
}

}  // namespace
}  // namespace swamp::test
