// Cast, accumulate, lerp, zero and the count of zeros over lists, by hand, and
// their errors. The kernels' own tests compare every bit with the references.
#include "swamp/foreach.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>
#include <utility>

#include "float_lists.h"
#include "support/errors.h"
#include "support/float_environment_scope.h"

namespace swamp::test {
namespace {

// The quotient of a 16-bit gradient is rounded to 16 bits before the cast.
TEST(Foreach, CastAccumulateAndZeroByHand) {
  std::uint16_t gradient = float16_from_float(1);
  const float third = float16_to_float(float16_from_float(1.0f / 3));
  float out = 0, sum = 1;
  const Tensor half{&gradient, 1, kFloat16}, single{&out, 1, kFloat32};
  foreach_cast_(single, half, 3);
  EXPECT_EQ(out, third);
  foreach_accumulate_(Tensor{&sum, 1, kFloat32}, half, 3);
  EXPECT_EQ(sum, 2.0f / 3);  // of the sum and the gradient
  foreach_accumulate_(Tensor{&sum, 1, kFloat32}, single);
  EXPECT_EQ(sum, 2.0f / 3 + third);
  foreach_zero_(half);
  EXPECT_EQ(gradient, 0);
}

TEST(ForeachCast, MixedList) {
  Random random(4);
  FormatList half(kFloat16, {5, 3}), single(kFloat32, {5, 3});
  half.fill_values(10, random);
  single.fill_values(10, random);
  FormatList wide(kFloat32, {5, 3}), narrow(kBFloat16, {5, 3});
  const std::vector<Tensor> in = {half.tensors()[0], single.tensors()[1]};
  const std::vector<Tensor> out = {wide.tensors()[0], narrow.tensors()[1]};
  foreach_cast_(out, in);
  const auto* h = static_cast<const std::uint16_t*>(in[0].data);
  const auto* w = static_cast<const float*>(out[0].data);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(w[i], float16_to_float(h[i]));
  const auto* s = static_cast<const float*>(in[1].data);
  const auto* n = static_cast<const std::uint16_t*>(out[1].data);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(n[i], bfloat16_from_float(s[i]));
}

TEST(ForeachLerp, TheEnds) {
  for (const auto& [weight, expected] :
       {std::pair{0.0, 1.0f}, {0.25, 1.5f}, {0.75, 2.5f}, {1.0, 3.0f}}) {
    float out = 1, in = 3;
    foreach_lerp_(Tensor{&out, 1, kFloat32}, Tensor{&in, 1, kFloat32}, weight);
    EXPECT_EQ(out, expected);
  }
}

// A subnormal is not a zero, even if the caller's environment flushes it.
TEST(ForeachCountZeros, SubnormalsUnderFlushToZero) {
  std::vector<float> values(100, 1e-40f);
  values[7] = 0.0f;
  values[99] = -0.0f;
  const Tensor list{values.data(), 100, kFloat32};
  std::uint64_t zeros;
  {
    const ControlScope scope(kFlush);
    zeros = foreach_count_zeros(list);
  }
  EXPECT_EQ(zeros, 2u);
}

TEST(Foreach, EmptyLists) {
  foreach_cast_({}, {});
  foreach_accumulate_({}, {});
  foreach_lerp_({}, {}, 0.5);
  foreach_zero_({});
  EXPECT_EQ(foreach_count_zeros({}), 0u);
}

// ---- Lists that do not match are refused before anything is written.

struct Floats {
  alignas(64) float a[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  alignas(64) float b[8] = {9, 9, 9, 9, 9, 9, 9, 9};

  Tensor of_a(std::size_t count = 8) { return {a, count, kFloat32}; }
  Tensor of_b(std::size_t count = 8) { return {b, count, kFloat32}; }
  void expect_untouched() const {
    for (const float x : b) EXPECT_EQ(x, 9.0f);
  }
};

// Each row is a call and its error; the call must not write `b`.
TEST(ForeachErrors, Lists) {
  static float other[8] = {};
  Tensor odd{other, 8, kFloat32};
  const std::uint32_t type = 77;
  std::memcpy(&odd.dtype, &type, sizeof type);
  struct Row {
    std::function<void(Floats&)> call;
    std::string text;
    swamp_status status = SWAMP_INVALID_ARGUMENT;
  };
  const Row rows[] = {
      {[](Floats& f) {
         const Tensor in[] = {f.of_a(), f.of_a()};
         foreach_cast_(f.of_b(), in);
       },
       "out: got a list of 1 tensors, expected 2, as in 'in'"},
      {[](Floats& f) {
         const Tensor sum[] = {{other, 8, kFloat32}, f.of_b(7)};
         const Tensor in[] = {f.of_a(), f.of_a()};
         foreach_accumulate_(sum, in);
       },
       "sum[1].count: got 7, expected 8, as in 'in'"},
      {[](Floats& f) {
         foreach_cast_(f.of_b(4), Tensor{f.a, 4, kFloat64});
       },
       "in[0].dtype: got 3 (float64), expected 0 (float16), 1 (bfloat16) or 2 "
       "(float32)",
       SWAMP_UNSUPPORTED},
      // An average has the dtype of its source, or float32.
      {[](Floats& f) {
         foreach_lerp_(Tensor{f.b, 4, kBFloat16}, Tensor{f.a, 4, kFloat32},
                       0.5);
       },
       "out[0].dtype: got 1 (bfloat16), expected 2 (float32)",
       SWAMP_UNSUPPORTED},
      // A 16-bit source is cast to float32 only.
      {[](Floats& f) {
         foreach_cast_(Tensor{f.b, 4, kBFloat16}, Tensor{f.a, 4, kFloat16});
       },
       "out[0].dtype: got 1 (bfloat16), expected 2 (float32)",
       SWAMP_UNSUPPORTED},
      {[&](Floats&) { foreach_norm(odd); },
       "tensors[0].dtype: got 77, expected 0 (float16), 1 (bfloat16), 2 "
       "(float32), 3 (float64), 4 (float8_e4m3fn) or 5 (float8_e5m2)"},
      {[](Floats& f) {
         foreach_count_zeros(Tensor{f.a, 4, kFloat64});
       },
       "tensors[0].dtype: got 3 (float64), expected 0 (float16), 1 (bfloat16) "
       "or 2 (float32)",
       SWAMP_UNSUPPORTED},
      {[](Floats& f) {
         foreach_zero_(Tensor{f.b, 4, kFloat64});
       },
       "tensors[0].dtype: got 3 (float64), expected 0 (float16), 1 (bfloat16) "
       "or 2 (float32)",
       SWAMP_UNSUPPORTED},
      {[](Floats& f) {
         foreach_cast_(Tensor{nullptr, 8, kFloat32}, f.of_a());
       },
       "out[0].data: got null, expected the address of 8 elements"},
      {[](Floats&) {
         foreach_cast_(TensorList(nullptr, 3), {nullptr, 3});
       },
       "in: got null, expected the address of 3 tensors"},
  };
  for (const Row& row : rows) {
    Floats floats;
    EXPECT_EQ(error_of([&] { row.call(floats); }, row.status), row.text);
    floats.expect_untouched();
  }
  Floats floats;
  std::byte* const misaligned = reinterpret_cast<std::byte*>(floats.b) + 1;
  expect_refused(
      [&] {
        foreach_cast_(Tensor{misaligned, 4, kFloat32}, floats.of_a(4));
      },
      {"out[0].data: got the misaligned address 0x",
       "expected a multiple of 4"});
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

}  // namespace
}  // namespace swamp::test
