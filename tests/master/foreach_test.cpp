// Cast, accumulate, lerp, zero and the count of zeros over lists, on every
// machine, against the scalar references of the kernels.
#include "swamp/foreach.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>
#include <utility>

#include "float_lists.h"
#include "machines.h"
#include "runtime/memory_check.h"
#include "slave/kernel_args.h"
#include "slave/reference.h"
#include "support/errors.h"
#include "support/float_environment_scope.h"

namespace swamp::test {
namespace {

namespace reference = slave::reference;

const std::vector<MachineShape> kShapes = {
    {1, 1, 4096}, {1, 2, 4096}, {6, 64, 4096}};

// apply() runs a reference over lists of two operands.
template <class Args>
void apply(KernelFunction kernel, const Args& args,
           const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  Result result;
  for (std::size_t i = 0; i < a.size(); ++i) {
    void* const operands[] = {a[i].data, b[i].data};
    kernel(&args, Tile{operands, a[i].count}, result);
  }
}

TEST(ForeachCast, SameBitsOnEveryMachine) {
  struct Case {
    ScalarType from, to;
    KernelFunction kernel;
  };
  const Case cases[] = {
      {kFloat16, kFloat32,
       reference::reference_of(KernelFamily::cast, {kFloat16, kFloat32})},
      {kBFloat16, kFloat32,
       reference::reference_of(KernelFamily::cast, {kBFloat16, kFloat32})},
      {kFloat32, kFloat32,
       reference::reference_of(KernelFamily::cast, {kFloat32, kFloat32})},
      {kFloat32, kFloat16,
       reference::reference_of(KernelFamily::cast, {kFloat32, kFloat16})},
      {kFloat32, kBFloat16,
       reference::reference_of(KernelFamily::cast, {kFloat32, kBFloat16})}};
  const std::size_t reports = runtime::report_count();
  for (const MachineConfig& config : machine_configs(kShapes, true)) {
    SCOPED_TRACE(to_text(config));
    const auto machine = make_machine(config);
    for (const Case& one : cases) {
      for (const float divisor : {1.0f, 3.0f}) {
        Random random(3);
        FormatList in(one.from, kListCounts, 1);
        in.fill_values(100, random);
        FormatList out(one.to, kListCounts), expected(one.to, kListCounts);
        apply(one.kernel, slave::CastArgs{divisor}, in.tensors(),
              expected.tensors());
        foreach_cast_(out.tensors(), in.tensors(), divisor, machine.get());
        EXPECT_TRUE(out == expected) << one.from << " to " << one.to;
      }
    }
    if (HasFailure()) return;
  }
  EXPECT_EQ(runtime::report_count(), reports);
}

// The quotient of a 16-bit gradient is rounded to 16 bits before the cast.
TEST(ForeachCast, RoundsTheQuotientBeforeTheCast) {
  std::uint16_t gradient = float16_from_float(1);
  float out = 0;
  foreach_cast_(Tensor{&out, 1, kFloat32}, Tensor{&gradient, 1, kFloat16}, 3);
  EXPECT_EQ(out, float16_to_float(float16_from_float(1.0f / 3)));
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

TEST(ForeachAccumulate, SameBitsOnEveryMachine) {
  struct Case {
    ScalarType from;
    KernelFunction kernel;
  };
  const Case cases[] = {
      {kFloat16, reference::reference_of(KernelFamily::accumulate, {kFloat16})},
      {kBFloat16,
       reference::reference_of(KernelFamily::accumulate, {kBFloat16})},
      {kFloat32,
       reference::reference_of(KernelFamily::accumulate, {kFloat32})}};
  for (const MachineConfig& config : machine_configs(kShapes, true)) {
    SCOPED_TRACE(to_text(config));
    const auto machine = make_machine(config);
    for (const Case& one : cases) {
      for (const float divisor : {1.0f, 3.0f}) {
        Random random(5);
        FormatList in(one.from, kListCounts, 1);
        in.fill_values(100, random);
        FormatList sum(kFloat32, kListCounts);
        sum.fill_values(1, random);
        FormatList expected = sum;
        apply(one.kernel, slave::AccumulateArgs{divisor}, in.tensors(),
              expected.tensors());
        foreach_accumulate_(sum.tensors(), in.tensors(), divisor,
                            machine.get());
        EXPECT_TRUE(sum == expected) << one.from;
      }
    }
    if (HasFailure()) return;
  }
}

TEST(ForeachLerp, SameBitsOnEveryMachine) {
  struct Case {
    ScalarType from, to;
    KernelFunction kernel;
  };
  const Case cases[] = {
      {kFloat16, kFloat16,
       reference::reference_of(KernelFamily::lerp, {kFloat16, kFloat16})},
      {kFloat16, kFloat32,
       reference::reference_of(KernelFamily::lerp, {kFloat16, kFloat32})},
      {kBFloat16, kBFloat16,
       reference::reference_of(KernelFamily::lerp, {kBFloat16, kBFloat16})},
      {kBFloat16, kFloat32,
       reference::reference_of(KernelFamily::lerp, {kBFloat16, kFloat32})},
      {kFloat32, kFloat32,
       reference::reference_of(KernelFamily::lerp, {kFloat32, kFloat32})}};
  // From 0.5 on, torch's lerp starts from the other end.
  struct Weight {
    double weight;
    slave::LerpArgs args;
  };
  const Weight weights[] = {{0.001, {0.001f, 0}},
                            {-0.3, {-0.3f, 0}},
                            {0.5, {-0.5f, 1}},
                            {0.75, {-0.25f, 1}}};
  for (const MachineConfig& config : machine_configs(kShapes, true)) {
    SCOPED_TRACE(to_text(config));
    const auto machine = make_machine(config);
    for (const Case& one : cases) {
      for (const Weight& weight : weights) {
        Random random(7);
        FormatList in(one.from, kListCounts, 1);
        in.fill_values(100, random);
        FormatList out(one.to, kListCounts);
        out.fill_values(1, random);
        FormatList expected = out;
        apply(one.kernel, weight.args, in.tensors(), expected.tensors());
        foreach_lerp_(out.tensors(), in.tensors(), weight.weight,
                      machine.get());
        EXPECT_TRUE(out == expected) << one.from << " " << weight.weight;
      }
    }
    if (HasFailure()) return;
  }
}

TEST(ForeachLerp, TheEnds) {
  for (const auto& [weight, expected] :
       {std::pair{0.0, 1.0f}, {0.25, 1.5f}, {0.75, 2.5f}, {1.0, 3.0f}}) {
    float out = 1, in = 3;
    foreach_lerp_(Tensor{&out, 1, kFloat32}, Tensor{&in, 1, kFloat32}, weight);
    EXPECT_EQ(out, expected);
  }
}

TEST(ForeachZero, AllBitsOnEveryMachine) {
  for (const MachineConfig& config : machine_configs(kShapes, true)) {
    SCOPED_TRACE(to_text(config));
    const auto machine = make_machine(config);
    for (const ScalarType type : {kFloat16, kBFloat16, kFloat32}) {
      Random random(8);
      FormatList list(type, kListCounts, 1);
      const FormatList expected = list;  // zeros
      list.fill_any_bits(random);
      ASSERT_FALSE(list == expected);
      foreach_zero_(list.tensors(), machine.get());
      EXPECT_TRUE(list == expected) << type;
    }
  }
}

TEST(ForeachCountZeros, CountsBothSigns) {
  for (const MachineConfig& config : machine_configs(kShapes, true)) {
    SCOPED_TRACE(to_text(config));
    const auto machine = make_machine(config);
    for (const ScalarType type : {kFloat16, kBFloat16, kFloat32}) {
      const Format& format = format_of(type);
      Random random(6);
      FormatList list(type, kListCounts);
      list.fill_any_bits(random);
      std::uint64_t expected = 0;
      for (const Tensor& tensor : list.tensors()) {
        for (std::size_t i = 0; i < tensor.count; ++i) {
          const std::uint64_t bits = load_bits(format, tensor.data, i);
          expected += (bits & ~format.sign()) == 0;
        }
      }
      ASSERT_GT(expected, 100u);
      EXPECT_EQ(foreach_count_zeros(list.tensors(), machine.get()), expected);
    }
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
  SgdStep momentum;
  momentum.momentum = 0.9;
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
       "(float32) or 3 (float64)"},
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
      {[&](Floats& f) { foreach_sgd_(f.of_b(), f.of_a(), {}, {}, momentum); },
       "momentum_buffers: got a list of 0 tensors, expected 1, as in "
       "'gradients'"},
      {[](Floats& f) {
         foreach_sgd_(f.of_b(), f.of_a(), Tensor{other, 8, kFloat32}, {},
                      SgdStep{});
       },
       "momentum_buffers: got a list of 1 tensors, expected an empty one, "
       "because the momentum is 0"},
  };
  for (const Row& row : rows) {
    Floats floats;
    EXPECT_EQ(error_of([&] { row.call(floats); }, row.status), row.text);
    floats.expect_untouched();
  }
  Floats floats;
  std::byte* const misaligned = reinterpret_cast<std::byte*>(floats.b) + 1;
  EXPECT_TRUE(has_words(
      error_of([&] {
        foreach_cast_(Tensor{misaligned, 4, kFloat32}, floats.of_a(4));
      }),
      {"out[0].data: got the misaligned address 0x",
       "expected a multiple of 4"}));
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
