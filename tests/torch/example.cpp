#include <ATen/ATen.h>

#include <cstdio>
#include <limits>
#include <vector>

#include "swamp/aten.h"

int main() {
  try {
    std::vector<at::Tensor> grads = {
        at::full({1000}, 65536.0),
        at::full({20, 30}, 32768.0, at::kBFloat16).t()};
    grads[0][42] = std::numeric_limits<float>::infinity();
    at::Tensor found_inf = at::zeros({1});
    at::Tensor scale = at::full({1}, 65536.0);
    at::Tensor growth_tracker = at::zeros({1}, at::kInt);

    // PyTorch's own names: linking libswamp_aten has made them swamp's.
    at::_amp_foreach_non_finite_check_and_unscale_(grads, found_inf,
                                                   scale.reciprocal());
    at::_amp_update_scale_(scale, growth_tracker, found_inf, 2.0, 0.5, 2000);
    std::printf("swamp %s: found_inf %g, gradients %g %g, next scale %g\n",
                swamp::aten::version().c_str(), found_inf.item<double>(),
                grads[0][0].item<double>(), grads[1][0][0].item<double>(),
                scale.item<double>());
  } catch (const c10::Error& error) {
    std::fprintf(stderr, "%s\n", error.what_without_backtrace());
    return 1;
  }
}
