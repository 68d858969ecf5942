// The rules of scales: every line of shared golden data, bit for bit.
#include "slave/scale_rules.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "support/json_fields.h"

namespace swamp::test {
namespace {

using namespace slave;

struct ElementFormat {
  const char* name;
  float largest;
  std::uint32_t mantissa_bits;
};
constexpr ElementFormat kElementFormats[] = {
    {"e4m3", 448, 3}, {"e5m2", 57344, 2}, {"e2m3", 7.5f, 3},
    {"e3m2", 28, 2},  {"e2m1", 6, 1},     {"int8", 1.984375f, 6}};

ElementFormat format_of(JsonFields& fields) {
  const std::string name = fields.text("fmt");
  for (const ElementFormat& format : kElementFormats) {
    if (name == format.name) return format;
  }
  ADD_FAILURE() << name;
  return {};
}

// Every nan is the same.
void expect_float(float found, float expected) {
  if (std::isnan(found) && std::isnan(expected)) return;
  EXPECT_EQ(float_to_bits(found), float_to_bits(expected));
}

TEST(ScaleRules, TransformerEngine) {
  for_each_golden("scales/te_current", [](JsonFields fields) {
    const float largest = format_of(fields).largest;
    const bool power_of_2 = fields.is("pow2", "true");
    const float eps = fields.number("eps");
    const float scale =
        te_scale(fields.number("amax"), largest, kFloatMax, power_of_2, eps);
    expect_float(scale, fields.number("scale"));
    expect_float(1 / scale, fields.number("scale_inv"));
  });
  for_each_golden("scales/te_block", [](JsonFields fields) {
    const float largest = format_of(fields).largest;
    const std::string type = fields.text("input");
    const float if_infinite = type == "float16"    ? 65504.0f
                              : type == "bfloat16" ? 0x1.fep127f
                                                   : kFloatMax;
    const bool power_of_2 = fields.is("pow2", "true");
    const float scale =
        te_scale(fields.number("amax"), largest, if_infinite, power_of_2);
    expect_float(scale, fields.number("scale"));
    expect_float(1 / scale, fields.number("scale_inv"));
  });
  for_each_golden("scales/te_mxfp8", [](JsonFields fields) {
    const ElementFormat format = format_of(fields);
    const std::uint32_t code = mx_code(MxRule::te, fields.number("amax"),
                                       format.largest, format.mantissa_bits);
    EXPECT_EQ(code, fields.word("e8m0"));
    expect_float(e8m0_factor(code), fields.number("factor"));
    if (code != kE8M0Nan) {
      EXPECT_EQ(e8m0_value(code) * e8m0_factor(code), 1);
    }
  });
  for_each_golden("scales/te_nvfp4", [](JsonFields fields) {
    const float scale = te_nvfp4_tensor_scale(fields.number("global_amax"));
    expect_float(scale, fields.number("s_enc"));
    int blocks = 0;
    for (; fields.has("amax"); ++blocks) {
      const Nvfp4Scale block = te_nvfp4_scale(fields.number("amax"), scale);
      EXPECT_EQ(block.code, fields.word("e4m3"));
      expect_float(block.factor, fields.number("factor"));
    }
    EXPECT_EQ(blocks, 7);
  });
}

TEST(ScaleRules, Torchao) {
  for_each_golden("scales/torchao_float8", [](JsonFields fields) {
    const float largest = format_of(fields).largest;
    const float amax = fields.number("amax");
    expect_float(torchao_scale(amax, largest), fields.number("scale"));
  });
  for_each_golden("scales/torchao_mx", [](JsonFields fields) {
    const ElementFormat format = format_of(fields);
    const std::string mode = fields.text("mode");
    const MxRule rule = mode == "floor"  ? MxRule::floor
                        : mode == "ceil" ? MxRule::ceil
                        : mode == "even" ? MxRule::even
                                         : MxRule::rceil;
    const float amax = fields.number("amax");
    EXPECT_EQ(mx_code(rule, amax, format.largest, format.mantissa_bits),
              fields.word("e8m0"));
  });
  for_each_golden("scales/torchao_nvfp4", [](JsonFields fields) {
    const float scale =
        torchao_nvfp4_tensor_scale(fields.number("tensor_amax"));
    expect_float(scale, fields.number("per_tensor_scale"));
    int blocks = 0;
    for (; fields.has("amax"); ++blocks) {
      const float amax = fields.number("amax");
      const Nvfp4Scale block = torchao_nvfp4_scale(amax, scale);
      EXPECT_EQ(block.code, fields.word("e4m3"));
      expect_float(block.factor, fields.number("factor"));
      const Nvfp4Scale single = torchao_nvfp4_scale(amax, 1);
      EXPECT_EQ(single.code, fields.word("single_e4m3"));
      expect_float(single.factor, fields.number("single_factor"));
    }
    EXPECT_EQ(blocks, 7);
  });
}

TEST(ScaleRules, Microxcaling) {
  for_each_golden("scales/microxcaling", [](JsonFields fields) {
    const ElementFormat format = format_of(fields);
    const float amax = fields.number("amax");
    const int exponent = microxcaling_exponent(amax, format.largest);
    const std::string expected = fields.text("shared_exp");
    EXPECT_EQ(exponent == kNoExponent ? "null" : std::to_string(exponent),
              expected);
    EXPECT_EQ(mx_code(MxRule::microxcaling, amax, format.largest,
                      format.mantissa_bits),
              static_cast<std::uint32_t>(exponent + 127));
  });
}

TEST(ScaleRules, ModelOpt) {
  for_each_golden("scales/modelopt", [](JsonFields fields) {
    const float amax = fields.number("amax");
    expect_float(modelopt_scale(amax), fields.number("fp8_scale"));
    EXPECT_EQ(modelopt_mx_code(amax, 448), fields.word("mxfp8_e8m0"));
  });
}

// log2f() of numbers just below powers of two, correctly rounded.
TEST(ScaleRules, FloorOfLog2) {
  for (int n = -148; n <= 128; ++n) {
    const double power = std::ldexp(1.0, n);
    for (int i = -64; i < 64; ++i) {
      const float x = static_cast<float>(power * (1 + std::ldexp(i, -24)));
      if (!(x > 0) || std::isinf(x)) continue;
      const auto rounded =
          static_cast<float>(std::log2(static_cast<double>(x)));
      ASSERT_EQ(floor_of_log2(x), static_cast<int>(std::floor(rounded)))
          << n << " " << i;
    }
  }
}

// The conversions of scales: all float32 whose upper half matters.
TEST(ScaleRules, E4M3) {
  for (std::uint32_t code = 0; code < 0x7e; ++code) {
    const float low = e4m3_value(code), high = e4m3_value(code + 1);
    ASSERT_LT(low, high);
    ASSERT_EQ(e4m3_code(low), code);
    const float middle = (low + high) / 2;  // exact
    ASSERT_EQ(e4m3_code(middle), code + code % 2);
    ASSERT_EQ(e4m3_code(std::nextafter(middle, 0.0f)), code);
    ASSERT_EQ(e4m3_code(std::nextafter(middle, 1000.0f)), code + 1);
  }
  EXPECT_EQ(e4m3_code(kFloatMax), 0x7eu);
  EXPECT_EQ(e4m3_code(std::nanf("")), 0x7fu);
  EXPECT_TRUE(std::isnan(e4m3_value(0x7f)));
}

}  // namespace
}  // namespace swamp::test
