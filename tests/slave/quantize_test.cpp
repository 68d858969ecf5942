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
// negative nan, negative zero, rounding, tapered, elements, key.
constexpr Case kCases[] = {
    {"e4m3fn", {1, 3, 121, 7, 0x7e, 0x7e, 0x7f, 0x7f, 0xff, 0x80, 0, 0, 1, {}}},
    {"e5m2fnuz", {1, 2, 112, 7, 0x7f, 0x80, 0x80, 0x80, 0x80, 0, 0, 0, 1, {}}},
    {"e2m3", {1, 3, 127, 5, 0x1f, 0x1f, 0x1f, 0x20, 0, 0x20, 0, 0, 1, {}}},
    {"e2m1", {1, 1, 127, 3, 7, 7, 7, 7, 7, 8, 0, 0, 2, {}}},
    {"hifloat8", {1, 3, 0, 7, 0xff, 0x6f, 0x6f, 0x80, 0x80, 0, 1, 1, 1, {}}}};

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
        for (std::uint32_t rounding = 0; rounding < 3; ++rounding) {
          if (one.args.tapered != 0 && rounding != slave::kNearestAway)
            continue;
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
              if (i % 2 != 0) bits &= 0xfff80000u;
              x.set(i, float_from_bits(bits));
            }
            QuantizeArgs args = one.args;
            args.rounding = rounding;
            args.scale = count % 4 == 2 ? 1.0f : 0.3f;
            args.key = {17, 99};
            const auto* octets = given ? &random : nullptr;
            const Output expected = run(row_tables()[0], type, args, x, octets);
            for (const KernelTable& table : row_tables()) {
              SCOPED_TRACE(table.isa);
              const Output found = run(table, type, args, x, octets);
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

}  // namespace
}  // namespace swamp::test
