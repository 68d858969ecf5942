// The fused step of MixedPrecisionOptimizer against the unfused one, which is
// the readable truth: the same bits.
#include <gtest/gtest.h>

#include <vector>

#include "machines.h"
#include "small_model.h"

namespace swamp::test {
namespace {

// Everything that a run leaves is the same, fused or not.
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
  for (const MixedPrecisionOptions& options :
       {adam, l2, sgd, momentum, unclipped, accumulated}) {
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
