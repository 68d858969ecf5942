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
};
// Scale, mantissa bits, least exponent, sign, largest, overflow, infinity, nan,
// negative nan, negative zero, rounding, tapered, elements, key, complement.
constexpr Case kCases[] = {
    {"e4m3fn",
     {1, 3, 121, 7, 0x7e, 0x7e, 0x7f, 0x7f, 0xff, 0x80, 0, 0, 1, {}, 0}},
    {"e5m2fnuz",
     {1, 2, 112, 7, 0x7f, 0x80, 0x80, 0x80, 0x80, 0, 0, 0, 1, {}, 0}},
    {"e2m3", {1, 3, 127, 5, 0x1f, 0x1f, 0x1f, 0x20, 0, 0x20, 0, 0, 1, {}, 0}},
    {"e2m1", {1, 1, 127, 3, 7, 7, 7, 7, 7, 8, 0, 0, 2, {}, 0}},
    {"hifloat8",
     {1, 3, 121, 7, 0xff, 0x6f, 0x6f, 0x80, 0x80, 0, 1, 1, 1, {}, 0}},
    {"mxint8", {1, 6, 127, 7, 0x7f, 0x7f, 0x7f, 0, 0, 0, 0, 0, 1, {}, 1}},
    {"e8m0fnu", {1, 0, 1, 8, 0xfe, 0xfe, 0xff, 0xff, 0xff, 0, 0, 0, 1, {}, 0}}};

struct Output {
  std::vector<std::uint8_t> codes;
  QuantizePartial partial;
};

Output run(const KernelTable& table, ScalarType type, const QuantizeArgs& args,
           Data& x, const std::vector<std::uint8_t>* random) {
  Output out{std::vector<std::uint8_t>(x.count() / args.elements), {}};
  void* const operands[] = {
      x.data(), out.codes.data(),
      random == nullptr ? nullptr : const_cast<std::uint8_t*>(random->data())};
  Tile tile;
  tile.operands = operands;
  tile.count = out.codes.size();
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
            QuantizeArgs args = one.args;
            args.rounding = rounding;
            args.scale = count % 4 == 2 ? 1.0f : 0.3f;
            args.key = {17, 99};
            const auto* bytes = given ? &random : nullptr;
            const Output expected = run(row_tables()[0], type, args, x, bytes);
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
    {R::torchao, 4, 4, 0, 0, 0, 16, 48, 80}};

TEST(Quantize, BlocksHaveTheBitsOfTheReference) {
  Random rng(62);
  for (const BlockCase& one : kBlockCases) {
    for (const ScalarType type : kRowTypes) {
      for (std::uint32_t variant = 0; variant < 6; ++variant) {
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
        args.hadamard = variant == 5 && one.square == 0 && one.rows % 16 == 0;
        const std::size_t elements = args.code.elements;
        const auto scales = [&](std::size_t count) {
          return (count + one.block - 1) / one.block * one.scale_bytes;
        };
        Operand layout[slave::BlockOperand::count] = {};
        const std::size_t steps[] = {one.columns * kFloatFormats[type].bytes,
                                     one.columns / elements,
                                     scales(one.columns),
                                     one.rows / elements,
                                     scales(one.rows),
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
          if (variant == 5 && rng.below(50) == 0) {
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
        const bool by_row = variant != 1, by_column = variant != 2;
        std::vector<std::vector<std::uint8_t>> expected;
        for (const KernelTable& table : row_tables()) {
          SCOPED_TRACE(table.isa);
          std::vector<std::vector<std::uint8_t>> out{
              std::vector<std::uint8_t>(x.count() / elements, 0xa5),
              std::vector<std::uint8_t>(scales(one.columns) * one.rows, 0xa5),
              std::vector<std::uint8_t>(x.count() / elements, 0xa5),
              std::vector<std::uint8_t>(scales(one.rows) * one.columns, 0xa5)};
          std::vector<std::uint8_t> scratch(slave::kBlockScratch);
          void* const operands[] = {x.data(),
                                    by_row ? out[0].data() : nullptr,
                                    by_row ? out[1].data() : nullptr,
                                    by_column ? out[2].data() : nullptr,
                                    by_column ? out[3].data() : nullptr,
                                    variant > 2 ? random.data() : nullptr};
          Tile tile;
          tile.operands = operands;
          tile.count = 1;
          tile.scratch = scratch.data();
          tile.layout = layout;
          Result result;
          (*table.rows[kernel_of(F::quantize_blocks, {type})].function)(
              &args, tile, result);
          if (expected.empty()) expected = out;
          for (std::size_t i = 0; i < out.size(); ++i) {
            ASSERT_EQ(out[i], expected[i]) << "output " << i;
          }
          // And the values of the codes along rows.
          if (!by_row || args.repeats == 0) continue;
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
