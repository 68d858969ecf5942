// The operators of a training step: swamp::grad_norm_and_check and
// swamp::mixed_precision_adamw_.
#include <ATen/MemoryOverlap.h>
#include <ATen/Parallel.h>
#include <ATen/ops/scalar_tensor.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "master/aten/checks.h"
#include "master/aten/layout.h"
#include "master/aten/tensor.h"
#include "master/aten/tensor_list.h"
#include "swamp/aten.h"
#include "swamp/foreach.h"

namespace swamp::aten {
namespace {

using at::ScalarType;

// require_list() throws unless all are strided CPU tensors of one of the dtypes
// and, if they are to be written, no two elements of a tensor share memory.
void require_list(at::TensorList tensors, const char* name, bool written,
                  std::initializer_list<ScalarType> types) {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor& tensor = tensors[i];
    TORCH_CHECK(tensor.is_cpu(), name, "[", i, "] must be a CPU tensor.");
    TORCH_CHECK(tensor.layout() == at::kStrided, name, "[", i,
                "] must be a strided tensor.");
    if (written) at::assert_no_internal_overlap(tensor);
    std::string expected;
    bool good = false;
    for (const ScalarType type : types) {
      good |= tensor.scalar_type() == type;
      expected += expected.empty() ? "" : " or ";
      expected += c10::toString(type);
    }
    TORCH_CHECK(good, name, "[", i, "]: got the dtype ",
                c10::toString(tensor.scalar_type()), ", expected ", expected);
  }
}

// require_same_shapes() throws unless the shapes are those of `like`.
void require_same_shapes(at::TensorList tensors, const char* name,
                         at::TensorList like, const char* like_name) {
  TORCH_CHECK(tensors.size() == like.size(), name, ": got ", tensors.size(),
              " tensors, expected ", like.size(), ", as ", like_name);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    TORCH_CHECK(tensors[i].sizes() == like[i].sizes(), name, "[", i,
                "]: got the shape ", tensors[i].sizes(), ", expected ",
                like[i].sizes(), ", as ", like_name);
  }
}

constexpr std::size_t kListCount = 5;
constexpr std::size_t kGrads = 1;  // the only list that is not written
constexpr std::array<const char*, kListCount> kNames{
    "master_params", "grads", "exp_avgs", "exp_avg_sqs", "model_params"};

// Lists are the lists of a step in the order of the arguments.
struct Lists {
  std::array<at::TensorList, kListCount> all;

  at::TensorList params() const noexcept { return all[0]; }
  at::TensorList grads() const noexcept { return all[kGrads]; }

  // only() returns the tensors of one parameter.
  Lists only(std::size_t index) const {
    Lists one;
    for (std::size_t l = 0; l < kListCount; ++l) {
      if (!all[l].empty()) one.all[l] = all[l].slice(index, 1);
    }
    return one;
  }
};

void require_lists(const Lists& lists) {
  const auto check = [&](std::size_t l,
                         std::initializer_list<ScalarType> types) {
    require_same_shapes(lists.all[l], kNames[l], lists.params(), kNames[0]);
    require_list(lists.all[l], kNames[l], l != kGrads, types);
  };
  check(0, {ScalarType::Float});
  check(kGrads, {ScalarType::Half, ScalarType::BFloat16, ScalarType::Float});
  check(2, {ScalarType::Float});
  check(3, {ScalarType::Float});
  if (lists.all[4].empty()) return;
  check(4, {ScalarType::Half, ScalarType::BFloat16});
}

// StepScratch is the memory of a step; see ThreadScratch.
struct StepScratch {
  std::array<StepTensors, kListCount> lists;
  std::vector<Extent> extents, sort_scratch;

  void clear() noexcept {
    for (StepTensors& list : lists) list.clear();
    extents.clear();
  }
  bool is_small() const noexcept {
    for (const StepTensors& list : lists) {
      if (!list.is_small()) return false;
    }
    return extents.capacity() <= kMaxKeptCount &&
           sort_scratch.capacity() <= kMaxKeptCount;
  }
};

// overlap() returns whether tensors of the lists may share memory. The
// gradients come last: mutable_data() gives lazily copied tensors other memory.
bool overlap(const Lists& lists, StepScratch& scratch) {
  for (const std::size_t l : std::array<std::size_t, 5>{0, 2, 3, 4, kGrads}) {
    for (const at::Tensor& tensor : lists.all[l]) {
      if (tensor.numel() == 0) continue;
      scratch.extents.push_back(extent_of(
          tensor, l == kGrads ? const_data(tensor) : mutable_data(tensor)));
    }
  }
  return any_overlap(scratch.extents, scratch.sort_scratch);
}

// require_own_memory() throws if tensors of one parameter overlap. Those with
// holes are skipped: they are copied before the step, and another tensor may be
// in their holes.
void require_own_memory(const Lists& lists) {
  for (std::size_t i = 0; i < lists.params().size(); ++i) {
    if (lists.params()[i].numel() == 0) continue;
    for (std::size_t b = 1; b < kListCount && !lists.all[b].empty(); ++b) {
      for (std::size_t a = 0; a < b; ++a) {
        const at::Tensor &one = lists.all[a][i], &other = lists.all[b][i];
        if (!is_dense(one) || !is_dense(other)) continue;
        const Extent x = extent_of(one, const_data(one));
        const Extent y = extent_of(other, const_data(other));
        TORCH_CHECK(x.end <= y.begin || y.end <= x.begin, kNames[b], "[", i,
                    "]: got memory of ", kNames[a], "[", i,
                    "], expected tensors that do not overlap");
      }
    }
  }
}

// run() takes the step on lists whose tensors do not overlap.
void run(const Lists& lists, std::array<StepTensors, kListCount>& tensors,
         const AdamStep& numbers, const StepScaling& scaling) {
  for (std::size_t l = 0; l < kListCount; ++l) {
    tensors[l].assign(lists.all[l], &lists.all[0], l != kGrads);
  }
  translated([&] {
    foreach_adam_(tensors[0].tensors(), tensors[1].tensors(),
                  tensors[2].tensors(), tensors[3].tensors(),
                  tensors[4].tensors(), numbers, scaling);
  });
  for (StepTensors& list : tensors) list.copy_back();
}

// A float64 holds every whole number below this.
constexpr float kStepEnd = 9007199254740992.0f;  // 2^53

}  // namespace

at::Tensor grad_norm_and_check(at::TensorList grads, at::Tensor found_inf,
                               const at::Tensor& inv_scale) {
  require_scalars({{inv_scale, "inv_scale"}, {found_inf, "found_inf"}});
  require_list(grads, "grads", false,
               {ScalarType::Half, ScalarType::BFloat16, ScalarType::Float,
                ScalarType::Double});
  at::get_num_threads();  // as for the unscale
  const ThreadScratch<StepTensors> tensors;
  tensors->assign(grads, nullptr, false);
  float found = 0;
  const double norm = translated([&] {
    return foreach_norm(tensors->tensors(), load<float>(const_data(inv_scale)),
                        &found);
  });
  if (found != 0) store<float>(mutable_data(found_inf), 1.0f);
  return at::scalar_tensor(norm, ScalarType::Double);
}

void mixed_precision_adamw_(at::TensorList master_params, at::TensorList grads,
                            at::TensorList exp_avgs, at::TensorList exp_avg_sqs,
                            at::TensorList model_params, at::Tensor step,
                            const at::Tensor& found_inf,
                            const at::Tensor& inv_scale,
                            const OptionalTensor& grad_norm, double lr,
                            double beta1, double beta2, double weight_decay,
                            double eps, double max_norm) {
  const at::Tensor given_norm = grad_norm.value_or(at::Tensor());
  require_scalars(
      {{found_inf, "found_inf"}, {inv_scale, "inv_scale"}, {step, "step"}});
  const Lists lists{
      {master_params, grads, exp_avgs, exp_avg_sqs, model_params}};
  require_lists(lists);
  if (given_norm.defined()) {
    require_scalars({{given_norm, "grad_norm", kFloatOrDouble}});
  }
  const float steps = load<float>(const_data(step));
  TORCH_CHECK(steps >= 0 && steps < kStepEnd && std::floor(steps) == steps,
              "step: got ", steps,
              ", expected a whole number from 0 to 2^53 - 1");
  if (load<float>(const_data(found_inf)) != 0) return;  // nan counts as found

  at::get_num_threads();  // as for the unscale
  const ThreadScratch<StepScratch> scratch;
  const bool one_by_one = overlap(lists, *scratch);
  if (one_by_one) require_own_memory(lists);
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
  double norm = 0;
  if (given_norm.defined()) {
    norm = given_norm.scalar_type() == ScalarType::Double
               ? load<double>(const_data(given_norm))
               : load<float>(const_data(given_norm));
  } else if (max_norm > 0) {
    StepTensors& all_grads = scratch->lists[kGrads];
    all_grads.assign(grads, &master_params, false);
    norm = translated(
        [&] { return foreach_norm(all_grads.tensors(), scaling.inv_scale); });
  }
  scaling.clip_coefficient = clip_coefficient(max_norm, norm);
  if (one_by_one) {
    for (std::size_t i = 0; i < master_params.size(); ++i) {
      run(lists.only(i), scratch->lists, numbers, scaling);
    }
  } else {
    run(lists, scratch->lists, numbers, scaling);
  }
  store<float>(mutable_data(step), steps + 1);
}

}  // namespace swamp::aten
