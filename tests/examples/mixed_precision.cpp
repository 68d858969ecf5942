#include <cstdint>
#include <cstdio>

#include "swamp/swamp.h"

int main() {
  // The model computes in float16: a weight of 2 and its gradient.
  std::uint16_t weight = swamp::float16_from_float(2);
  std::uint16_t gradient = 0;
  swamp::ParameterGroup group;
  group.parameters = {{"weight",
                       {&weight, 1, swamp::kFloat16},
                       {&gradient, 1, swamp::kFloat16}}};
  swamp::MixedPrecisionOptions options;
  options.fp16 = true;
  options.initial_loss_scale = 65536;
  options.hysteresis = 1;
  options.clip_grad = 1.0;
  swamp::AdamWOptions adamw;
  adamw.lr = 0.01;
  options.optimizer = adamw;
  swamp::MixedPrecisionOptimizer optimizer({group}, options);

  for (int step = 1; step <= 4; ++step) {
    const float loss = swamp::float16_to_float(weight);
    const float scaled = optimizer.scale_loss(loss);
    gradient = swamp::float16_from_float(scaled);  // your backward pass
    const swamp::StepResult result = optimizer.step();
    if (!result.success) {
      std::printf("overflow in %s: loss scale %g -> %g\n",
                  result.overflow_name.c_str(), result.loss_scale,
                  result.next_loss_scale);
      continue;
    }
    std::printf("grad norm %g, weight %.4f\n", *result.grad_norm,
                static_cast<double>(swamp::float16_to_float(weight)));
  }
}
