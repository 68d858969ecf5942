// MixedPrecisionOptimizer: its choices, accumulation, overflow, and what it
// refuses. The order of a step's events is in mixed_precision_golden_test.cpp.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "machines.h"
#include "small_model.h"
#include "swamp/error.h"
#include "swamp/foreach.h"

namespace swamp::test {
namespace {

std::string scaler_of(MixedPrecisionOptions options) {
  const MixedPrecisionOptimizer optimizer({}, options);
  const LossScaler* scaler = optimizer.loss_scaler();
  return scaler == nullptr ? "" : scaler->name();
}

// Megatron's get_megatron_optimizer(): loss_scale first, 0 is unset.
TEST(MixedPrecision, ChoosesTheScaler) {
  MixedPrecisionOptions options;
  EXPECT_EQ(scaler_of(options), "");
  options.bf16 = true;
  EXPECT_EQ(scaler_of(options), "");
  options.loss_scale = 128;
  EXPECT_EQ(scaler_of(options), "megatron.ConstantGradScaler");
  options.bf16 = false;
  options.fp16 = true;
  EXPECT_EQ(scaler_of(options), "megatron.ConstantGradScaler");
  options.loss_scale = 0;
  EXPECT_EQ(scaler_of(options), "megatron.DynamicGradScaler");
  options.scaler = "torch.amp.GradScaler";
  EXPECT_EQ(scaler_of(options), "torch.amp.GradScaler");
}

TEST(MixedPrecision, MegatronsDefaults) {
  MixedPrecisionOptions options;
  options.fp16 = true;
  const MixedPrecisionOptimizer optimizer({}, options);
  EXPECT_EQ(optimizer.get_loss_scale(), 4294967296.0);
  EXPECT_EQ(optimizer.scale_loss(0.5f), 2147483648.0f);
}

TEST(MixedPrecision, OverflowSkipsEverythingAndIsReported) {
  Trainer trainer(small_options(kFloat16));
  auto& [model, optimizer] = trainer;
  SmallModel before = model;
  model.set_gradients(1);
  model.plant(6, 5);
  model.plant(11, 12000);
  const StepResult result = optimizer.step();
  EXPECT_FALSE(result.success);
  EXPECT_FALSE(result.grad_norm);
  EXPECT_FALSE(result.num_zeros);
  EXPECT_EQ(result.overflow_name, "p6");
  EXPECT_EQ(result.overflow.tensor, 6u);
  EXPECT_EQ(result.overflow.index, 5u);
  EXPECT_EQ(result.overflow.tensor_count, 2u);
  EXPECT_EQ(result.overflow.element_count, 2u);
  EXPECT_EQ(result.loss_scale, 1024);
  EXPECT_EQ(result.next_loss_scale, 512);
  EXPECT_EQ(optimizer.get_loss_scale(), 512);
  EXPECT_EQ(optimizer.step_count(), 0);
  EXPECT_TRUE(model.same_weights(before));
  model.set_gradients(2);
  EXPECT_TRUE(optimizer.step().success);
  EXPECT_EQ(optimizer.step_count(), 1);
  EXPECT_FALSE(model.same_weights(before));
}

// With MindSpore's rule a skipped step has a norm, and the factor no 1e-6.
TEST(MixedPrecision, ClipRules) {
  for (const bool fused : {true, false}) {
    MixedPrecisionOptions options = small_options(kFloat16);
    options.fused = fused;
    options.clip_grad = 1e-7;
    Trainer megatron(options);
    options.clip_rule = ClipRule::mindspore;
    Trainer mindspore(options);
    for (Trainer* trainer : {&megatron, &mindspore}) {
      trainer->model.set_gradients(1);
      trainer->model.plant(6, 5);
      const StepResult result = trainer->optimizer.step();
      EXPECT_FALSE(result.success);
      EXPECT_EQ(result.grad_norm.has_value(), trainer == &mindspore);
      trainer->model.set_gradients(2, 1e-3);
      EXPECT_TRUE(trainer->optimizer.step().success);
    }
    EXPECT_FALSE(megatron.model.same_weights(mindspore.model));
  }
}

// The largest float16 is an overflow if the option is set; its neighbour is
// not.
TEST(MixedPrecision, SaturatedIsOverflow) {
  for (const bool option : {false, true}) {
    for (const std::int64_t micro_batches : {1, 2}) {
      MixedPrecisionOptions options = small_options(kFloat16);
      options.saturated_is_overflow = option;
      options.micro_batches = micro_batches;
      Trainer trainer(options);
      auto& [model, optimizer] = trainer;
      for (const bool planted : {true, false}) {
        for (std::int64_t batch = 0; batch < micro_batches; ++batch) {
          model.set_gradients(1);
          if (planted && batch == 0) model.plant(6, 5, true);
          if (micro_batches != 1) optimizer.accumulate_gradients();
        }
        const StepResult result = optimizer.step();
        EXPECT_EQ(result.success, !(option && planted));
        EXPECT_EQ(result.overflow_name, option && planted ? "p6" : "");
        EXPECT_EQ(result.overflow.element_count, 0u);
      }
      // A micro batch before a state dict is loaded has no effect.
      if (micro_batches == 1) continue;
      model.plant(6, 5, true);
      optimizer.accumulate_gradients();
      optimizer.load_state_dict(optimizer.state_dict());
      model.set_gradients(1);
      for (std::int64_t batch = 0; batch < micro_batches; ++batch) {
        optimizer.accumulate_gradients();
      }
      EXPECT_TRUE(optimizer.step().success);
    }
  }
}

// Rules that never skip do not skip here.
TEST(MixedPrecision, TheScalerDecidesWhichStepsAreSkipped) {
  for (const bool fused : {true, false}) {
    MixedPrecisionOptions options = small_options(kFloat16);
    options.fused = fused;
    options.scaler = "deepspeed.LossScaler";
    Trainer trainer(options);
    auto& [model, optimizer] = trainer;
    model.set_gradients(1);
    model.plant(6, 5);
    const StepResult result = optimizer.step();
    EXPECT_TRUE(result.success);
    EXPECT_EQ(result.overflow_name, "p6");
    EXPECT_EQ(optimizer.step_count(), 1);
  }
}

// The whole step, computed here with the operators.
TEST(MixedPrecision, AStepIsItsParts) {
  MixedPrecisionOptions options = small_options(kBFloat16);
  options.loss_scale = 8;
  options.clip_grad = 0.5;
  options.log_num_zeros_in_grad = true;
  Trainer trainer(options);
  auto& [model, optimizer] = trainer;
  SmallModel by_hand = model;
  FormatList masters(kFloat32, kListCounts), main(kFloat32, kListCounts);
  FormatList m(kFloat32, kListCounts), v(kFloat32, kListCounts);
  const auto cast = [&](auto out, auto in) {
    for (std::size_t i = 0; i < kListCounts.size(); ++i) {
      foreach_cast_(out(i), in(i));
    }
  };
  auto weights = by_hand.parameters();
  cast([&](auto i) { return masters.tensors()[i]; },
       [&](auto i) { return weights[i].data; });
  for (std::int64_t step = 1; step <= 3; ++step) {
    model.set_gradients(static_cast<std::uint64_t>(step));
    by_hand.set_gradients(static_cast<std::uint64_t>(step));
    const StepResult result = optimizer.step();
    ASSERT_TRUE(result.success);

    cast([&](auto i) { return main.tensors()[i]; },
         [&](auto i) { return weights[i].gradient; });
    float found_inf = 0;
    amp_foreach_non_finite_check_and_unscale_(main.tensors(), found_inf,
                                              0.125f);
    const double norm = foreach_norm(main.tensors());
    EXPECT_EQ(result.grad_norm, norm);
    const float clip = clip_coefficient(0.5, norm);
    ASSERT_LT(clip, 1.0f);
    amp_foreach_non_finite_check_and_unscale_(main.tensors(), found_inf, clip);
    EXPECT_EQ(result.num_zeros, foreach_count_zeros(main.tensors()));
    AdamStep adam;
    adam.lr = 0.01;
    adam.weight_decay = 0.01;
    adam.decoupled = true;
    adam.step = step;
    foreach_adam_(masters.tensors(), main.tensors(), m.tensors(), v.tensors(),
                  {}, adam);
    cast([&](auto i) { return weights[i].data; },
         [&](auto i) { return masters.tensors()[i]; });
    EXPECT_TRUE(model.same_weights(by_hand)) << step;
  }
}

TEST(MixedPrecision, AccumulatesInFloat32) {
  // 2048 + 1 is not a float16, but it is a float32.
  std::uint16_t weight = float16_from_float(1);
  std::uint16_t gradient = 0;
  for (const auto reduction :
       {GradientReduction::sum, GradientReduction::mean}) {
    weight = float16_from_float(1);
    MixedPrecisionOptions options;
    options.fp16 = true;
    options.loss_scale = 1;
    options.clip_grad = 0;
    options.micro_batches = 3;
    options.reduction = reduction;
    SgdOptions sgd;
    sgd.lr = 0x1p-12;
    options.optimizer = sgd;
    MixedPrecisionOptimizer optimizer(
        {{{{"w", {&weight, 1, kFloat16}, {&gradient, 1, kFloat16}}}, {}, {}}},
        options);
    for (const float g : {2048.0f, 1.0f, 1.0f}) {
      gradient = float16_from_float(g);
      optimizer.accumulate_gradients();
    }
    ASSERT_TRUE(optimizer.step().success);
    const float sum =
        reduction == GradientReduction::sum ? 2050.0f : 2050.0f / 3;
    EXPECT_EQ(optimizer.state_dict().tensors.at("fp32_from_fp16_params.w")[0],
              std::fmaf(sum, -0x1p-12f, 1));
  }
}

TEST(MixedPrecision, AccumulationIsCounted) {
  MixedPrecisionOptions options = small_options(kFloat16);
  options.micro_batches = 2;
  Trainer trainer(options);
  auto& [model, optimizer] = trainer;
  EXPECT_THROW(optimizer.step(), Error);
  optimizer.accumulate_gradients();
  EXPECT_THROW(optimizer.step(), Error);
  optimizer.accumulate_gradients();
  EXPECT_THROW(optimizer.accumulate_gradients(), Error);
  optimizer.step();
  EXPECT_THROW(optimizer.step(), Error);
}

TEST(MixedPrecision, GroupsHaveTheirOwnOptions) {
  float weights[2] = {1, 1};
  float gradients[2] = {1, 1};
  MixedPrecisionOptions options;
  options.clip_grad = 0;
  SgdOptions sgd;
  sgd.lr = 0.5;
  options.optimizer = sgd;
  const auto parameter = [&](int i) {
    return ModelParameter{std::to_string(i),
                          {&weights[i], 1, kFloat32},
                          {&gradients[i], 1, kFloat32}};
  };
  MixedPrecisionOptimizer optimizer(
      {{{parameter(0)}, {}, {}}, {{parameter(1)}, 0.25, 0.5}}, options);
  optimizer.step();
  EXPECT_EQ(weights[0], 0.5f);
  EXPECT_EQ(weights[1], 1 - 0.25f * 1.5f);
  EXPECT_EQ(optimizer.lr(1), 0.25);
  optimizer.set_lr(0, 1);
  optimizer.step();
  EXPECT_EQ(weights[0], -0.5f);
  EXPECT_THROW(optimizer.set_lr(2, 1), Error);
  EXPECT_THROW(optimizer.set_lr(0, -1), Error);
}

// A rule that throws has changed the scale before: the next loss must use it.
TEST(MixedPrecision, LossScaleAfterTheScalersError) {
  MixedPrecisionOptions options = small_options(kFloat16);
  options.scaler = "mindspore.DynamicLossScaleManager";
  options.scaler_options = {{"init_loss_scale", 16777216.0},
                            {"scale_factor", 1.001},
                            {"scale_window", std::int64_t{2000}}};
  Trainer trainer(options);
  auto& [model, optimizer] = trainer;
  bool thrown = false;
  for (int step = 0; step < 1100 && !thrown; ++step) {
    model.plant(1, 0);
    try {
      optimizer.step();
    } catch (const ScalerError&) {
      thrown = true;
    }
    ASSERT_EQ(optimizer.get_loss_scale(), optimizer.loss_scaler()->scale());
  }
  EXPECT_TRUE(thrown);
}

// ---- The fused step of MixedPrecisionOptimizer has the bits of the unfused
// one, which is easier to understand.

// A fused and an unfused run end with the same bits.
void expect_fused_is_unfused(ScalarType type, MixedPrecisionOptions options,
                             ScalarType gradient_type) {
  SmallModel models[2] = {SmallModel(type), SmallModel(type)};
  OptimizerState states[2];
  std::vector<double> norms[2];
  for (const int fused : {0, 1}) {
    options.fused = fused != 0;
    SmallModel& model = models[fused];
    std::vector<ModelParameter> parameters = model.parameters();
    FormatList gradients(gradient_type, kListCounts);
    for (std::size_t p = 0; p < parameters.size(); ++p) {
      parameters[p].gradient = gradients.tensors()[p];
    }
    MixedPrecisionOptimizer optimizer({{parameters, {}, {}}}, options);
    for (std::uint64_t step = 1; step <= 5; ++step) {
      for (std::int64_t batch = 0; batch < options.micro_batches; ++batch) {
        Random random(step * 10 + static_cast<std::uint64_t>(batch));
        gradients.fill_values(3, random);
        if (step == 3 && options.fp16) {
          store_bits(format_of(gradient_type), parameters[11].gradient.data,
                     15000, format_of(gradient_type).infinity());
        }
        if (options.micro_batches != 1) optimizer.accumulate_gradients();
      }
      const StepResult result = optimizer.step();
      norms[fused].push_back(result.grad_norm.value_or(-1));
      norms[fused].push_back(result.next_loss_scale);
      EXPECT_EQ(result.success, step != 3 || !options.fp16);
      EXPECT_EQ(result.overflow_name, result.success ? "" : "p11");
    }
    states[fused] = optimizer.state_dict();
  }
  EXPECT_TRUE(models[0].same_weights(models[1]));
  EXPECT_EQ(states[0].texts, states[1].texts);
  EXPECT_EQ(states[0].tensors, states[1].tensors);
  EXPECT_EQ(norms[0], norms[1]);
}

TEST(MixedPrecisionFused, SameBits) {
  MixedPrecisionOptions adam = small_options(kFloat16);
  MixedPrecisionOptions l2 = adam;
  l2.optimizer = AdamOptions{0.01, 0.8, 0.99, 1e-6, 0.1, false};
  MixedPrecisionOptions sgd = adam;
  sgd.optimizer = SgdOptions{0.1, 0, 0, 0.01, false};
  MixedPrecisionOptions momentum = adam;
  momentum.optimizer = SgdOptions{0.1, 0.9, 0.1, 0.01, false};
  MixedPrecisionOptions unclipped = adam;
  unclipped.clip_grad = 0;
  MixedPrecisionOptions accumulated = adam;
  accumulated.micro_batches = 3;
  MixedPrecisionOptions amsgrad = adam;
  amsgrad.optimizer = AdamOptions{0.01, 0.8, 0.99, 1e-6, 0.1, true, true, true};
  for (const MixedPrecisionOptions& options :
       {adam, l2, sgd, momentum, unclipped, accumulated, amsgrad}) {
    for (const ScalarType gradient : {kFloat16, kFloat32}) {
      expect_fused_is_unfused(kFloat16, options, gradient);
    }
    MixedPrecisionOptions bf16 = options;
    bf16.fp16 = false;
    bf16.bf16 = true;
    expect_fused_is_unfused(kBFloat16, bf16, kBFloat16);
  }
}

// A fused step has more arrays at once than the smallest LDM holds.
TEST(MixedPrecisionFused, LittleLdmIsNotFused) {
  MachineConfig config;
  config.transfer = "copy";
  config.ldm_bytes = 4096;
  const auto machine = make_machine(config);
  SmallModel model(kFloat16), expected(kFloat16);
  MixedPrecisionOptions options = small_options(kFloat16);
  MixedPrecisionOptimizer other({{expected.parameters(), {}, {}}}, options);
  options.machine = machine.get();
  MixedPrecisionOptimizer optimizer({{model.parameters(), {}, {}}}, options);
  for (std::uint64_t step = 1; step <= 2; ++step) {
    model.set_gradients(step);
    expected.set_gradients(step);
    EXPECT_EQ(optimizer.step().grad_norm, other.step().grad_norm);
  }
  EXPECT_TRUE(model.same_weights(expected));
}

}  // namespace
}  // namespace swamp::test
