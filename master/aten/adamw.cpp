// swamp::mixed_precision_adamw_.
#include <ATen/Parallel.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "master/aten/checks.h"
#include "master/aten/error.h"
#include "master/aten/layout.h"
#include "master/aten/overlap.h"
#include "master/aten/step_tensors.h"
#include "master/aten/tensor.h"
#include "master/aten/thread_work.h"
#include "swamp/aten.h"
#include "swamp/foreach.h"

namespace swamp::aten {
namespace {

constexpr std::size_t kListCount = 5;
constexpr std::size_t kGrads = 1;  // the only list that is not written

// Lists is the lists of a step in the order of the arguments.
struct Lists {
  std::array<at::TensorList, kListCount> all;

  at::TensorList params() const noexcept { return all[0]; }
  at::TensorList grads() const noexcept { return all[kGrads]; }

  // only() is the tensors of one parameter.
  Lists only(std::size_t index) const {
    Lists one;
    for (std::size_t l = 0; l < kListCount; ++l) {
      if (!all[l].empty()) one.all[l] = all[l].slice(index, 1);
    }
    return one;
  }
};

constexpr std::array<const char*, kListCount> kNames{
    "master_params", "grads", "exp_avgs", "exp_avg_sqs", "model_params"};

// Work is a calling thread's lists.
struct Work {
  std::array<StepTensors, kListCount> lists;
  std::vector<Extent> extents, scratch;

  void clear() noexcept {
    for (StepTensors& list : lists) list.clear();
    extents.clear();
  }
  bool is_small() const noexcept {
    for (const StepTensors& list : lists) {
      if (!list.is_small()) return false;
    }
    return extents.capacity() <= kMaxKeptCount &&
           scratch.capacity() <= kMaxKeptCount;
  }
};

void require_lists(const Lists& lists) {
  using at::ScalarType;
  const auto check = [&](std::size_t l,
                         std::initializer_list<ScalarType> types) {
    require_like(lists.all[l], kNames[l], lists.params(), kNames[0]);
    require_list(lists.all[l], kNames[l], l != kGrads);
    require_types(lists.all[l], kNames[l], types);
  };
  check(0, {ScalarType::Float});
  check(kGrads, {ScalarType::Half, ScalarType::BFloat16, ScalarType::Float});
  check(2, {ScalarType::Float});
  check(3, {ScalarType::Float});
  if (lists.all[4].empty()) return;
  check(4, {ScalarType::Half, ScalarType::BFloat16});
}

bool is_dense(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->is_non_overlapping_and_dense();
}

// extent() of a tensor that has elements, the first at `data`.
Extent extent(const at::Tensor& tensor, const void* data) {
  const std::int64_t count =
      is_dense(tensor) ? tensor.numel() : Layout(tensor).extent;
  const auto begin = reinterpret_cast<std::uintptr_t>(data);
  return {begin, begin + static_cast<std::size_t>(count) * tensor.itemsize()};
}

// overlap() returns whether tensors of the lists may share memory. Gives lazily
// copied tensors that are written their own memory, before the address of a
// gradient is taken.
bool overlap(const Lists& lists, Work& work) {
  for (const std::size_t l : {0, 2, 3, 4, 1}) {
    for (const at::Tensor& tensor : lists.all[l]) {
      if (tensor.numel() == 0) continue;
      work.extents.push_back(extent(
          tensor, l == kGrads ? const_data(tensor) : mutable_data(tensor)));
    }
  }
  return any_overlap(work.extents, work.scratch);
}

// require_own_memory() wants no two lists to share memory in the tensors of one
// parameter. Tensors with holes are copied before the step, so only their holes
// may hold another.
void require_own_memory(const Lists& lists) {
  for (std::size_t i = 0; i < lists.params().size(); ++i) {
    if (lists.params()[i].numel() == 0) continue;
    for (std::size_t b = 1; b < kListCount && !lists.all[b].empty(); ++b) {
      for (std::size_t a = 0; a < b; ++a) {
        const at::Tensor &one = lists.all[a][i], &other = lists.all[b][i];
        if (!is_dense(one) || !is_dense(other)) continue;
        const Extent x = extent(one, const_data(one));
        const Extent y = extent(other, const_data(other));
        TORCH_CHECK(x.end <= y.begin || y.end <= x.begin, kNames[b], "[", i,
                    "]: got memory of ", kNames[a], "[", i,
                    "], expected tensors that do not overlap");
      }
    }
  }
}

// run() takes the step on lists whose tensors do not overlap.
void run(const Lists& lists, Work& work, const AdamStep& numbers,
         const StepScaling& scaling) {
  for (std::size_t l = 0; l < kListCount; ++l) {
    work.lists[l].assign(lists.all[l], &lists.all[0], l != kGrads);
  }
  translated([&] {
    foreach_adam_(work.lists[0].tensors(), work.lists[1].tensors(),
                  work.lists[2].tensors(), work.lists[3].tensors(),
                  work.lists[4].tensors(), numbers, scaling);
  });
  for (StepTensors& list : work.lists) list.copy_back();
}

// Above it, a float64 does not hold every whole number.
constexpr float kStepEnd = 9007199254740992.0f;  // 2^53

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
  const Lists lists{
      {master_params, grads, exp_avgs, exp_avg_sqs, model_params}};
  require_lists(lists);
  const bool has_norm = grad_norm.has_value() && grad_norm->defined();
  double norm = has_norm ? one_number(*grad_norm, "grad_norm") : 0;
  const float steps = load<float>(const_data(step));
  TORCH_CHECK(steps >= 0 && steps < kStepEnd && std::floor(steps) == steps,
              "step: got ", steps,
              ", expected a whole number from 0 to 2^53 - 1");
  if (load<float>(const_data(found_inf)) != 0) return;  // nan counts as found

  at::get_num_threads();  // as the unscale
  const ThreadWork<Work> work;
  const bool in_order = overlap(lists, *work);
  if (in_order) require_own_memory(lists);
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
  if (max_norm > 0 && !has_norm) {
    StepTensors& all_grads = work->lists[kGrads];
    all_grads.assign(grads, &master_params, false);
    norm = translated(
        [&] { return foreach_norm(all_grads.tensors(), scaling.inv_scale); });
  }
  scaling.clip_coefficient = clip_coefficient(max_norm, norm);
  if (in_order) {
    for (std::size_t i = 0; i < master_params.size(); ++i) {
      run(lists.only(i), *work, numbers, scaling);
    }
  } else {
    run(lists, *work, numbers, scaling);
  }
  store<float>(mutable_data(step), steps + 1);
}

}  // namespace swamp::aten
