// Cast, accumulate and the count of zeros over lists, on every machine, against
// the scalar references of the kernels.
#include "swamp/foreach.h"

#include <gtest/gtest.h>

#include "float_lists.h"
#include "machines.h"
#include "runtime/check.h"
#include "slave/kernel_args.h"
#include "slave/reference.h"
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
      {kFloat16, kFloat32, &reference::cast_float16_float32},
      {kBFloat16, kFloat32, &reference::cast_bfloat16_float32},
      {kFloat32, kFloat32, &reference::cast_float32_float32},
      {kFloat32, kFloat16, &reference::cast_float32_float16},
      {kFloat32, kBFloat16, &reference::cast_float32_bfloat16}};
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
  const Case cases[] = {{kFloat16, &reference::accumulate_float16},
                        {kBFloat16, &reference::accumulate_bfloat16},
                        {kFloat32, &reference::accumulate_float32}};
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

#ifdef SWAMP_TEST_HAS_MXCSR
// A subnormal is no zero, also where the caller flushes them.
TEST(ForeachCountZeros, SubnormalsUnderFlushToZero) {
  std::vector<float> values(100, 1e-40f);
  values[7] = 0.0f;
  values[99] = -0.0f;
  const Tensor list{values.data(), 100, kFloat32};
  std::uint64_t zeros;
  {
    const MxcsrScope scope(kFlush);
    zeros = foreach_count_zeros(list);
  }
  EXPECT_EQ(zeros, 2u);
}
#endif

TEST(Foreach, EmptyLists) {
  foreach_cast_({}, {});
  foreach_accumulate_({}, {});
  EXPECT_EQ(foreach_count_zeros({}), 0u);
}

}  // namespace
}  // namespace swamp::test
