// swamp::grad_norm_and_check.
#include <ATen/Parallel.h>
#include <ATen/ops/scalar_tensor.h>

#include "master/aten/checks.h"
#include "master/aten/error.h"
#include "master/aten/step_tensors.h"
#include "master/aten/tensor.h"
#include "master/aten/thread_work.h"
#include "swamp/aten.h"
#include "swamp/foreach.h"

namespace swamp::aten {

at::Tensor grad_norm_and_check(at::TensorList grads, at::Tensor found_inf,
                               const at::Tensor& inv_scale) {
  require_float(inv_scale, "inv_scale");
  require_float(found_inf, "found_inf");
  require_list(grads, "grads", false);
  require_types(grads, "grads",
                {at::ScalarType::Half, at::ScalarType::BFloat16,
                 at::ScalarType::Float, at::ScalarType::Double});
  at::get_num_threads();  // as the unscale
  const ThreadWork<StepTensors> work;
  work->assign(grads, nullptr, false);
  float found = 0;
  const double norm = translated([&] {
    return foreach_norm(work->tensors(), load<float>(const_data(inv_scale)),
                        &found);
  });
  if (found != 0) store<float>(mutable_data(found_inf), 1.0f);
  return at::scalar_tensor(norm, at::ScalarType::Double);
}

}  // namespace swamp::aten
