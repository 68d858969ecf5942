// MixedPrecisionOptimizer: its choices, accumulation, overflow, and what it
// refuses. The order of a step's events is in mixed_precision_golden_test.cpp.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

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
  SmallModel model(kFloat16);
  MixedPrecisionOptimizer optimizer({{model.parameters(), {}, {}}},
                                    small_options(kFloat16));
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

// Rules that never skip do not skip here.
TEST(MixedPrecision, TheScalerDecidesWhatIsSkipped) {
  for (const bool fused : {true, false}) {
    SmallModel model(kFloat16);
    MixedPrecisionOptions options = small_options(kFloat16);
    options.fused = fused;
    options.scaler = "deepspeed.LossScaler";
    MixedPrecisionOptimizer optimizer({{model.parameters(), {}, {}}}, options);
    model.set_gradients(1);
    model.plant(6, 5);
    const StepResult result = optimizer.step();
    EXPECT_TRUE(result.success);
    EXPECT_EQ(result.overflow_name, "p6");
    EXPECT_EQ(optimizer.step_count(), 1);
  }
}

// The whole step, done by hand with the operators.
TEST(MixedPrecision, AStepIsItsParts) {
  SmallModel model(kBFloat16);
  MixedPrecisionOptions options = small_options(kBFloat16);
  options.loss_scale = 8;
  options.clip_grad = 0.5;
  options.log_num_zeros_in_grad = true;
  MixedPrecisionOptimizer optimizer({{model.parameters(), {}, {}}}, options);
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

TEST(MixedPrecision, SameBitsOnEveryMachine) {
  SmallModel expected(kFloat16);
  std::vector<double> norms;
  bool first = true;
  for (const MachineConfig& config :
       machine_configs({{1, 1, 8192}, {1, 3, 8192}, {6, 64, 16384}}, false)) {
    SCOPED_TRACE(to_text(config));
    const auto machine = make_machine(config);
    SmallModel model(kFloat16);
    MixedPrecisionOptions options = small_options(kFloat16);
    options.machine = machine.get();
    MixedPrecisionOptimizer optimizer({{model.parameters(), {}, {}}}, options);
    std::vector<double> found;
    for (std::uint64_t step = 1; step <= 4; ++step) {
      model.set_gradients(step);
      if (step == 2) model.plant(3, 2);
      found.push_back(optimizer.step().grad_norm.value_or(-1));
    }
    if (first) {
      expected = model;
      norms = found;
    }
    first = false;
    EXPECT_TRUE(model.same_weights(expected));
    EXPECT_EQ(found, norms);
  }
}

TEST(MixedPrecision, AccumulatesInFloat32) {
  // 2048 + 1 is no float16; in float32 nothing of it is lost.
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
  SmallModel model(kFloat16);
  MixedPrecisionOptions options = small_options(kFloat16);
  options.micro_batches = 2;
  MixedPrecisionOptimizer optimizer({{model.parameters(), {}, {}}}, options);
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

// Where the rule throws it has moved the scale: the next loss must know.
TEST(MixedPrecision, LossScaleAfterTheScalersError) {
  SmallModel model(kFloat16);
  MixedPrecisionOptions options = small_options(kFloat16);
  options.scaler = "mindspore.DynamicLossScaleManager";
  options.scaler_options = {{"init_loss_scale", 16777216.0},
                            {"scale_factor", 1.001},
                            {"scale_window", std::int64_t{2000}}};
  MixedPrecisionOptimizer optimizer({{model.parameters(), {}, {}}}, options);
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

}  // namespace
}  // namespace swamp::test
