// swamp::any_nonfinite.
#include <ATen/Parallel.h>
#include <ATen/ops/scalar_tensor.h>

#include <cstddef>

#include "master/aten/elements.h"
#include "master/aten/error.h"
#include "master/aten/thread_work.h"
#include "master/aten/work_list.h"
#include "swamp/amp.h"
#include "swamp/aten.h"

namespace swamp::aten {
namespace {

constexpr ListWords kWords{"any_nonfinite_cpu", "tensors"};

// check() reads only, so the order does not matter; but the machine of transfer
// mode check takes no list of tensors that overlap.
bool check(at::TensorList tensors, WorkList& work) {
  work.assign(tensors, kWords, false);
  if (tensors.size() > 1 && work.overlaps()) {
    bool found = false;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      found |= check(tensors.slice(i, 1), work);
    }
    return found;
  }
  float found_inf = 0.0f;
  translated([&] {
    swamp::amp_foreach_non_finite_check_and_unscale_(work.road(), found_inf,
                                                     1.0f);
  });
  bool found = found_inf != 0.0f;
  for (const std::size_t index : work.rest()) {
    found |= unscale_elements(tensors[index], 1.0f);
  }
  return found;
}

}  // namespace

at::Tensor any_nonfinite(at::TensorList tensors) {
  at::get_num_threads();  // as the unscale
  const ThreadWork<WorkList> work;
  const bool found = check(tensors, *work);
  return at::scalar_tensor(found ? 1.0 : 0.0, at::ScalarType::Float);
}

at::Tensor check_finite(at::TensorList tensors) {
  return any_nonfinite(tensors);
}

}  // namespace swamp::aten
