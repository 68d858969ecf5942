// The steps of the optimizers over lists, on every machine, against the scalar
// references of the kernels; and all of their forms against each other.
#include <gtest/gtest.h>

#include <cmath>

#include "float_lists.h"
#include "machines.h"
#include "runtime/check.h"
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

// expect_adam() runs the reference with the arguments of the formula.
void expect_adam(Arrays& arrays, KernelFunction kernel, bool amsgrad) {
  const AdamStep step = adam_step();
  slave::AdamArgs args{};
  args.inv_scale = kScaling.inv_scale;
  args.clip_coefficient = kScaling.clip_coefficient * (amsgrad ? -1.0f : 1.0f);
  args.one_minus_beta1 = static_cast<float>(1 - step.beta1);
  args.beta2 = static_cast<float>(step.beta2);
  args.one_minus_beta2 = static_cast<float>(1 - step.beta2);
  args.step_size = static_cast<float>(step.lr / (1 - std::pow(step.beta1, 3)));
  args.bias_correction2_sqrt =
      static_cast<float>(std::sqrt(1 - std::pow(step.beta2, 3)));
  args.eps = static_cast<float>(step.eps);
  args.decay = static_cast<float>(1 - step.lr * step.weight_decay);
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

TEST(ForeachAdam, SameBitsOnEveryMachine) {
  struct Case {
    ScalarType gradient, model;
    KernelFunction kernel;
    bool amsgrad = false;
  };
  const Case cases[] = {
      {kFloat16, kFloat16, &reference::adam_float16_float16},
      {kBFloat16, kBFloat16, &reference::adam_bfloat16_bfloat16},
      {kFloat32, kFloat16, &reference::adam_float32_float16},
      {kFloat32, kBFloat16, &reference::adam_float32_bfloat16},
      {kFloat16, kFloat16, &reference::adam_amsgrad_float16_float16, true},
      {kFloat32, kBFloat16, &reference::adam_amsgrad_float32_bfloat16, true}};
  const std::size_t reports = runtime::report_count();
  for (const MachineConfig& config :
       machine_configs({{1, 1, 8192}, {1, 2, 8192}, {6, 64, 16384}}, true)) {
    SCOPED_TRACE(to_text(config));
    const auto machine = make_machine(config);
    for (const Case& one : cases) {
      SCOPED_TRACE(std::to_string(one.gradient) + " " +
                   std::to_string(one.model));
      Arrays actual(one.gradient, one.model);
      Arrays expected = actual;
      expect_adam(expected, one.kernel, one.amsgrad);
      const std::vector<Tensor> largest =
          one.amsgrad ? actual.largest.tensors() : std::vector<Tensor>();
      foreach_adam_(actual.params.tensors(), actual.gradients.tensors(),
                    actual.first.tensors(), actual.second.tensors(),
                    actual.model.tensors(), adam_step(largest), kScaling,
                    machine.get());
      EXPECT_TRUE(actual == expected);
    }
    if (HasFailure()) return;
  }
  EXPECT_EQ(runtime::report_count(), reports);
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
