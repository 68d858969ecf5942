#include <cmath>
#include <cstdio>
#include <vector>

#include "swamp/swamp.h"

int main() {
  std::vector<float> weight = {1.0f, 2.0f};
  std::vector<float> gradient(2);
  swamp::FunctionOptimizer sgd(
      swamp::Tensor{gradient.data(), gradient.size(), swamp::kFloat32},
      [&] {
        for (std::size_t i = 0; i < weight.size(); ++i) {
          weight[i] -= 0.5f * gradient[i];
        }
      },
      {"weight"});

  swamp::GradScalerOptions options;
  options.growth_interval = 2;
  swamp::GradScaler scaler(options);
  try {
    for (const float loss : {3.0f, INFINITY, 2.0f, 1.0f}) {
      const float scaled = scaler.scale(loss);
      gradient = {scaled, 0.0f};  // your backward pass
      scaler.unscale_(sgd);       // optional; here you may clip gradient
      const swamp::GradScalerStep step = scaler.step(sgd);
      scaler.update();
      if (step.skipped) {
        std::printf(
            "skipped: %s[%llu], %llu element, ", step.gradient_name.c_str(),
            static_cast<unsigned long long>(step.overflow.index),
            static_cast<unsigned long long>(step.overflow.element_count));
      }
      std::printf("scale %g -> %g, weight %g\n", step.scale_before,
                  step.scale_after, static_cast<double>(weight[0]));
    }
    scaler.step(sgd);
    scaler.step(sgd);
  } catch (const swamp::ScalerError& error) {
    std::printf("%s: %s\n", error.type().c_str(), error.message().c_str());
  }
}
