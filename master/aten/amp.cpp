// The operators of swamp/amp.h on at::Tensors: unscale, check, update the
// scale.
#include "swamp/amp.h"

#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale_cpu_dispatch.h>
#include <ATen/ops/_neg_view.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>

#include <cstddef>
#include <vector>

#include "master/aten/checks.h"
#include "master/aten/row_tensors.h"
#include "master/aten/tensor.h"
#include "master/aten/tensor_list.h"
#include "swamp/aten.h"
#include "swamp/scan.h"

namespace swamp::aten {
namespace {

constexpr ListNames kUnscale{"_amp_foreach_non_finite_check_and_unscale_cpu",
                             "scaled_grads"};
constexpr ListNames kUnscaleGrads{"unscale_cpu", "grads", true};
constexpr ListNames kAnyNonfinite{"any_nonfinite_cpu", "tensors", true};

bool unscale_arrays(swamp::TensorList arrays, float inv_scale) {
  float found_inf = 0.0f;
  translated([&] {
    swamp::amp_foreach_non_finite_check_and_unscale_(arrays, found_inf,
                                                     inv_scale);
  });
  return found_inf != 0.0f;
}

// unscale() takes a list that was split, of tensors that do not overlap if
// inv_scale is not 1. Returns whether an element was inf or nan.
//
// Tensors with holes or misaligned ones are copied, one after the other, and
// not passed to PyTorch's kernel: it would write if inv_scale is 1, takes no
// float8, and its threads do not flush denormals as the caller does.
bool unscale(at::TensorList tensors, SplitList& split, float inv_scale) {
  bool found = false;
  if (inv_scale == 1.0f && split.overlaps()) {
    // Each is only read; but the machine's transfer mode `check` refuses lists
    // of arrays that overlap.
    for (const Tensor& array : split.arrays()) {
      found |= unscale_arrays(array, inv_scale);
    }
  } else {
    found = unscale_arrays(split.arrays(), inv_scale);
  }
  const at::AutoDispatchBelowADInplaceOrView guard;
  for (const std::size_t i : split.others()) {
    const at::Tensor copy = tensors[i].clone(at::MemoryFormat::Contiguous);
    const Tensor array{mutable_data(copy),
                       static_cast<std::size_t>(copy.numel()),
                       *gradient_type(copy.scalar_type())};
    found |= unscale_arrays(array, inv_scale);
    if (inv_scale != 1.0f) tensors[i].copy_(copy);
  }
  return found;
}

// unscale_in_order() takes a validated list with tensors that share memory with
// each other, found_inf or inv_scale. Later reads then depend on the order of
// PyTorch's kernel, so that kernel runs.
void unscale_in_order(at::TensorList tensors, at::Tensor found_inf,
                      const at::Tensor& inv_scale) {
  std::vector<at::Tensor> plain = tensors.vec();
  for (at::Tensor& tensor : plain) {
    TORCH_CHECK(scalar_type(tensor.scalar_type()).has_value(),
                "grads: got float8 tensors in a list that shares memory with "
                "itself, found_inf or inv_scale, expected separate memory");
    // A lazy minus sign changes only the sign of a product.
    if (tensor.is_neg()) tensor = at::_neg_view(tensor);
  }
  at::cpu::_amp_foreach_non_finite_check_and_unscale_(plain, found_inf,
                                                      inv_scale);
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
  const void* address = const_data(inverse);
  const auto factor = load<float>(address);
  if (found == address || split->may_hold_float(found, address) ||
      (factor != 1.0f && split->overlaps())) {
    unscale_in_order(tensors, found_inf, inverse);
  } else if (unscale(tensors, *split, factor)) {
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

namespace {

// Returns whether an element of a float16 tensor is the largest or the lowest.
bool any_saturated(at::TensorList tensors) {
  constexpr double kLargest = 65504;
  for (const at::Tensor& tensor : tensors) {
    if (tensor.scalar_type() != at::kHalf || tensor._is_zerotensor()) continue;
    const at::Tensor dense = row_major(tensor);
    const Tensor array{const_cast<void*>(const_data(dense)),
                       static_cast<std::size_t>(dense.numel()), kFloat16};
    TensorStatistics found;
    translated([&] { scan_non_finite(array, &found); });
    if (found.absmax == kLargest) return true;
  }
  return false;
}

}  // namespace

at::Tensor any_nonfinite(at::TensorList tensors, bool saturated) {
  if (!tensors.empty() && tensors[0].is_meta()) {
    return at::empty({}, tensors[0].options().dtype(at::ScalarType::Float));
  }
  at::get_num_threads();  // as above
  const ThreadScratch<SplitList> split;
  split->assign(tensors, kAnyNonfinite, false);
  const bool found = unscale(tensors, *split, 1.0f) ||  // only reads
                     (saturated && any_saturated(tensors));
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
