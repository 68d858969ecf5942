#include <cmath>
#include <cstdio>
#include <vector>

#include "swamp/swamp.h"

int main() {
  swamp::MachineConfig config;  // what is left empty comes from SWAMP_*
  config.machine = "sw26010pro";
  swamp::Machine machine(config);

  std::vector<float> weight_grad(100000, 1024.0f);
  std::vector<double> bias_grad(100, 2048.0);
  bias_grad[42] = std::nan("");
  const std::vector<swamp::Tensor> grads = {
      {weight_grad.data(), weight_grad.size(), swamp::kFloat32},
      {bias_grad.data(), bias_grad.size(), swamp::kFloat64}};

  float found_inf = 0.0f;
  swamp::OverflowReport report;
  try {
    swamp::amp_foreach_non_finite_check_and_unscale_(
        grads, found_inf, 1.0f / 1024.0f, &report, &machine);
  } catch (const swamp::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  std::printf("%u slaves: weight %g, found_inf %g, first in tensor %d at %d\n",
              machine.info().chosen.core_groups *
                  machine.info().chosen.slaves_per_group,
              weight_grad[0], found_inf, static_cast<int>(report.tensor),
              static_cast<int>(report.index));
}
