// swamp::mixed_precision_adamw_.
#include <ATen/Parallel.h>

#include <cmath>

#include "master/aten/checks.h"
#include "master/aten/error.h"
#include "master/aten/step_tensors.h"
#include "master/aten/tensor.h"
#include "swamp/aten.h"
#include "swamp/foreach.h"

namespace swamp::aten {
namespace {

// Work is a calling thread's lists, kept, so that nothing is allocated once
// warm; the copies in them are not.
struct Work {
  StepTensors params, grads, exp_avgs, exp_avg_sqs, model_params;

  void clear() noexcept {
    for (StepTensors* list :
         {&params, &grads, &exp_avgs, &exp_avg_sqs, &model_params}) {
      list->clear();
    }
  }
};

void require_lists(at::TensorList master_params, at::TensorList grads,
                   at::TensorList exp_avgs, at::TensorList exp_avg_sqs,
                   at::TensorList model_params) {
  using at::ScalarType;
  constexpr const char* kMaster = "master_params";
  const auto check = [&](at::TensorList list, const char* name, bool written,
                         std::initializer_list<ScalarType> types) {
    require_like(list, name, master_params, kMaster);
    require_list(list, name, written);
    require_types(list, name, types);
  };
  check(master_params, kMaster, true, {ScalarType::Float});
  check(grads, "grads", false,
        {ScalarType::Half, ScalarType::BFloat16, ScalarType::Float});
  check(exp_avgs, "exp_avgs", true, {ScalarType::Float});
  check(exp_avg_sqs, "exp_avg_sqs", true, {ScalarType::Float});
  if (model_params.empty()) return;
  check(model_params, "model_params", true,
        {ScalarType::Half, ScalarType::BFloat16});
}

// one_number() reads a float32 or float64 of one element.
double one_number(const at::Tensor& tensor, const char* name) {
  TORCH_CHECK(tensor.is_cpu(), name, " must be a CPU tensor.");
  TORCH_CHECK(tensor.numel() == 1, name, " must be a 1-element tensor.");
  const bool is_double = tensor.scalar_type() == at::ScalarType::Double;
  TORCH_CHECK(is_double || tensor.scalar_type() == at::ScalarType::Float, name,
              " must be a float or double tensor.");
  const void* data = const_data(tensor);
  return is_double ? load<double>(data) : load<float>(data);
}

}  // namespace

void mixed_precision_adamw_(at::TensorList master_params, at::TensorList grads,
                            at::TensorList exp_avgs, at::TensorList exp_avg_sqs,
                            at::TensorList model_params, at::Tensor step,
                            const at::Tensor& found_inf,
                            const at::Tensor& inv_scale,
                            const std::optional<at::Tensor>& grad_norm,
                            double lr, double beta1, double beta2,
                            double weight_decay, double eps, double max_norm) {
  require_float(found_inf, "found_inf");
  require_float(inv_scale, "inv_scale");
  require_float(step, "step");
  require_lists(master_params, grads, exp_avgs, exp_avg_sqs, model_params);
  const bool has_norm = grad_norm.has_value() && grad_norm->defined();
  double norm = has_norm ? one_number(*grad_norm, "grad_norm") : 0;
  const float steps = load<float>(const_data(step));
  TORCH_CHECK(steps >= 0 && std::floor(steps) == steps && std::isfinite(steps),
              "step is ", steps, "; expected a whole number, at least 0");
  if (load<float>(const_data(found_inf)) != 0) return;  // nan counts as found

  at::get_num_threads();  // as the unscale
  thread_local Work work;
  work.params.assign(master_params, &master_params, true);
  work.grads.assign(grads, &master_params, false);
  work.exp_avgs.assign(exp_avgs, &master_params, true);
  work.exp_avg_sqs.assign(exp_avg_sqs, &master_params, true);
  work.model_params.assign(model_params, &master_params, true);
  AdamStep numbers;
  numbers.lr = lr;
  numbers.beta1 = beta1;
  numbers.beta2 = beta2;
  numbers.eps = eps;
  numbers.weight_decay = weight_decay;
  numbers.decoupled = true;
  numbers.step = static_cast<std::int64_t>(steps) + 1;
  StepScaling scaling;
  scaling.inv_scale = load<float>(const_data(inv_scale));
  translated([&] {
    if (max_norm > 0 && !has_norm) {
      norm = foreach_norm(work.grads.tensors(), scaling.inv_scale);
    }
    scaling.clip_coefficient = clip_coefficient(max_norm, norm);
    foreach_adam_(work.params.tensors(), work.grads.tensors(),
                  work.exp_avgs.tensors(), work.exp_avg_sqs.tensors(),
                  work.model_params.tensors(), numbers, scaling);
  });
  for (StepTensors* list :
       {&work.params, &work.exp_avgs, &work.exp_avg_sqs, &work.model_params}) {
    list->copy_back();
  }
  work.clear();
  store<float>(mutable_data(step), steps + 1);
}

}  // namespace swamp::aten
