// What scan counts, by hand.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "run_kernel.h"
#include "slave/kernel_args.h"
#include "support/formats.h"

namespace swamp::test {
namespace {

using slave::ScanPartial;

// Every ISA has the bits of the references, so these are tested by hand.
ScanPartial scan(const Format& format, const std::vector<std::uint64_t>& bits) {
  std::vector<std::byte> data(bits.size() * format.bytes);
  for (std::size_t i = 0; i < bits.size(); ++i) {
    store_bits(format, data.data(), i, bits[i]);
  }
  ScanPartial partial{};
  const Result result =
      run_kernel(kernel_tables_here()[0], kernel_of(F::scan, {format.type}),
                 nullptr, {data.data()}, bits.size(), &partial);
  EXPECT_EQ(result.flagged_elements, partial.inf_count + partial.nan_count);
  return partial;
}

double low(const ScanPartial& partial) {
  return slave::from_order_key(partial.min_key);
}
double high(const ScanPartial& partial) {
  return slave::from_order_key(partial.max_key);
}

TEST(Scan, CountsAndExtremes) {
  const struct {
    const Format* format;
    double largest, smallest;
  } all[] = {{&kFloat16Format, 65504, 0x1p-24},
             {&kBFloat16Format, 0x1.fep127, 0x1p-133},
             {&kFloat32Format, std::numeric_limits<float>::max(), 0x1p-149},
             {&kFloat64Format, std::numeric_limits<double>::max(), 0x1p-1074},
             {&kFloat8E4M3FNFormat, 448, 0x1p-9},
             {&kFloat8E5M2Format, 57344, 0x1p-16}};
  for (const auto& e : all) {
    const Format& f = *e.format;
    SCOPED_TRACE(f.name);
    const std::uint64_t minus = f.sign(), last_nan = f.sign() - 1;
    ScanPartial partial = scan(
        f, {0, last_nan, f.infinity(), f.infinity() | minus, f.quiet_nan()});
    const std::uint64_t inf = f.has_infinity() ? 2 : 0;
    EXPECT_EQ(partial.inf_count, inf);
    EXPECT_EQ(partial.nan_count, 4 - inf);
    EXPECT_EQ(partial.first_nonfinite, 1u);
    EXPECT_EQ(partial.finite_count, 1u);

    partial = scan(f, {0, f.infinity() - 1, minus | 1});
    EXPECT_EQ(high(partial), e.largest);
    EXPECT_EQ(low(partial), -e.smallest);
    partial = scan(f, {minus, (f.infinity() - 1) | minus, 1});
    EXPECT_EQ(low(partial), -e.largest);
    EXPECT_EQ(high(partial), e.smallest);

    // -0 is below +0.
    for (const std::uint64_t first : {std::uint64_t{0}, minus}) {
      for (const std::uint64_t second : {std::uint64_t{0}, minus}) {
        partial = scan(f, {first, second});
        EXPECT_EQ(std::signbit(low(partial)), (first | second) != 0);
        EXPECT_EQ(std::signbit(high(partial)), (first & second) != 0);
        EXPECT_EQ(low(partial), 0.0);
      }
    }

    partial = scan(f, {f.infinity(), f.infinity()});
    EXPECT_EQ(partial.finite_count, 0u);
    EXPECT_EQ(partial.min_key, 0);
    EXPECT_EQ(partial.max_key, 0);
  }
}

}  // namespace
}  // namespace swamp::test
