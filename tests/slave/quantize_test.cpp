// The kernels of formats of at most 8 bits: the bits of the reference, which
// computes with the values of the codes, on every ISA.
#include <gtest/gtest.h>

#include "row_cases.h"

namespace swamp::test {
namespace {

using slave::QuantizeArgs;
using slave::QuantizePartial;

struct Case {
  const char* name;
  QuantizeArgs args;  // without rounding and scale
  // Values of codes, without and with a sign. 0: of a format without them.
  float largest = 0;
  float overflow[2] = {}, infinity[2] = {}, nan[2] = {};
};
constexpr float kNan = std::numeric_limits<float>::quiet_NaN(),
                kInf = std::numeric_limits<float>::infinity();
// Scale, mantissa bits, least exponent, sign, largest, overflow, infinity, nan,
// negative nan, negative zero, rounding, tapered, elements, key, complement.
constexpr Case kCases[] = {
    {"e4m3fn",
     {1, 3, 121, 7, 0x7e, 0x7e, 0x7f, 0x7f, 0xff, 0x80, 0, 0, 1, {}, 0},
     448,
     {448, -448},
     {kNan, -kNan},
     {kNan, -kNan}},
    {"e5m2fnuz",
     {1, 2, 112, 7, 0x7f, 0x80, 0x80, 0x80, 0x80, 0, 0, 0, 1, {}, 0},
     57344,
     {kNan, kNan},
     {kNan, kNan},
     {kNan, kNan}},
    {"e2m3",
     {1, 3, 127, 5, 0x1f, 0x1f, 0x1f, 0x20, 0, 0x20, 0, 0, 1, {}, 0},
     7.5f,
     {7.5f, -7.5f},
     {7.5f, -7.5f},
     {-0.0f, 0}},
    {"e2m1",
     {1, 1, 127, 3, 7, 7, 7, 7, 7, 8, 0, 0, 2, {}, 0},
     6,
     {6, -6},
     {6, -6},
     {6, 6}},
    {"hifloat8",
     {1, 3, 121, 7, 0xff, 0x6f, 0x6f, 0x80, 0x80, 0, 1, 1, 1, {}, 0},
     32768,
     {kInf, -kInf},
     {kInf, -kInf},
     {kNan, kNan}},
    {"mxint8",
     {1, 6, 127, 7, 0x7f, 0x7f, 0x7f, 0, 0, 0, 0, 0, 1, {}, 1},
     1.984375f,
     {1.984375f, -1.984375f},
     {1.984375f, -1.984375f},
     {0, 0}},
    {"e8m0fnu", {1, 0, 1, 8, 0xfe, 0xfe, 0xff, 0xff, 0xff, 0, 0, 0, 1, {}, 0}}};

// Sets the arguments of codes or values.
void set_form(const Case& one, slave::CodeForm form, QuantizeArgs& args) {
  args.form = form;
  if (form != slave::CodeForm::code) args.elements = 1;
  args.largest_bits = float_to_bits(one.largest);
  for (int i = 0; i < 2; ++i) {
    args.overflow_values[i] = one.overflow[i];
    args.infinity_values[i] = one.infinity[i];
    args.nan_values[i] = one.nan[i];
  }
}

struct Output {
  std::vector<std::uint8_t> codes;
  QuantizePartial partial;
};

Output run(const KernelTable& table, ScalarType type, const QuantizeArgs& args,
           Data& x, const std::vector<std::uint8_t>* random) {
  Output out{std::vector<std::uint8_t>(form_bytes(args, x.count())), {}};
  void* const operands[] = {
      x.data(), out.codes.data(),
      random == nullptr ? nullptr : const_cast<std::uint8_t*>(random->data())};
  Tile tile;
  tile.operands = operands;
  tile.count = x.count() / args.elements;
  tile.first = 1234;
  tile.partial = &out.partial;
  Result result;
  (*table.rows[slave::kernel_of(F::quantize, {type})].function)(&args, tile,
                                                                result);
  return out;
}

TEST(Quantize, HasTheBitsOfTheReference) {
  Random rng(61);
  for (const Case& one : kCases) {
    for (const ScalarType type : kRowTypes) {
      for (const std::size_t count : {0u, 2u, 62u, 64u, 330u}) {
        for (std::uint32_t rounding = 0; rounding <= slave::kDown; ++rounding) {
          const bool powers = one.args.mantissa_bits == 0;
          if (rounding != slave::kNearestAway &&
              (rounding >= slave::kUp ? !powers
                                      : powers || one.args.tapered != 0)) {
            continue;
          }
          for (const bool given : {false, true}) {
            SCOPED_TRACE(testing::Message()
                         << one.name << " " << kFloatFormats[type].name << " "
                         << count << " rounding " << rounding << given);
            Data x(type, count);
            std::vector<std::uint8_t> random;
            for (std::size_t i = 0; i < count; ++i) {
              random.push_back(static_cast<std::uint8_t>(rng.below(256)));
              std::uint32_t bits = static_cast<std::uint32_t>(rng.next());
              // Most are in the range of the formats; half of them have few
              // bits, such as ties.
              if (i % 8 != 0) bits = (bits & 0x87ffffffu) + 0x3b000000u;
              if (i % 8 == 4) bits &= 0x80ffffffu;  // around 2^-126
              if (i % 2 != 0) bits &= 0xfff80000u;
              x.set(i, float_from_bits(bits));
            }
            for (const slave::CodeForm form :
                 {slave::CodeForm::code, slave::CodeForm::bfloat16,
                  slave::CodeForm::float32}) {
              if (form != slave::CodeForm::code && powers) continue;
              SCOPED_TRACE(testing::Message()
                           << "form " << static_cast<int>(form));
              QuantizeArgs args = one.args;
              set_form(one, form, args);
              args.rounding = rounding;
              args.scale = count % 4 == 2 ? 1.0f : 0.3f;
              args.key = {17, 99};
              const auto* bytes = given ? &random : nullptr;
              const Output expected =
                  run(row_tables()[0], type, args, x, bytes);
              for (const KernelTable& table : row_tables()) {
                SCOPED_TRACE(table.isa);
                const Output found = run(table, type, args, x, bytes);
                ASSERT_EQ(found.codes, expected.codes);
                ASSERT_EQ(found.partial.saturated, expected.partial.saturated);
                ASSERT_EQ(found.partial.flushed, expected.partial.flushed);
                ASSERT_EQ(found.partial.nan_count, expected.partial.nan_count);
                ASSERT_EQ(found.partial.amax, expected.partial.amax);
              }
            }
          }
        }
      }
    }
  }
}

// Blocks of every rule, shape and rounding, in one stripe.
struct BlockCase {
  slave::BlockRule rule;
  int format;  // of kCases
  std::uint32_t scale_bytes, power_of_2, skips_nan, square;
  std::size_t block, rows, columns;
};
using R = slave::BlockRule;
constexpr BlockCase kBlockCases[] = {
    {R::floor, 0, 1, 0, 0, 0, 32, 64, 96},
    {R::ceil, 2, 1, 0, 0, 0, 32, 40, 130},
    {R::even, 3, 1, 0, 0, 0, 32, 64, 128},
    {R::rceil, 0, 1, 0, 0, 1, 32, 64, 160},
    {R::te_mx, 0, 1, 0, 1, 0, 32, 64, 300},
    {R::microxcaling, 2, 1, 0, 0, 0, 64, 64, 64},
    {R::microxcaling, 5, 1, 0, 0, 0, 32, 64, 80},
    {R::te_nvfp4, 3, 1, 0, 1, 0, 16, 64, 144},
    {R::te_nvfp4, 3, 1, 0, 1, 1, 16, 32, 260},
    {R::torchao_nvfp4, 3, 1, 0, 0, 0, 16, 64, 64},
    {R::te, 0, 4, 0, 1, 0, 128, 128, 200},
    {R::te, 0, 4, 1, 1, 1, 128, 100, 140},
    {R::torchao, 1, 4, 1, 0, 0, 64, 64, 128},
    {R::torchao, 4, 4, 0, 0, 0, 16, 48, 80},
    {R::given, 4, 4, 0, 0, 0, 100, 70, 100},
    {R::given, 0, 4, 0, 0, 0, 64, 32, 64},
    {R::amax, 0, 4, 0, 1, 0, 128, 96, 140},
    {R::amax, 0, 4, 0, 0, 0, 32, 32, 64}};

// Which codes, or values, a variant has.
struct Variant {
  slave::CodeForm form;
  bool rows, columns, given_bits, hadamard;
};
constexpr auto kCode = slave::CodeForm::code;
constexpr auto kHalf = slave::CodeForm::bfloat16;
constexpr auto kWide = slave::CodeForm::float32;
constexpr Variant kVariants[] = {
    {kCode, true, true, false, false},  {kCode, false, true, false, false},
    {kCode, true, false, false, false}, {kCode, true, true, true, false},
    {kCode, true, true, true, false},   {kCode, true, true, true, true},
    {kHalf, true, true, false, false},  {kHalf, false, true, true, true},
    {kHalf, true, false, true, false},  {kWide, true, true, true, false},
    {kWide, false, true, false, false}, {kWide, true, true, false, true}};

TEST(Quantize, BlocksHaveTheBitsOfTheReference) {
  Random rng(62);
  for (const BlockCase& one : kBlockCases) {
    for (const ScalarType type : kRowTypes) {
      for (std::uint32_t variant = 0; variant < std::size(kVariants);
           ++variant) {
        const Variant& how = kVariants[variant];
        const bool has_values = how.form != kCode;
        const bool is_given = one.rule == R::given;
        // Factors are given for values only; largest magnitudes have no codes.
        if (is_given != has_values && (is_given || one.rule == R::amax)) {
          continue;
        }
        if (has_values && one.square != 0 && !how.rows) continue;
        slave::BlockArgs args = {};
        args.code = kCases[one.format].args;
        args.code.rounding =
            one.format == 4 ? slave::kNearestAway : variant % 3;
        args.code.key = {17, 99};
        args.column_key = {18, 5};
        args.rule = one.rule;
        args.rows = one.rows;
        args.columns = args.index_step = one.columns;
        args.block = one.block;
        args.stripe_rows = 128;
        args.scale_bytes = one.scale_bytes;
        args.largest = one.format == 2   ? 7.5f
                       : one.format == 3 ? 6.0f
                       : one.format == 5 ? 1.984375f
                       : one.format == 0 ? 448.0f
                                         : 57344.0f;
        args.tensor_scale = one.rule == R::te_nvfp4 ? 300.0f : 0.01f;
        args.if_infinite = slave::kFloatMax;
        args.power_of_2 = one.power_of_2;
        args.skips_nan = one.skips_nan;
        args.square = one.square;
        args.repeats = one.square == 0 || one.scale_bytes == 1;
        args.hadamard =
            how.hadamard && !is_given && one.square == 0 && one.rows % 16 == 0;
        args.column_tensor_scale = args.tensor_scale * 1.5f;
        args.divides = how.rows && how.columns;
        set_form(kCases[one.format], how.form, args.code);
        const auto scales = [&](std::size_t count) {
          return (count + one.block - 1) / one.block * one.scale_bytes;
        };
        Operand layout[slave::BlockOperand::count] = {};
        const std::size_t steps[] = {
            one.columns * kFloatFormats[type].bytes,
            form_bytes(args.code, one.columns),
            scales(one.columns),
            form_bytes(args.code, has_values ? one.columns : one.rows),
            is_given ? 4 : scales(one.rows),
            one.columns};
        for (int s = 0; s < slave::BlockOperand::count; ++s) {
          layout[s].line_step = steps[s];
        }
        SCOPED_TRACE(testing::Message()
                     << kCases[one.format].name << " rule "
                     << static_cast<int>(one.rule) << " "
                     << kFloatFormats[type].name << " variant " << variant);
        Data x(type, one.rows * one.columns);
        std::vector<std::uint8_t> random;
        for (std::size_t i = 0; i < x.count(); ++i) {
          random.push_back(static_cast<std::uint8_t>(rng.below(256)));
          std::uint32_t bits = static_cast<std::uint32_t>(rng.next());
          // Most are ordinary; some rows have all patterns.
          if (i / one.columns % 4 != 3 || rng.below(8) != 0) {
            bits = (bits & 0x83ffffffu) + 0x3d000000u;
          }
          if (i % 2 != 0) bits &= 0xfff80000u;
          if (i / one.columns == 6) bits &= 0x80000000u;
          // Sums of inf - inf.
          if (how.hadamard && rng.below(50) == 0) {
            bits = (bits & 0x80000000u) | 0x7f800000u;
          }
          // Blocks with the scale 1, of the number that microxcaling raises.
          if (one.rule == R::microxcaling && i / one.columns == 5) {
            bits = i % one.block == 0 ? float_to_bits(args.largest)
                                      : (bits & 0x80000000u) |
                                            microxcaling_raised_bits(args.code);
          }
          x.set(i, float_from_bits(bits));
        }
        const bool by_row = how.rows,
                   by_column = how.columns && (!has_values || one.square == 0);
        const bool has_codes = one.rule != R::amax;
        const bool has_scales = !has_values || is_given;
        std::vector<std::vector<std::uint8_t>> expected;
        slave::ValuePartial expected_partial = {};
        for (const KernelTable& table : row_tables()) {
          SCOPED_TRACE(table.isa);
          std::vector<std::vector<std::uint8_t>> out{
              std::vector<std::uint8_t>(form_bytes(args.code, x.count()), 0xa5),
              std::vector<std::uint8_t>(scales(one.columns) * one.rows, 0xa5),
              std::vector<std::uint8_t>(form_bytes(args.code, x.count()), 0xa5),
              std::vector<std::uint8_t>(steps[4] * one.columns, 0xa5)};
          if (is_given) {
            for (auto* factors : {&out[1], &out[3]}) {
              for (std::size_t i = 0; i < factors->size(); i += 4) {
                const float factor = 0.37f * static_cast<float>(i + 1);
                std::memcpy(&(*factors)[i], &factor, 4);
              }
            }
          }
          std::vector<std::uint8_t> scratch(slave::kBlockScratch);
          void* const operands[] = {
              x.data(),
              by_row && has_codes ? out[0].data() : nullptr,
              by_row && has_scales ? out[1].data() : nullptr,
              by_column && has_codes ? out[2].data() : nullptr,
              by_column && has_scales ? out[3].data() : nullptr,
              how.given_bits ? random.data() : nullptr};
          slave::ValuePartial partial = {};
          Tile tile;
          if (has_values || !has_codes) tile.partial = &partial;
          tile.operands = operands;
          tile.count = 1;
          tile.scratch = scratch.data();
          tile.layout = layout;
          Result result;
          (*table.rows[kernel_of(F::quantize_blocks, {type})].function)(
              &args, tile, result);
          if (expected.empty()) expected = out, expected_partial = partial;
          for (std::size_t i = 0; i < out.size(); ++i) {
            ASSERT_EQ(out[i], expected[i]) << "output " << i;
          }
          ASSERT_EQ(partial.amax, expected_partial.amax);
          ASSERT_EQ(partial.column_amax, expected_partial.column_amax);
          ASSERT_EQ(partial.has_nan, expected_partial.has_nan);
          ASSERT_EQ(partial.saturated, expected_partial.saturated);
          ASSERT_EQ(partial.flushed, expected_partial.flushed);
          ASSERT_EQ(partial.wide, expected_partial.wide);
          // And the values of the codes along rows.
          if (!by_row || args.repeats == 0 || has_values || !has_codes)
            continue;
          // All codes but the zeros are looked up.
          std::vector<float> values;
          for (int i = 0; i < 256; ++i) {
            values.push_back(static_cast<float>(i) - 100);
          }
          values[0] = 0;
          values[std::size_t{1} << args.code.sign] = -0.0f;
          slave::DequantizeBlockArgs back = {};
          back.code = {1,
                       args.code.elements,
                       args.code.mantissa_bits,
                       args.code.least_exponent,
                       args.code.sign,
                       0,
                       slave::kBeyond,
                       args.code.complement};
          back.amax = 2;
          back.te = variant % 2;
          back.scales = one.scale_bytes == 4 ? slave::ScaleKind::float32
                        : one.format == 3 && one.block == 16
                            ? slave::ScaleKind::e4m3
                            : slave::ScaleKind::e8m0;
          back.columns = one.columns;
          back.block = one.block;
          Data restored(type, x.count());
          Data first(type, x.count());
          for (Data* to : {&first, &restored}) {
            const KernelTable& by = to == &first ? row_tables()[0] : table;
            run_rows(by, kernel_of(F::dequantize_blocks, {type}), &back,
                     {to->data(), out[0].data(), out[1].data(), values.data()},
                     one.rows, 0);
          }
          ASSERT_TRUE(same_bits(restored, first));
        }
      }
    }
  }
}

}  // namespace
}  // namespace swamp::test
