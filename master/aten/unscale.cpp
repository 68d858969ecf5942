// at::_amp_foreach_non_finite_check_and_unscale_() of CPU tensors.
#include <ATen/Parallel.h>
#include <c10/util/Exception.h>

#include <cstddef>

#include "master/aten/elements.h"
#include "master/aten/error.h"
#include "master/aten/tensor.h"
#include "master/aten/thread_work.h"
#include "master/aten/work_list.h"
#include "swamp/amp.h"
#include "swamp/aten.h"

namespace swamp::aten {
namespace {

constexpr ListWords kWords{"_amp_foreach_non_finite_check_and_unscale_cpu",
                           "scaled_grads"};

// run() takes a list down the road, and what must be element by element behind
// it. Returns whether an element was inf or nan.
bool run(at::TensorList tensors, const WorkList& work, float inv_scale) {
  float found_inf = 0.0f;
  translated([&] {
    swamp::amp_foreach_non_finite_check_and_unscale_(work.road(), found_inf,
                                                     inv_scale);
  });
  bool found = found_inf != 0.0f;
  for (const std::size_t index : work.rest()) {
    found |= unscale_elements(tensors[index], inv_scale);
  }
  return found;
}

// run_in_order() is for tensors that share memory.
bool run_in_order(at::TensorList tensors, WorkList& work, float inv_scale) {
  bool found = false;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const at::TensorList one = tensors.slice(i, 1);
    work.assign(one, kWords, true);
    found |= run(one, work, inv_scale);
  }
  return found;
}

}  // namespace

void amp_foreach_non_finite_check_and_unscale_(at::TensorList tensors,
                                               at::Tensor& found_inf,
                                               const at::Tensor& inv_scale) {
  if (tensors.empty()) return;
  TORCH_CHECK(inv_scale.is_cpu(), "inv_scale must be a CPU tensor.");
  TORCH_CHECK(found_inf.is_cpu(), "found_inf must be a CPU tensor.");
  TORCH_CHECK(inv_scale.numel() == 1, "inv_scale must be a 1-element tensor.");
  TORCH_CHECK(found_inf.numel() == 1, "found_inf must be a 1-element tensor.");
  TORCH_CHECK(inv_scale.scalar_type() == at::ScalarType::Float,
              "inv_scale must be a float tensor.");
  TORCH_CHECK(found_inf.scalar_type() == at::ScalarType::Float,
              "found_inf must be a float tensor.");

  // A thread's first operation takes over what at::set_num_threads() has set.
  at::get_num_threads();
  const ThreadWork<WorkList> work;
  work->assign(tensors, kWords, true);
  // After assign(): a lazily copied storage that they share with a tensor gets
  // other memory there.
  void* found = mutable_data(found_inf);
  const void* factor = const_data(inv_scale);
  if (found == factor || work->holds_float(found, factor)) {
    for (const at::Tensor& tensor : tensors) {
      unscale_aliased(tensor, found, factor);
    }
    return;
  }
  const auto value = load<float>(factor);
  const bool dirty = work->overlaps() ? run_in_order(tensors, *work, value)
                                      : run(tensors, *work, value);
  if (dirty) store<float>(found, 1.0f);
}

}  // namespace swamp::aten
