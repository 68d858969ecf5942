// The steps of the optimizers over lists against the scalar references of the
// kernels, and all of their forms against each other. The same bits on every
// machine are in operators_test.cpp.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "float_lists.h"
#include "slave/kernel_args.h"
#include "slave/kernel_list.h"
#include "slave/reference_table.h"
#include "support/errors.h"
#include "swamp/foreach.h"

namespace swamp::test {
namespace {

namespace reference = slave::reference;

constexpr StepScaling kScaling{0.125f, 0.7f};
constexpr std::size_t kBlock = kMomentBlock;
constexpr std::uint64_t kSeed = 42;

// Names the first operands of all steps; 8-bit moments also have absmax.
using At = slave::AdamBlockOperand;

// StepCase is a kind of weights and moments: the kernel for it.
struct StepCase {
  KernelFamily family;
  slave::Formats formats;
  bool model = true;
  bool float8 = false;

  const KernelInfo& info() const {
    return slave::kKernels[slave::kernel_of(family, formats)];
  }
  bool is_8_bit() const { return info().operands[At::m].type == kNoScalarType; }
  // Returns the type of an operand; codes are bytes of any type.
  ScalarType type(int operand) const {
    return operand >= At::m && is_8_bit()
               ? (float8 ? kFloat8E4M3FN : kFloat8E5M2)
               : static_cast<ScalarType>(info().operands[operand].type);
  }
  bool amsgrad() const { return family == KernelFamily::adam_amsgrad; }
  bool kahan() const {
    return family == KernelFamily::adam_kahan ||
           family == KernelFamily::adam_8bit_kahan;
  }
  bool stochastic() const {
    return family == KernelFamily::adam_stochastic ||
           family == KernelFamily::adam_8bit_stochastic;
  }
  // The type of the model's weights, or of the compensations.
  ScalarType more() const {
    return family == KernelFamily::adam || amsgrad()
               ? static_cast<ScalarType>(formats.b)
               : type(At::gradient);
  }
};
const StepCase kStepCases[] = {
    {KernelFamily::adam, {kFloat16, kFloat16}},
    {KernelFamily::adam, {kBFloat16, kBFloat16}},
    {KernelFamily::adam, {kFloat32, kFloat16}},
    {KernelFamily::adam, {kFloat32, kBFloat16}},
    {KernelFamily::adam_amsgrad, {kFloat16, kFloat16}},
    {KernelFamily::adam_amsgrad, {kFloat32, kBFloat16}},
    {KernelFamily::adam_stochastic, {kFloat16, kFloat16, kFloat32}, false},
    {KernelFamily::adam_stochastic, {kBFloat16, kBFloat16, kBFloat16}, false},
    {KernelFamily::adam_stochastic, {kFloat32, kFloat32, kBFloat16}, false},
    {KernelFamily::adam_stochastic,
     {kBFloat16, kFloat32, kBFloat16, kBFloat16}},
    {KernelFamily::adam_kahan, {kFloat16, kBFloat16}, false},
    {KernelFamily::adam_8bit, {kFloat32}, false},
    {KernelFamily::adam_8bit, {kFloat16, kFloat16}},
    {KernelFamily::adam_8bit_stochastic, {kBFloat16}, false},
    {KernelFamily::adam_8bit_kahan, {kBFloat16}, false},
    {KernelFamily::adam_8bit, {kFloat32}, false, true},
    {KernelFamily::adam_8bit, {kBFloat16, kBFloat16}, true, true},
    {KernelFamily::adam_8bit_stochastic, {kFloat16}, false, true},
    {KernelFamily::adam_8bit_kahan, {kFloat16}, false, true}};

std::vector<std::size_t> absmax_counts() {
  std::vector<std::size_t> counts;
  for (const std::size_t count : kListCounts) {
    counts.push_back((count + kBlock - 1) / kBlock * 2);
  }
  return counts;
}

// Arrays is what a step works on. `more` is the model's weights or the
// compensations.
struct Arrays {
  explicit Arrays(const StepCase& one)
      : gradients(one.type(At::gradient), kListCounts, 1),
        params(one.type(At::weight), kListCounts),
        first(one.type(At::m), kListCounts, 2),
        second(one.type(At::v), kListCounts),
        largest(kFloat32, kListCounts, 2),
        more(one.more(), kListCounts, 1),
        absmax(kFloat32, absmax_counts()) {
    Random random(17);
    gradients.fill_values(3, random);
    params.fill_values(1, random);
    more.fill_values(1e-4, random);
    for (FormatList* list : {&first, &second, &largest, &absmax}) {
      const bool is_codes =
          one.is_8_bit() && !one.float8 && (list == &first || list == &second);
      if (is_codes) {
        list->fill_any_bits(random);
        continue;
      }
      list->fill_values(0.1, random);
      if (list == &first) continue;
      for (const Tensor& tensor : list->tensors()) {  // none are negative
        const Format& format = format_of(tensor.dtype);
        for (std::size_t i = 0; i < tensor.count; ++i) {
          store_bits(format, tensor.data, i,
                     load_bits(format, tensor.data, i) & ~format.sign());
        }
      }
    }
  }
  bool operator==(const Arrays& other) const {
    return gradients == other.gradients && params == other.params &&
           first == other.first && second == other.second &&
           largest == other.largest && more == other.more &&
           absmax == other.absmax;
  }
  FormatList gradients, params, first, second, largest, more, absmax;
};

// adam_step() has both flags of amsgrad together, because maximize changes one
// number.
AdamStep adam_step(bool amsgrad = false) {
  AdamStep step;
  step.lr = 0.01;
  step.weight_decay = 0.1;
  step.decoupled = true;
  step.step = 3;
  step.seed = kSeed;
  step.amsgrad = step.maximize = amsgrad;
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

// The key of a tensor is the finalizer of splitmix64, applied to seed, step,
// id.
constexpr std::uint64_t mixed(std::uint64_t x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9U;
  x = (x ^ x >> 27) * 0x94d049bb133111ebU;
  return x ^ x >> 31;
}

// The first number of the published splitmix64 with the seed 1234567.
static_assert(mixed(1234567 + 0x9e3779b97f4a7c15U) == 6457827717110365317U);

// expect_step() computes the step by the reference of its kernel.
void expect_step(Arrays& arrays, const StepCase& one) {
  slave::AdamBlockArgs args{adam_args(one.amsgrad() ? -1.0f : 1.0f), 0,
                            one.float8 ? 1u : 0u};
  const auto g = arrays.gradients.tensors(), p = arrays.params.tensors(),
             m = arrays.first.tensors(), v = arrays.second.tensors(),
             largest = arrays.largest.tensors(), more = arrays.more.tensors(),
             absmax = arrays.absmax.tensors();
  const KernelFunction kernel =
      reference::reference_of(one.family, one.formats);
  Result result;
  for (std::size_t i = 0; i < g.size(); ++i) {
    const std::uint64_t bits =
        mixed(mixed(mixed(kSeed + 0x9e3779b97f4a7c15U) + 3) + 100 + i);
    slave::RoundingKey key{static_cast<std::uint32_t>(bits),
                           static_cast<std::uint32_t>(bits >> 32)};
    std::vector<void*> last;
    if (one.amsgrad()) last.push_back(largest[i].data);
    if (one.model || one.kahan()) last.push_back(more[i].data);
    last.insert(last.end(), 2, &key);
    if (!one.is_8_bit()) {
      std::vector<void*> operands = {g[i].data, p[i].data, m[i].data,
                                     v[i].data};
      operands.insert(operands.end(), last.begin(), last.end());
      kernel(&args.adam, Tile{operands.data(), g[i].count}, result);
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
      void* const operands[] = {
          from(g[i], at),
          from(p[i], at),
          from(m[i], at),
          from(v[i], at),
          from(absmax[i], at / kBlock * 2),
          last[0] == &key ? static_cast<void*>(&key) : from(more[i], at)};
      kernel(&args, Tile{operands, 1}, result);
      key.offset += kBlock;
    }
  }
}

// take_step() is the step of the library.
void take_step(Arrays& arrays, const StepCase& one) {
  const auto g = arrays.gradients.tensors(), p = arrays.params.tensors(),
             m = arrays.first.tensors(), v = arrays.second.tensors(),
             largest = arrays.largest.tensors(), more = arrays.more.tensors(),
             absmax = arrays.absmax.tensors();
  std::vector<BlockMoments> blocks;
  std::vector<std::uint64_t> ids;
  for (std::size_t i = 0; i < g.size(); ++i) {
    blocks.push_back({static_cast<std::uint8_t*>(m[i].data),
                      static_cast<std::uint8_t*>(v[i].data),
                      static_cast<float*>(absmax[i].data)});
    ids.push_back(100 + i);
  }
  AdamStep step = adam_step(one.amsgrad());
  step.ids = ids.data();
  step.stochastic = one.stochastic();
  const TensorList none;
  if (one.amsgrad()) step.max_exp_avg_sqs = largest;
  if (one.kahan()) step.compensations = more;
  if (one.is_8_bit()) step.block_moments = blocks.data();
  step.float8_moments = one.float8;
  foreach_adam_(p, g, one.is_8_bit() ? none : TensorList(m),
                one.is_8_bit() ? none : TensorList(v),
                one.model ? TensorList(more) : none, step, kScaling);
}

TEST(ForeachAdam, IsTheKernelOfItsFormula) {
  for (const StepCase& one : kStepCases) {
    SCOPED_TRACE(one.info().name);
    Arrays actual(one);
    Arrays expected = actual;
    expect_step(expected, one);
    take_step(actual, one);
    EXPECT_TRUE(actual == expected);
  }
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
  Arrays fused({KernelFamily::adam, {gradient, kBFloat16}});
  Arrays split = fused;
  step(fused, fused.gradients.tensors(), fused.more.tensors(), kScaling);

  FormatList main(kFloat32, kListCounts);
  foreach_cast_(main.tensors(), split.gradients.tensors());
  float found_inf = 0;
  amp_foreach_non_finite_check_and_unscale_(main.tensors(), found_inf,
                                            kScaling.inv_scale);
  amp_foreach_non_finite_check_and_unscale_(main.tensors(), found_inf,
                                            kScaling.clip_coefficient);
  step(split, main.tensors(), std::vector<Tensor>(), StepScaling{});
  foreach_cast_(split.more.tensors(), split.params.tensors());
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

TEST(ForeachStep, RefusesListsAndNumbers) {
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
  for (const std::int64_t number :
       {std::int64_t{0}, std::int64_t{1} << 53, INT64_MIN}) {
    adam = {};
    adam.step = number;
    EXPECT_EQ(adam_error(), "step: got " + std::to_string(number) +
                                ", expected a whole number from 1, the first "
                                "step, to 2^53 - 1");
  }
  EXPECT_EQ(error_of([&] { foreach_sgd_(tensor, tensor, tensor, {}, {}); }),
            "momentum_buffers: got a list of 1 tensors, expected an empty one, "
            "because the momentum is 0");
  SgdStep sgd;
  sgd.momentum = 0.9;
  EXPECT_EQ(error_of([&] { foreach_sgd_(tensor, tensor, {}, {}, sgd); }),
            "momentum_buffers: got a list of 0 tensors, expected 1, as in "
            "'gradients'");
  EXPECT_EQ(one, 1.0f);
}

// The plain formula on one element; maximize is the step of the negative
// gradient.
TEST(ForeachSgd, ByHand) {
  const struct {
    float gradient;
    double weight_decay;
    bool maximize, first;
    float buffer;
  } rows[] = {{0.5f, 0, false, false, 1.5f},
              {0.5f, 0, false, true, 0.5f},
              {0.5f, 0.125, false, false, 1.625f},
              {-0.5f, 0.125, true, false, 1.625f}};
  for (const auto& row : rows) {
    float p = 1, g = row.gradient, b = 2;
    SgdStep step;
    step.lr = 0.25;
    step.momentum = 0.5;
    step.weight_decay = row.weight_decay;
    step.maximize = row.maximize;
    step.first = row.first;
    const auto one = [](float& x) { return Tensor{&x, 1, kFloat32}; };
    foreach_sgd_(one(p), one(g), one(b), {}, step);
    EXPECT_EQ(b, row.buffer);
    EXPECT_EQ(p, 1 - 0.25f * row.buffer);
    EXPECT_EQ(g, row.gradient);
  }
}

}  // namespace
}  // namespace swamp::test
