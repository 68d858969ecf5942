// The scan kernels, tested without the references.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kernel_cases.h"
#include "slave/kernel_args.h"

namespace swamp::test {
namespace {

using slave::ScanPartial;

// scan() runs the kernel of `format` on the bits, in two tiles: elements before
// and from `cut`.
ScanPartial scan(const KernelTable& table, const Format& format,
                 const std::vector<std::uint64_t>& bits, std::size_t cut = 0) {
  std::vector<std::byte> data(bits.size() * format.bytes);
  for (std::size_t i = 0; i < bits.size(); ++i) {
    store_bits(format, data.data(), i, bits[i]);
  }
  for (const KernelCase& kernel : kernel_cases()) {
    if (kernel.operands[0].format != &format ||
        std::string(kernel.name).rfind("scan_", 0) != 0) {
      continue;
    }
    const KernelFunction function = *table.rows[kernel.id].function;
    ScanPartial partial{};
    Result result;
    const auto run = [&](std::size_t begin, std::size_t end) {
      void* const operands[] = {data.data() + begin * format.bytes};
      function(nullptr, Tile{operands, end - begin, begin, &partial}, result);
    };
    if (cut != 0) run(0, cut);
    run(cut, bits.size());
    EXPECT_EQ(result.flagged_elements, partial.inf_count + partial.nan_count);
    return partial;
  }
  ADD_FAILURE() << "no scan kernel of " << format.name;
  return {};
}

double low(const ScanPartial& partial) {
  return slave::from_order_key(partial.min_key);
}
double high(const ScanPartial& partial) {
  return slave::from_order_key(partial.max_key);
}

// for_each_kernel() visits every scan kernel on every ISA.
template <class Body>
void for_each_kernel(Body body) {
  for (const KernelTable* table : runnable_tables()) {
    for (const Format* format : kAllFormats) {
      SCOPED_TRACE(std::string(table->isa) + " " + format->name);
      body(*table, *format);
    }
  }
}

TEST(Scan, CountsInfAndNanApartAndFindsTheFirst) {
  for_each_kernel([](const KernelTable& table, const Format& f) {
    std::vector<std::uint64_t> bits(2000, 0);
    bits[1500] = f.infinity();
    bits[1501] = f.infinity() | f.sign();
    bits[1999] = f.quiet_nan();
    bits[700] = f.sign() - 1;  // the last nan
    const std::uint64_t inf = f.has_infinity ? 2 : 0;
    for (const std::size_t cut : {0u, 1u, 700u, 701u, 1501u, 1999u}) {
      const ScanPartial partial = scan(table, f, bits, cut);
      EXPECT_EQ(partial.inf_count, inf);
      EXPECT_EQ(partial.nan_count, 4 - inf);
      EXPECT_EQ(partial.first_nonfinite, 700u);
      EXPECT_EQ(partial.finite_count, 1996u);
    }
  });
}

TEST(Scan, ExtremesOfTheFiniteValuesAreExact) {
  struct Extremes {
    const Format* format;
    double largest, smallest;
  };
  const Extremes all[] = {
      {&kFloat16Format, 65504, 0x1p-24},
      {&kBFloat16Format, 0x1.fep127, 0x1p-133},
      {&kFloat32Format, std::numeric_limits<float>::max(), 0x1p-149},
      {&kFloat64Format, std::numeric_limits<double>::max(), 0x1p-1074},
      {&kFloat8E4M3FNFormat, 448, 0x1p-9},
      {&kFloat8E5M2Format, 57344, 0x1p-16}};
  for (const KernelTable* table : runnable_tables()) {
    for (const Extremes& e : all) {
      const Format& f = *e.format;
      SCOPED_TRACE(std::string(table->isa) + " " + f.name);
      for (const std::size_t at : {0u, 100u, 511u, 512u}) {
        std::vector<std::uint64_t> bits(513, 0);
        bits[at] = f.infinity() - 1;
        bits[at == 512 ? 0 : at + 1] = f.sign() | 1;
        ScanPartial partial = scan(*table, f, bits);
        EXPECT_EQ(high(partial), e.largest);
        EXPECT_EQ(low(partial), -e.smallest);
        for (std::uint64_t& one : bits) one ^= f.sign();
        partial = scan(*table, f, bits);
        EXPECT_EQ(low(partial), -e.largest);
        EXPECT_EQ(high(partial), e.smallest);
      }
    }
  }
}

TEST(Scan, MinusZeroIsBelowPlusZero) {
  for_each_kernel([](const KernelTable& table, const Format& f) {
    for (const std::size_t count : {2u, 600u}) {
      std::vector<std::uint64_t> bits(count, 0);
      ScanPartial partial = scan(table, f, bits);
      EXPECT_FALSE(std::signbit(low(partial)));
      EXPECT_FALSE(std::signbit(high(partial)));
      bits[1] = f.sign();
      partial = scan(table, f, bits);
      EXPECT_TRUE(std::signbit(low(partial)));
      EXPECT_FALSE(std::signbit(high(partial)));
      EXPECT_EQ(low(partial), 0.0);
      bits.assign(count, f.sign());
      partial = scan(table, f, bits);
      EXPECT_TRUE(std::signbit(low(partial)));
      EXPECT_TRUE(std::signbit(high(partial)));
    }
  });
}

TEST(Scan, NothingFiniteHasNoExtremes) {
  for_each_kernel([](const KernelTable& table, const Format& f) {
    const std::vector<std::uint64_t> bits(1000, f.infinity());
    const ScanPartial partial = scan(table, f, bits, 500);
    EXPECT_EQ(partial.finite_count, 0u);
    EXPECT_EQ(partial.min_key, 0);
    EXPECT_EQ(partial.max_key, 0);
    EXPECT_EQ(partial.first_nonfinite, 0u);
  });
}

}  // namespace
}  // namespace swamp::test
