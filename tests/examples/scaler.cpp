#include <cstdio>

#include "swamp/swamp.h"

int main() {
  try {
    swamp::LossScaler scaler = swamp::LossScaler::from_name(
        "megatron.DynamicGradScaler",
        {{"initial_scale", 65536.0}, {"growth_interval", 100.0}});
    for (const float found_inf : {1.0f, 1.0f, 0.0f}) {
      const swamp::ScalerStep step = scaler.update(found_inf);
      std::printf("%s, scale %g -> %g\n", step.skipped ? "skip" : "step",
                  step.old_scale, step.new_scale);
    }
    std::puts(scaler.state_dict().c_str());

    swamp::LossScalerOptions options;  // swamp's own: "swamp.LossScaler"
    options.min_scale = 0.125;
    options.max_overflows = 20;
    options.policy = swamp::ScalerPolicy::error;
    swamp::LossScaler own(options);
    std::printf("%g\n", static_cast<double>(own.inv_scale()));
  } catch (const swamp::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
