// The steps of the optimizers over lists, on every machine, against the scalar
// references of the kernels; and all of their forms against each other.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "float_lists.h"
#include "machines.h"
#include "runtime/memory_check.h"
#include "slave/kernel_args.h"
#include "slave/reference.h"
#include "support/errors.h"
#include "swamp/foreach.h"

namespace swamp::test {
namespace {

namespace reference = slave::reference;

// Arrays is what a step works on.
struct Arrays {
  Arrays(ScalarType gradient_type, ScalarType model_type)
      : gradients(gradient_type, kListCounts, 1),
        params(kFloat32, kListCounts),
        first(kFloat32, kListCounts, 2),
        second(kFloat32, kListCounts),
        largest(kFloat32, kListCounts, 2),
        model(model_type, kListCounts, 1) {
    Random random(17);
    gradients.fill_values(3, random);
    params.fill_values(1, random);
    first.fill_values(0.1, random);
    second.fill_values(0.1, random);
    largest.fill_values(0.1, random);
    for (FormatList* squares : {&second, &largest}) {  // none are negative
      for (const Tensor& tensor : squares->tensors()) {
        auto* v = static_cast<float*>(tensor.data);
        for (std::size_t i = 0; i < tensor.count; ++i) v[i] = std::fabs(v[i]);
      }
    }
  }
  bool operator==(const Arrays& other) const {
    return gradients == other.gradients && params == other.params &&
           first == other.first && second == other.second &&
           largest == other.largest && model == other.model;
  }
  FormatList gradients, params, first, second, largest, model;
};

constexpr StepScaling kScaling{0.125f, 0.7f};

// adam_step() is amsgrad if the list is not empty; both flags together, because
// maximize changes one number.
AdamStep adam_step(TensorList largest = {}) {
  AdamStep step;
  step.lr = 0.01;
  step.weight_decay = 0.1;
  step.decoupled = true;
  step.step = 3;
  step.amsgrad = step.maximize = largest.count() != 0;
  step.max_exp_avg_sqs = largest;
  return step;
}

// adam_args() is the arguments of step 3 of adam_step(), as decimals
// of numbers that were computed with 40 digits:
//   step_size = 0.01 / (1 - 0.9^3), bias_correction2_sqrt = sqrt(1 - 0.999^3),
//   decay = 1 - 0.01 * 0.1
slave::AdamArgs adam_args(float sign) {
  slave::AdamArgs args{};
  args.inv_scale = 0.125f;
  args.clip_coefficient = 0.7f * sign;
  args.one_minus_beta1 = 0.1f;
  args.beta2 = 0.999f;
  args.one_minus_beta2 = 0.001f;
  args.step_size = 0.036900369f;
  args.bias_correction2_sqrt = 0.054744872f;
  args.eps = 1e-8f;
  args.decay = 0.999f;
  return args;
}

// expect_adam() is the reference.
void expect_adam(Arrays& arrays, KernelFunction kernel, bool amsgrad) {
  const slave::AdamArgs args = adam_args(amsgrad ? -1.0f : 1.0f);
  Result result;
  const auto g = arrays.gradients.tensors();
  const auto p = arrays.params.tensors();
  const auto m = arrays.first.tensors();
  const auto v = arrays.second.tensors();
  const auto x = arrays.largest.tensors();
  const auto w = arrays.model.tensors();
  for (std::size_t i = 0; i < g.size(); ++i) {
    void* const operands[] = {g[i].data,
                              p[i].data,
                              m[i].data,
                              v[i].data,
                              amsgrad ? x[i].data : w[i].data,
                              w[i].data};
    kernel(&args, Tile{operands, g[i].count}, result);
  }
}

struct AdamCase {
  ScalarType gradient, model;
  KernelFunction kernel;
  bool amsgrad = false;
};
const AdamCase kAdamCases[] = {
    {kFloat16, kFloat16,
     reference::reference_of(KernelFamily::adam, {kFloat16, kFloat16})},
    {kBFloat16, kBFloat16,
     reference::reference_of(KernelFamily::adam, {kBFloat16, kBFloat16})},
    {kFloat32, kFloat16,
     reference::reference_of(KernelFamily::adam, {kFloat32, kFloat16})},
    {kFloat32, kBFloat16,
     reference::reference_of(KernelFamily::adam, {kFloat32, kBFloat16})},
    {kFloat16, kFloat16,
     reference::reference_of(KernelFamily::adam_amsgrad, {kFloat16, kFloat16}),
     true},
    {kFloat32, kBFloat16,
     reference::reference_of(KernelFamily::adam_amsgrad, {kFloat32, kBFloat16}),
     true}};

void step_adam(Arrays& arrays, bool amsgrad, Machine* machine = nullptr) {
  const std::vector<Tensor> largest =
      amsgrad ? arrays.largest.tensors() : std::vector<Tensor>();
  foreach_adam_(arrays.params.tensors(), arrays.gradients.tensors(),
                arrays.first.tensors(), arrays.second.tensors(),
                arrays.model.tensors(), adam_step(largest), kScaling, machine);
}

// Moved is what the definition of AdamW gives for one element, and how far
// float32 arithmetic may be from it.
struct Moved {
  long double p, m, v, x;
  long double p_bound, m_bound, v_bound;
};

// adamw() is algorithm 2 of "Decoupled Weight Decay Regularization" with t = 3
// and the numbers of adam_step(); with AMSGrad, x is the largest v so far.
Moved adamw(long double p, long double m, long double v, long double x,
            long double g, bool amsgrad) {
  constexpr long double kLr = 0.01L, kDecay = 0.1L, kBeta1 = 0.9L,
                        kBeta2 = 0.999L, kEps = 1e-8L;
  constexpr long double kUnit = 0x1p-24L;   // of the rounding of one operation
  g *= 0.125L * 0.7L * (amsgrad ? -1 : 1);  // adam_step() also maximizes then
  Moved to{};
  to.m = kBeta1 * m + (1 - kBeta1) * g;
  to.v = kBeta2 * v + (1 - kBeta2) * g * g;
  to.x = amsgrad ? std::max(x, to.v) : to.v;
  to.m_bound = 4 * kUnit * (std::fabs(m) + std::fabs(g));
  to.v_bound = 8 * kUnit * to.v;
  const long double rate = kLr / (1 - std::pow(kBeta1, 3.0L));
  const long double root =
      std::sqrt(to.x / (1 - std::pow(kBeta2, 3.0L))) + kEps;
  to.p = p - kLr * kDecay * p - rate * to.m / root;
  to.p_bound = 4 * kUnit * std::fabs(p) + rate * to.m_bound / root +
               24 * kUnit * std::fabs(rate * to.m / root);
  return to;
}

long double value_of(const Tensor& tensor, std::size_t i) {
  const std::uint64_t bits = load_bits(format_of(tensor.dtype), tensor.data, i);
  switch (tensor.dtype) {
    case kFloat16:
      return float16_to_float(static_cast<std::uint16_t>(bits));
    case kBFloat16:
      return bfloat16_to_float(static_cast<std::uint16_t>(bits));
    default:
      return float_from_bits(static_cast<std::uint32_t>(bits));
  }
}

TEST(ForeachAdam, IsTheDefinition) {
  for (const AdamCase& one : kAdamCases) {
    SCOPED_TRACE(std::to_string(one.gradient) + " " +
                 std::to_string(one.model));
    Arrays before(one.gradient, one.model);
    Arrays after = before;
    step_adam(after, one.amsgrad);
    EXPECT_TRUE(after.gradients == before.gradients);
    std::size_t far = 0, moved = 0;
    for (std::size_t t = 0; t < kListCounts.size(); ++t) {
      const Tensor p = before.params.tensors()[t],
                   m = before.first.tensors()[t],
                   v = before.second.tensors()[t],
                   x = before.largest.tensors()[t],
                   g = before.gradients.tensors()[t];
      const Tensor new_p = after.params.tensors()[t],
                   new_m = after.first.tensors()[t],
                   new_v = after.second.tensors()[t],
                   new_x = after.largest.tensors()[t],
                   new_w = after.model.tensors()[t];
      for (std::size_t i = 0; i < kListCounts[t]; ++i) {
        const Moved exact =
            adamw(value_of(p, i), value_of(m, i), value_of(v, i),
                  value_of(x, i), value_of(g, i), one.amsgrad);
        const auto is_far = [](const Tensor& tensor, std::size_t at,
                               long double expected, long double bound) {
          return !(std::fabs(value_of(tensor, at) - expected) <= bound);
        };
        // Half the distance of neighbours, and of the subnormal ones.
        const long double half_unit =
            std::fabs(exact.p) * (one.model == kFloat16 ? 0x1p-11L : 0x1p-8L) +
            (one.model == kFloat16 ? 0x1p-25L : 0);
        far += is_far(new_p, i, exact.p, exact.p_bound) ||
               is_far(new_m, i, exact.m, exact.m_bound) ||
               is_far(new_v, i, exact.v, exact.v_bound) ||
               is_far(new_x, i, one.amsgrad ? exact.x : value_of(x, i),
                      one.amsgrad ? 8 * 0x1p-24L * exact.x : 0) ||
               is_far(new_w, i, exact.p, half_unit + 2 * exact.p_bound);
        moved += is_far(p, i, exact.p, exact.p_bound) &&
                 is_far(m, i, exact.m, exact.m_bound) &&
                 is_far(v, i, exact.v, exact.v_bound);
      }
    }
    EXPECT_EQ(far, 0U);
    EXPECT_GT(moved, 40000U);  // that would be far without a step
  }
}

TEST(ForeachAdam, SameBitsOnEveryMachine) {
  const std::size_t reports = runtime::report_count();
  for (const MachineConfig& config :
       machine_configs({{1, 1, 8192}, {1, 2, 8192}, {6, 64, 16384}}, true)) {
    SCOPED_TRACE(to_text(config));
    const auto machine = make_machine(config);
    for (const AdamCase& one : kAdamCases) {
      SCOPED_TRACE(std::to_string(one.gradient) + " " +
                   std::to_string(one.model));
      Arrays actual(one.gradient, one.model);
      Arrays expected = actual;
      expect_adam(expected, one.kernel, one.amsgrad);
      step_adam(actual, one.amsgrad, machine.get());
      EXPECT_TRUE(actual == expected);
    }
    if (HasFailure()) return;
  }
  EXPECT_EQ(runtime::report_count(), reports);
}

// ---- Less memory

// SmallCase is a kind of weights and moments, and the kernel for it.
struct SmallCase {
  ScalarType gradient, param, moment;  // moment: kFloat8E5M2 for codes
  KernelFunction kernel;
  bool model = false;
  bool kahan = false;
  bool key = false;
};
const SmallCase kSmallCases[] = {
    {kFloat16, kFloat16, kFloat32,
     reference::reference_of(KernelFamily::adam_stochastic,
                             {kFloat16, kFloat16, kFloat32}),
     false, false, true},
    {kBFloat16, kBFloat16, kBFloat16,
     reference::reference_of(KernelFamily::adam_stochastic,
                             {kBFloat16, kBFloat16, kBFloat16}),
     false, false, true},
    {kFloat32, kFloat32, kBFloat16,
     reference::reference_of(KernelFamily::adam_stochastic,
                             {kFloat32, kFloat32, kBFloat16}),
     false, false, true},
    {kBFloat16, kFloat32, kBFloat16,
     reference::reference_of(KernelFamily::adam_stochastic,
                             {kBFloat16, kFloat32, kBFloat16, kBFloat16}),
     true, false, true},
    {kFloat16, kFloat16, kBFloat16,
     reference::reference_of(KernelFamily::adam_kahan, {kFloat16, kBFloat16}),
     false, true, true},
    {kFloat32, kFloat32, kFloat8E5M2,
     reference::reference_of(KernelFamily::adam_8bit, {kFloat32})},
    {kFloat16, kFloat32, kFloat8E5M2,
     reference::reference_of(KernelFamily::adam_8bit, {kFloat16, kFloat16}),
     true},
    {kBFloat16, kBFloat16, kFloat8E5M2,
     reference::reference_of(KernelFamily::adam_8bit_stochastic, {kBFloat16}),
     false, false, true},
    {kBFloat16, kBFloat16, kFloat8E5M2,
     reference::reference_of(KernelFamily::adam_8bit_kahan, {kBFloat16}), false,
     true}};

constexpr std::size_t kBlock = kMomentBlock;

std::vector<std::size_t> absmax_counts() {
  std::vector<std::size_t> counts;
  for (const std::size_t count : kListCounts) {
    counts.push_back((count + kBlock - 1) / kBlock * 2);
  }
  return counts;
}

// SmallArrays is what such a step works on. `more` is the model's weights or
// the compensations.
struct SmallArrays {
  explicit SmallArrays(const SmallCase& one)
      : gradients(one.gradient, kListCounts, 1),
        params(one.param, kListCounts),
        first(one.moment, kListCounts, 2),
        second(one.moment, kListCounts),
        more(one.gradient, kListCounts, 1),
        absmax(kFloat32, absmax_counts()) {
    Random random(23);
    gradients.fill_values(3, random);
    params.fill_values(1, random);
    more.fill_values(1e-4, random);
    absmax.fill_values(0.1, random);
    if (one.moment == kFloat8E5M2) {
      first.fill_any_bits(random);
      second.fill_any_bits(random);
    } else {
      first.fill_values(0.1, random);
      second.fill_values(0.1, random);
    }
    for (FormatList* list : {&second, &absmax}) {  // none are negative
      if (list == &second && one.moment == kFloat8E5M2) continue;
      for (const Tensor& tensor : list->tensors()) {
        const Format& format = format_of(tensor.dtype);
        for (std::size_t i = 0; i < tensor.count; ++i) {
          store_bits(format, tensor.data, i,
                     load_bits(format, tensor.data, i) & ~format.sign());
        }
      }
    }
  }
  bool operator==(const SmallArrays& other) const {
    return gradients == other.gradients && params == other.params &&
           first == other.first && second == other.second &&
           more == other.more && absmax == other.absmax;
  }
  FormatList gradients, params, first, second, more, absmax;
};

// The key of a tensor is the finalizer of splitmix64, applied to seed, step,
// id.
constexpr std::uint64_t mixed(std::uint64_t x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9U;
  x = (x ^ x >> 27) * 0x94d049bb133111ebU;
  return x ^ x >> 31;
}

// The first number of the published splitmix64 with the seed 1234567.
static_assert(mixed(1234567 + 0x9e3779b97f4a7c15U) == 6457827717110365317U);

constexpr std::uint64_t kSeed = 42;

void expect_small(SmallArrays& arrays, const SmallCase& one) {
  slave::AdamBlockArgs args{adam_args(1.0f), 0};
  const auto g = arrays.gradients.tensors(), p = arrays.params.tensors(),
             m = arrays.first.tensors(), v = arrays.second.tensors(),
             more = arrays.more.tensors(), absmax = arrays.absmax.tensors();
  Result result;
  for (std::size_t i = 0; i < g.size(); ++i) {
    const std::uint64_t bits =
        mixed(mixed(mixed(kSeed + 0x9e3779b97f4a7c15U) + 3) + 100 + i);
    slave::RoundingKey key{static_cast<std::uint32_t>(bits),
                           static_cast<std::uint32_t>(bits >> 32)};
    const bool has_more = one.model || one.kahan;
    if (one.moment != kFloat8E5M2) {
      void* const operands[] = {g[i].data,
                                p[i].data,
                                m[i].data,
                                v[i].data,
                                has_more ? more[i].data : &key,
                                &key};
      one.kernel(&args.adam, Tile{operands, g[i].count}, result);
      continue;
    }
    // Block by block; the key's offset stands for the index.
    for (std::size_t at = 0; at < g[i].count; at += kBlock) {
      const auto from = [&](const Tensor& tensor, std::size_t index) {
        return static_cast<void*>(static_cast<std::byte*>(tensor.data) +
                                  index * format_of(tensor.dtype).bytes);
      };
      args.columns =
          static_cast<std::uint32_t>(std::min(kBlock, g[i].count - at));
      void* const operands[] = {from(g[i], at),
                                from(p[i], at),
                                from(m[i], at),
                                from(v[i], at),
                                from(absmax[i], at / kBlock * 2),
                                has_more ? from(more[i], at) : &key};
      one.kernel(&args, Tile{operands, 1}, result);
      key.offset += kBlock;
    }
  }
}

// step_small() is the step of the library.
void step_small(SmallArrays& arrays, const SmallCase& one, Machine* machine) {
  const bool is_8_bit = one.moment == kFloat8E5M2;
  const auto g = arrays.gradients.tensors(), p = arrays.params.tensors(),
             m = arrays.first.tensors(), v = arrays.second.tensors(),
             more = arrays.more.tensors(), absmax = arrays.absmax.tensors();
  std::vector<BlockMoments> blocks;
  std::vector<std::uint64_t> ids;
  for (std::size_t i = 0; i < g.size(); ++i) {
    blocks.push_back({static_cast<std::uint8_t*>(m[i].data),
                      static_cast<std::uint8_t*>(v[i].data),
                      static_cast<float*>(absmax[i].data)});
    ids.push_back(100 + i);
  }
  AdamStep step = adam_step();
  step.seed = kSeed;
  step.ids = ids.data();
  step.stochastic = one.key && !one.kahan;
  const TensorList none;
  if (one.kahan) step.compensations = more;
  if (is_8_bit) step.block_moments = blocks.data();
  foreach_adam_(p, g, is_8_bit ? none : TensorList(m),
                is_8_bit ? none : TensorList(v),
                one.model ? TensorList(more) : none, step, kScaling, machine);
}

TEST(ForeachAdam, LessMemoryHasTheSameBitsOnEveryMachine) {
  const std::size_t reports = runtime::report_count();
  for (const MachineConfig& config :
       machine_configs({{1, 1, 16384}, {1, 2, 16384}, {6, 64, 16384}}, true)) {
    SCOPED_TRACE(to_text(config));
    const auto machine = make_machine(config);
    for (std::size_t c = 0; c < std::size(kSmallCases); ++c) {
      SCOPED_TRACE("case " + std::to_string(c));
      SmallArrays actual(kSmallCases[c]);
      SmallArrays expected = actual;
      expect_small(expected, kSmallCases[c]);
      step_small(actual, kSmallCases[c], machine.get());
      EXPECT_TRUE(actual == expected);
    }
    if (HasFailure()) return;
  }
  EXPECT_EQ(runtime::report_count(), reports);
}

TEST(ForeachAdam, LessMemoryRefusesWhatDoesNotFit) {
  float f = 1;
  std::uint16_t h = 0x3c00;
  std::uint8_t code = 127;
  const Tensor single{&f, 1, kFloat32}, half{&h, 1, kFloat16};
  const BlockMoments blocks{&code, &code, nullptr};
  const TensorList none;
  const auto error = [&](TensorList p, TensorList g, TensorList m,
                         TensorList model, const AdamStep& step,
                         swamp_status status = SWAMP_INVALID_ARGUMENT) {
    return error_of([&] { foreach_adam_(p, g, m, m, model, step); }, status);
  };
  AdamStep step;
  step.stochastic = true;
  EXPECT_EQ(error(half, single, single, none, step, SWAMP_UNSUPPORTED),
            "params[0].dtype: got 0 (float16), expected 2 (float32)");
  EXPECT_EQ(error(half, half, half, none, step, SWAMP_UNSUPPORTED),
            "exp_avgs[0].dtype: got 0 (float16), expected 1 (bfloat16) or 2 "
            "(float32)");
  step.amsgrad = true;
  EXPECT_EQ(error(half, half, single, none, step),
            "amsgrad: got true, expected false with stochastic rounding, "
            "compensations or 8-bit moments");
  step.amsgrad = false;
  step.compensations = half;
  EXPECT_EQ(error(half, half, single, half, step),
            "model_params: got a list of 1 tensors, expected an empty one, "
            "because params have compensations");
  step.compensations = none;
  step.block_moments = &blocks;
  EXPECT_EQ(error(half, half, single, none, step),
            "exp_avgs: got a list of 1 tensors, expected an empty one, because "
            "the moments are 8-bit");
  EXPECT_EQ(error(half, half, none, none, step),
            "block_moments[0]: got null, expected the addresses of 1 codes, "
            "twice, and of two floats for each block of 256");
  EXPECT_EQ(error({nullptr, 1}, half, none, none, step),
            "params: got null, expected the address of 1 tensors");
  step.stochastic = false;
  EXPECT_EQ(error(half, half, none, none, step),
            "stochastic: got false, expected true, because params of 16 bits "
            "with 8-bit moments have neither model_params nor compensations");
  EXPECT_EQ(f, 1.0f);
  EXPECT_EQ(h, 0x3c00);
}

// The fused step has the bits of the separate passes, one after another.
template <class Step>
void expect_fused_is_unfused(ScalarType gradient, Step step) {
  Arrays fused(gradient, kBFloat16);
  Arrays split = fused;
  step(fused, fused.gradients.tensors(), fused.model.tensors(), kScaling);

  FormatList main(kFloat32, kListCounts);
  foreach_cast_(main.tensors(), split.gradients.tensors());
  float found_inf = 0;
  amp_foreach_non_finite_check_and_unscale_(main.tensors(), found_inf,
                                            kScaling.inv_scale);
  amp_foreach_non_finite_check_and_unscale_(main.tensors(), found_inf,
                                            kScaling.clip_coefficient);
  step(split, main.tensors(), std::vector<Tensor>(), StepScaling{});
  foreach_cast_(split.model.tensors(), split.params.tensors());
  EXPECT_TRUE(fused == split);
}

TEST(ForeachAdam, FusedIsUnfused) {
  for (const ScalarType gradient : {kFloat16, kBFloat16, kFloat32}) {
    expect_fused_is_unfused(
        gradient, [](Arrays& a, const std::vector<Tensor>& gradients,
                     const std::vector<Tensor>& model, StepScaling scaling) {
          foreach_adam_(a.params.tensors(), gradients, a.first.tensors(),
                        a.second.tensors(), model, adam_step(), scaling);
        });
  }
}

TEST(ForeachSgd, FusedIsUnfused) {
  for (const ScalarType gradient : {kFloat16, kBFloat16, kFloat32}) {
    for (const double momentum : {0.0, 0.9}) {
      for (const bool first : {true, false}) {
        expect_fused_is_unfused(
            gradient,
            [&](Arrays& a, const std::vector<Tensor>& gradients,
                const std::vector<Tensor>& model, StepScaling scaling) {
              SgdStep step;
              step.lr = 0.1;
              step.momentum = momentum;
              step.nesterov = momentum != 0;
              step.weight_decay = 0.01;
              step.first = first;
              foreach_sgd_(
                  a.params.tensors(), gradients,
                  momentum != 0 ? a.first.tensors() : std::vector<Tensor>(),
                  model, step, scaling);
            });
      }
    }
  }
}

TEST(ForeachStep, RefusesListsThatTheRuleLacks) {
  float one = 1;
  const Tensor tensor{&one, 1, kFloat32};
  AdamStep adam;
  const auto adam_error = [&] {
    return error_of(
        [&] { foreach_adam_(tensor, tensor, tensor, tensor, {}, adam); });
  };
  adam.max_exp_avg_sqs = tensor;
  EXPECT_EQ(adam_error(),
            "max_exp_avg_sqs: got a list of 1 tensors, expected an empty one, "
            "because amsgrad is false");
  adam.amsgrad = true;
  adam.max_exp_avg_sqs = {};
  EXPECT_TRUE(has_words(adam_error(), {"max_exp_avg_sqs"}));
  EXPECT_EQ(error_of([&] { foreach_sgd_(tensor, tensor, tensor, {}, {}); }),
            "momentum_buffers: got a list of 1 tensors, expected an empty one, "
            "because the momentum is 0");
  EXPECT_EQ(one, 1.0f);
}

// maximize is the step of the negative gradients.
TEST(ForeachSgd, Maximize) {
  for (const bool maximize : {false, true}) {
    float p = 1, g = maximize ? -0.5f : 0.5f, b = 2;
    SgdStep step;
    step.lr = 0.25;
    step.momentum = 0.5;
    step.weight_decay = 0.125;
    step.maximize = maximize;
    const auto one = [](float& x) { return Tensor{&x, 1, kFloat32}; };
    foreach_sgd_(one(p), one(g), one(b), {}, step);
    EXPECT_EQ(b, 1.625f);
    EXPECT_EQ(p, 1 - 0.25f * 1.625f);
  }
}

// The plain formula on one element.
TEST(ForeachSgd, Momentum) {
  float p = 1, g = 0.5, b = 2;
  SgdStep step;
  step.lr = 0.25;
  step.momentum = 0.5;
  const auto one = [](float& x) { return Tensor{&x, 1, kFloat32}; };
  foreach_sgd_(one(p), one(g), one(b), {}, step);
  EXPECT_EQ(b, 1.5f);
  EXPECT_EQ(p, 1 - 0.25f * 1.5f);
  step.first = true;
  foreach_sgd_(one(p), one(g), one(b), {}, step);
  EXPECT_EQ(b, 0.5f);
  EXPECT_EQ(g, 0.5f);
}

}  // namespace
}  // namespace swamp::test
