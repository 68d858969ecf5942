// The residual-add kernels: the bits of the reference on every ISA.
#include <gtest/gtest.h>

#include "row_cases.h"

namespace swamp::test {
namespace {

TEST(ResidualAdd, HasTheBitsOfTheReference) {
  struct {
    ScalarType type, bias;
  } const cases[] = {{kFloat16, kFloat16},
                     {kBFloat16, kBFloat16},
                     {kFloat32, kFloat32},
                     {kFloat16, kFloat32},
                     {kBFloat16, kFloat32}};
  Random random(41);
  for (const auto& one : cases) {
    for (const std::size_t columns : kRowLengths) {
      for (const bool has_bias : {false, true}) {
        const std::size_t rows = 5;
        slave::ResidualAddArgs args{columns};
        Data x = filled_rows(one.type, rows, columns, random, 3);
        Data bias = filled_rows(one.bias, 1, columns, random);
        const Data residual = filled_rows(kFloat32, rows, columns, random);
        Data expected = residual;
        for (const KernelTable& table : row_tables()) {
          Data actual = residual;
          run_rows(table, kernel_of(F::residual_add, {one.type, one.bias}),
                   &args,
                   {x.data(), has_bias ? bias.data() : nullptr, actual.data()},
                   rows, 0, nullptr, true);
          if (&table == &row_tables()[0]) expected = actual;
          ASSERT_TRUE(same_bits(actual, expected))
              << table.isa << " columns " << columns;
        }
        const float sum =
            static_cast<float>(x.value(1 % columns)) +
            (has_bias ? static_cast<float>(bias.value(1 % columns)) : 0.0f);
        if (columns > 1) {
          EXPECT_EQ(static_cast<float>(expected.value(1)),
                    static_cast<float>(residual.value(1)) + sum);
        }
      }
    }
  }
}

}  // namespace
}  // namespace swamp::test
