// The operators of swamp/amp.h on at::Tensors: unscale, check, update the
// scale.
#include "swamp/amp.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>

#include <cstddef>

#include "master/aten/checks.h"
#include "master/aten/fallback.h"
#include "master/aten/tensor.h"
#include "master/aten/tensor_list.h"
#include "swamp/aten.h"

namespace swamp::aten {
namespace {

constexpr ListNames kUnscale{"_amp_foreach_non_finite_check_and_unscale_cpu",
                             "scaled_grads"};
constexpr ListNames kUnscaleGrads{"unscale_cpu", "grads", true};
constexpr ListNames kAnyNonfinite{"any_nonfinite_cpu", "tensors", true};

// unscale_split() takes a list that was split, of tensors that do not overlap.
// Returns whether an element was inf or nan.
bool unscale_split(at::TensorList tensors, const SplitList& split,
                   float inv_scale) {
  float found_inf = 0.0f;
  translated([&] {
    swamp::amp_foreach_non_finite_check_and_unscale_(split.for_kernels(),
                                                     found_inf, inv_scale);
  });
  bool found = found_inf != 0.0f;
  for (const std::size_t index : split.for_fallback()) {
    found |= unscale_elements(tensors[index], inv_scale);
  }
  return found;
}

// unscale() takes a list that was split. Tensors that overlap are done one by
// one, in the order of the list.
bool unscale(at::TensorList tensors, SplitList& split, const ListNames& names,
             bool written, float inv_scale) {
  if (!split.overlaps()) return unscale_split(tensors, split, inv_scale);
  bool found = false;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const at::TensorList one = tensors.slice(i, 1);
    split.assign(one, names, written);
    found |= unscale_split(one, split, inv_scale);
  }
  return found;
}

void unscale(at::TensorList tensors, const at::Tensor& found_inf,
             const at::Tensor& inv_scale, const ListNames& names) {
  if (tensors.empty()) return;
  const at::Tensor inverse = resolved(inv_scale);
  require_scalars({{inverse, "inv_scale"}, {found_inf, "found_inf"}});

  // A thread obeys at::set_num_threads() only after this first call.
  at::get_num_threads();
  const ThreadScratch<SplitList> split;
  split->assign(tensors, names, true);
  // These addresses are valid only after assign(), which gives lazily copied
  // tensors other memory: found_inf and inv_scale may lie in one.
  void* found = mutable_data(found_inf);
  const void* factor = const_data(inverse);
  if (found == factor || split->may_hold_float(found, factor)) {
    for (const at::Tensor& tensor : tensors) {
      unscale_aliased(tensor, found, factor);
    }
    return;
  }
  if (unscale(tensors, *split, names, true, load<float>(factor))) {
    store<float>(found, 1.0f);
  }
}

}  // namespace

void amp_foreach_non_finite_check_and_unscale_(at::TensorList tensors,
                                               at::Tensor& found_inf,
                                               const at::Tensor& inv_scale) {
  unscale(tensors, found_inf, inv_scale, kUnscale);
}

void unscale_(at::TensorList grads, at::Tensor found_inf,
              const at::Tensor& inv_scale) {
  unscale(grads, found_inf, inv_scale, kUnscaleGrads);
}

at::Tensor any_nonfinite(at::TensorList tensors) {
  if (!tensors.empty() && tensors[0].is_meta()) {
    return at::empty({}, tensors[0].options().dtype(at::ScalarType::Float));
  }
  at::get_num_threads();  // as above
  const ThreadScratch<SplitList> split;
  split->assign(tensors, kAnyNonfinite, false);
  // inv_scale == 1 only reads. Tensors that overlap would not matter then, but
  // the machine's transfer mode `check` refuses such lists.
  const bool found = unscale(tensors, *split, kAnyNonfinite, false, 1.0f);
  return at::scalar_tensor(found ? 1.0 : 0.0, at::ScalarType::Float);
}

at::Tensor& amp_update_scale_(at::Tensor& current_scale,
                              at::Tensor& growth_tracker,
                              const at::Tensor& found_inf, double growth_factor,
                              double backoff_factor,
                              std::int64_t growth_interval) {
  require_scalars({{growth_tracker, "growth_tracker", kInt},
                   {current_scale, "current_scale"},
                   {found_inf, "found_inf"}});
  void* scale_data = mutable_data(current_scale);
  void* tracker_data = mutable_data(growth_tracker);
  auto scale = load<float>(scale_data);
  auto tracker = load<std::int32_t>(tracker_data);
  swamp::amp_update_scale_(scale, tracker, load<float>(const_data(found_inf)),
                           growth_factor, backoff_factor, growth_interval);
  store(scale_data, scale);
  store(tracker_data, tracker);
  return current_scale;
}

}  // namespace swamp::aten
