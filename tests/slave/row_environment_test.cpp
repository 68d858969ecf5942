// The row kernels in other float environments: the bits of the reference in the
// same environment, and no "invalid operation" for ordinary data.
#include <gtest/gtest.h>

#include <cfenv>
#include <cstring>

#include "row_cases.h"
#include "support/float_environment_scope.h"

namespace swamp::test {
namespace {

constexpr std::size_t kRows = 5;

// Case is a kernel with arguments and operands; `out` are those that it writes.
struct Case {
  int id;
  const void* args;
  std::vector<Data> operands;
  std::vector<std::size_t> out;
  std::size_t units = kRows;

  std::vector<Data> run(const KernelTable& table,
                        std::vector<double>& partial) const {
    std::vector<Data> copies = operands;
    std::vector<void*> pointers;
    for (Data& one : copies) {
      pointers.push_back(one.count() == 0 ? nullptr : one.data());
    }
    run_rows(table, id, args, pointers, units, 0, partial.data());
    return copies;
  }
};

// Cases are one of every kernel on rows. Magnitudes go down to subnormal ones.
struct Cases {
  slave::SoftmaxArgs softmax;
  slave::SoftmaxBackwardArgs softmax_backward;
  slave::CrossEntropyArgs cross_entropy;
  slave::RowNormArgs norm;
  slave::ResidualAddArgs residual;
  slave::MoeSumArgs moe_sum;
  std::vector<Case> all;

  Cases(ScalarType type, std::size_t columns, bool with_minus_infinity)
      : softmax{columns, 0, 0.125f, 0, 1, 0},
        softmax_backward{columns, 0, 0.125f, 0},
        cross_entropy{columns, 0, -100, 0.9, 0.1 / 128, 128, 1e-4, 4, 0},
        norm{columns, 1e-5, 1, 0},
        residual{columns} {
    Random random(columns + type);
    const auto rows = [&](float scale) {
      Data data(type, kRows * columns);
      for (std::size_t i = 0; i < data.count(); ++i) {
        const float small = random.below(16) == 0 ? 1e-38f : 1.0f;
        data.set(i, normal(random) * scale * small);
      }
      return data;
    };
    const auto floats = [](std::size_t count, float value) {
      Data data(kFloat32, count);
      for (std::size_t i = 0; i < count; ++i) data.set(i, value);
      return data;
    };
    const Data none(type, 0);
    const Data x = rows(1);
    Data masked = rows(9);
    for (std::size_t i = 0; with_minus_infinity && i < masked.count(); i += 3) {
      masked.set(i, -std::numeric_limits<float>::infinity());
    }
    Data weight(type, columns);
    for (std::size_t j = 0; j < columns; ++j) weight.set(j, normal(random));
    Data targets(kFloat32, kRows);
    std::memset(targets.data(), 0, targets.bytes());
    Data factors(kFloat32, 3 * kRows);
    for (std::size_t i = 0; i < factors.count(); ++i) factors.set(i, 1);
    const Data column(kFloat32, kRows);
    const Data mean = floats(kRows, 0.01f);
    const Data rstd = floats(kRows, 1.1f);
    all = {{kernel_of(F::scaled_softmax, {type}),
            &softmax,
            {masked, none, x, none, none},
            {2}},
           {kernel_of(F::softmax_backward, {type}),
            &softmax_backward,
            {x, rows(1e-3f), x, none, none},
            {2}},
           {kernel_of(F::cross_entropy, {type}),
            &cross_entropy,
            {x, targets, none, column, column},
            {3, 4}},
           {kernel_of(F::cross_entropy_backward, {type}),
            &cross_entropy,
            {masked, targets, factors, none, x},
            {4}},
           {kernel_of(F::layer_norm, {type, type}),
            &norm,
            {x, weight, weight, x, column, column},
            {3, 4, 5}},
           {kernel_of(F::rms_norm, {type, type}),
            &norm,
            {x, weight, x, column},
            {2, 3}},
           {kernel_of(F::layer_norm_backward, {type, type}),
            &norm,
            {x, rows(2), mean, rstd, weight, x},
            {5}},
           {kernel_of(F::rms_norm_backward, {type, type}),
            &norm,
            {x, rows(2), rstd, weight, x},
            {4}},
           {kernel_of(F::residual_add, {type, type}),
            &residual,
            {x, weight, floats(kRows * columns, 0.3f)},
            {2}},
           {kernel_of(F::moe_sum, {type, type}),
            &moe_sum,
            {x, rows(2), rows(1e-3f), floats(kRows * columns, 0.3f),
             floats(sizeof(slave::MoeFactors) / 4, 1.7f), x},
            {5},
            kRows * columns}};
  }
};

TEST(RowEnvironment, HasTheBitsOfTheReference) {
  for (const ScalarType type : kRowTypes) {
    for (const std::size_t columns : {33u, 1000u, 4097u}) {
      const Cases cases(type, columns, true);
      for (const FloatEnvironment& environment : kFloatEnvironments) {
        for (const Case& one : cases.all) {
          std::vector<Data> expected;
          std::vector<double> sums(2 * columns);
          for (const KernelTable& table : row_tables()) {
            std::vector<Data> actual;
            std::vector<double> partial(2 * columns);
            {
              const ControlScope scope(environment.control);
              actual = one.run(table, partial);
            }
            if (&table == &row_tables()[0]) {
              expected = actual;
              sums = partial;
            }
            ASSERT_EQ(partial, sums);
            for (const std::size_t s : one.out) {
              ASSERT_TRUE(same_bits(actual[s], expected[s]))
                  << table.rows[one.id].name << ' ' << table.isa << ' '
                  << environment.name << " columns " << columns;
            }
          }
        }
      }
    }
  }
}

TEST(RowEnvironment, OrdinaryDataIsNotInvalid) {
  for (const ScalarType type : kRowTypes) {
    for (const std::size_t columns : {1u, 17u, 33u, 64u, 129u, 1000u}) {
      const Cases cases(type, columns, columns > 3);
      for (const Case& one : cases.all) {
        for (const KernelTable& table : row_tables()) {
#ifdef __clang__
          // clang vectorises the plain loops of the references and of EMU128,
          // computes on unused lanes and ignores the flags.
          if (std::strcmp(table.isa, "scalar") == 0) continue;
          if (std::strcmp(table.isa, "reference") == 0) continue;
#endif
          std::vector<double> partial(2 * columns);
          std::feclearexcept(FE_ALL_EXCEPT);
          one.run(table, partial);
          ASSERT_EQ(std::fetestexcept(FE_INVALID), 0)
              << table.rows[one.id].name << ' ' << table.isa << " columns "
              << columns;
        }
      }
    }
  }
}

}  // namespace
}  // namespace swamp::test
