// Lists that do not go together are refused before anything is written.
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "support/errors.h"
#include "swamp/foreach.h"

namespace swamp::test {
namespace {

struct Floats {
  alignas(64) float a[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  alignas(64) float b[8] = {9, 9, 9, 9, 9, 9, 9, 9};

  Tensor of_a(std::size_t count = 8) { return {a, count, kFloat32}; }
  Tensor of_b(std::size_t count = 8) { return {b, count, kFloat32}; }
  void expect_untouched() const {
    for (const float x : b) EXPECT_EQ(x, 9.0f);
  }
};

TEST(ForeachErrors, ListsOfDifferentLength) {
  Floats floats;
  EXPECT_EQ(error_of([&] {
              const Tensor in[] = {floats.of_a(), floats.of_a()};
              foreach_cast_(floats.of_b(), in);
            }),
            "out: a list of 1 tensors; expected 2 (as 'in' has)");
  floats.expect_untouched();
}

TEST(ForeachErrors, TensorsOfDifferentCount) {
  Floats floats;
  EXPECT_EQ(error_of([&] {
              float other[8] = {};
              const Tensor sum[] = {{other, 8, kFloat32}, floats.of_b(7)};
              const Tensor in[] = {floats.of_a(), floats.of_a()};
              foreach_accumulate_(sum, in);
            }),
            "sum[1].count: 7; expected 8 (as 'in' has)");
  floats.expect_untouched();
}

TEST(ForeachErrors, Dtypes) {
  Floats floats;
  EXPECT_EQ(error_of(
                [&] {
                  foreach_cast_(floats.of_b(4), Tensor{floats.a, 4, kFloat64});
                },
                SWAMP_UNSUPPORTED),
            "in[0].dtype: 3 (float64) is not taken by this operator; "
            "expected 0 (float16), 1 (bfloat16) or 2 (float32)");
  // A 16-bit source goes to float32 only.
  EXPECT_EQ(error_of(
                [&] {
                  foreach_cast_(Tensor{floats.b, 4, kBFloat16},
                                Tensor{floats.a, 4, kFloat16});
                },
                SWAMP_UNSUPPORTED),
            "out[0].dtype: 1 (bfloat16) is not taken by this operator; "
            "expected 2 (float32)");
  EXPECT_EQ(error_of([&] {
              Tensor odd = floats.of_a();
              const std::uint32_t type = 77;
              std::memcpy(&odd.dtype, &type, sizeof type);
              foreach_norm(odd);
            }),
            "tensors[0].dtype: 77 is unknown; expected 0 (float16), 1 "
            "(bfloat16), 2 (float32) or 3 (float64)");
  EXPECT_EQ(error_of(
                [&] {
                  foreach_count_zeros(Tensor{floats.a, 4, kFloat64});
                },
                SWAMP_UNSUPPORTED),
            "tensors[0].dtype: 3 (float64) is not taken by this operator; "
            "expected 0 (float16), 1 (bfloat16) or 2 (float32)");
  floats.expect_untouched();
}

TEST(ForeachErrors, Data) {
  Floats floats;
  EXPECT_EQ(error_of([&] {
              foreach_cast_(Tensor{nullptr, 8, kFloat32}, floats.of_a());
            }),
            "out[0].data: null with a count of 8; expected the address of "
            "so many elements");
  EXPECT_THROW(foreach_cast_(Tensor{reinterpret_cast<std::byte*>(floats.b) + 1,
                                    4, kFloat32},
                             floats.of_a(4)),
               Error);
  EXPECT_EQ(error_of([&] {
              foreach_cast_(TensorList(nullptr, 3), {nullptr, 3});
            }),
            "in: null with a tensor count of 3; expected the address of so "
            "many tensors");
  floats.expect_untouched();
}

TEST(ForeachErrors, MomentumBuffersAreMissing) {
  Floats floats;
  SgdStep step;
  step.momentum = 0.9;
  EXPECT_EQ(
      error_of(
          [&] { foreach_sgd_(floats.of_b(), floats.of_a(), {}, {}, step); }),
      "momentum_buffers: a list of 0 tensors; expected 1 (as 'gradients' has)");
  floats.expect_untouched();
}

TEST(ForeachErrors, MomentumBuffersWithoutAMomentum) {
  Floats floats;
  EXPECT_EQ(error_of([&] {
              float buffer[8] = {};
              foreach_sgd_(floats.of_b(), floats.of_a(),
                           Tensor{buffer, 8, kFloat32}, {}, SgdStep{});
            }),
            "momentum_buffers: a list of 1 tensors; expected none without a "
            "momentum");
  floats.expect_untouched();
}

// In transfer mode check, arrays that overlap are found.
TEST(ForeachErrors, OverlapInCheck) {
  MachineConfig config;
  config.transfer = "check";
  Machine machine(config);
  Floats floats;
  EXPECT_THROW(foreach_cast_(floats.of_b(4), Tensor{floats.b + 2, 4, kFloat32},
                             1, &machine),
               Error);
  floats.expect_untouched();
}

TEST(ForeachErrors, Steps) {
  Floats floats;
  for (const std::int64_t step :
       {std::int64_t{0}, std::int64_t{1} << 53, INT64_MIN}) {
    EXPECT_EQ(
        error_of([&] {
          float m[8] = {}, v[8] = {};
          AdamStep numbers;
          numbers.step = step;
          foreach_adam_(floats.of_b(), floats.of_a(), Tensor{m, 8, kFloat32},
                        Tensor{v, 8, kFloat32}, {}, numbers);
        }),
        "step: got " + std::to_string(step) +
            ", expected a whole number from 1, the first step, to 2^53 - 1");
  }
  floats.expect_untouched();
}

}  // namespace
}  // namespace swamp::test
