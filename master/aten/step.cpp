// The operators of a training step: swamp::grad_norm_and_check,
// swamp::mixed_precision_adamw_, swamp::foreach_lerp_ and swamp::foreach_zero_.
//
// gather() makes libswamp's lists in one pass if all tensors are ordinary.
// Otherwise everything is checked here first, because tensors with holes or of
// another element order are copied, and lists that overlap are stepped one
// parameter after another: an error must come before the first write.
#include "master/aten/step.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <variant>
#include <vector>

#include "master/aten/checks.h"
#include "master/aten/layout.h"
#include "master/aten/registration.h"
#include "master/aten/tensor.h"
#include "master/aten/tensor_list.h"
#include "swamp/aten.h"
#include "swamp/foreach.h"

namespace swamp::aten {
namespace {

using at::ScalarType;

// Types is a set of dtypes.
using Types = std::initializer_list<ScalarType>;
constexpr Types kFloatOnly{ScalarType::Float};
constexpr Types kGradTypes{ScalarType::Half, ScalarType::BFloat16,
                           ScalarType::Float};
constexpr Types kModelTypes{ScalarType::Half, ScalarType::BFloat16};
constexpr Types kMomentTypes{ScalarType::Float, ScalarType::BFloat16};
constexpr Types kCodeTypes{ScalarType::Byte};
constexpr Types kFloat8Types{ScalarType::Float8_e4m3fn};

Types types_of(const StepStorage& storage, std::size_t list) {
  if (list == kStepGrads) return kGradTypes;
  if (list == kStepOutput) return kModelTypes;
  if (!storage.compact || list == kStepAbsmax) return kFloatOnly;
  if (list == 0) return kGradTypes;
  if (!storage.is_8_bit) return kMomentTypes;
  return storage.is_float8 ? kFloat8Types : kCodeTypes;
}

// Returns whether `tensor` has two contiguous floats a block of `param`.
bool has_absmax(const at::Tensor& tensor, const at::Tensor& param) {
  return tensor.numel() == absmax_count(param.numel()) &&
         tensor.is_contiguous() && !is_lazy(tensor) &&
         is_aligned(address_of(tensor), sizeof(float));
}

// weight_of() is the weight whose dtype a gradient of less memory has.
std::size_t weight_of(const StepLists& lists) {
  return lists.storage.kahan || lists.all[kStepOutput].empty() ? 0
                                                               : kStepOutput;
}

bool has_type_of_weight(const StepLists& lists, std::size_t i) {
  return lists.grads()[i].scalar_type() ==
         lists.all[weight_of(lists)][i].scalar_type();
}

bool is_one_of(ScalarType type, Types types) {
  for (const ScalarType one : types) {
    if (type == one) return true;
  }
  return false;
}

[[noreturn]] void refuse_dtype(const char* name, std::size_t i, ScalarType type,
                               Types expected) {
  std::string texts;
  for (const ScalarType one : expected) {
    texts += texts.empty() ? "" : " or ";
    texts += c10::toString(one);
  }
  TORCH_CHECK(false, name, "[", i, "]: got the dtype ", c10::toString(type),
              ", expected ", texts);
}

// require_list() throws unless all are strided CPU tensors of one of the dtypes
// and, if they are to be written, no two elements of a tensor share memory.
void require_list(at::TensorList tensors, const char* name, bool written,
                  Types types) {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor& tensor = tensors[i];
    TORCH_CHECK(tensor.is_cpu(), name, "[", i, "] must be a CPU tensor.");
    TORCH_CHECK(tensor.layout() == at::kStrided, name, "[", i,
                "] must be a strided tensor.");
    const bool is_zero = tensor._is_zerotensor();
    TORCH_CHECK(!is_zero || !written, name, "[", i,
                "]: got a zero tensor, expected one that can be written: call "
                "clone()");
    TORCH_CHECK(is_zero || tensor.numel() == 0 || address_of(tensor) != 0, name,
                "[", i,
                "]: got a tensor without memory, expected one with its "
                "elements in the memory of the CPU");
    if (written && !is_dense(tensor)) at::assert_no_internal_overlap(tensor);
    const ScalarType type = tensor.scalar_type();
    if (!is_one_of(type, types)) refuse_dtype(name, i, type, types);
  }
}

// require_same_shapes() throws if a shape differs from its tensor in `like`.
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

// StepScratch is the memory of a step; see ThreadScratch.
struct StepScratch {
  std::array<StepTensors, kStepListCount> lists;
  std::vector<BlockMoments> blocks;
  std::vector<Extent> extents, sort_scratch;

  void clear() noexcept {
    for (StepTensors& list : lists) list.clear();
    blocks.clear();
    extents.clear();
  }
  bool is_small() const noexcept {
    for (const StepTensors& list : lists) {
      if (!list.is_small()) return false;
    }
    return blocks.capacity() <= kMaxKeptCount &&
           extents.capacity() <= kMaxKeptCount &&
           sort_scratch.capacity() <= kMaxKeptCount;
  }
};

// overlap() returns whether tensors of the lists may share memory.
// Written tensors come first, and get their own memory if they are lazy copies.
bool overlap(const StepLists& lists, StepScratch& scratch) {
  for (const std::size_t l :
       std::array<std::size_t, kStepListCount>{0, 2, 3, 4, 5, kStepGrads}) {
    for (const at::Tensor& tensor : lists.all[l]) {
      if (tensor.numel() == 0 || tensor._is_zerotensor()) continue;
      if (l != kStepGrads) unshare(tensor);
      scratch.extents.push_back(extent_of(tensor));
    }
  }
  return any_overlap(scratch.extents, scratch.sort_scratch);
}

// require_own_memory() throws if tensors of one parameter overlap. Those with
// holes are skipped: they are copied before the step, and another tensor may be
// in their holes. So are gradients that are lazy.
void require_own_memory(const StepLists& lists) {
  const auto is_skipped = [](std::size_t l, const at::Tensor& tensor) {
    return !is_dense(tensor) || (l == kStepGrads && is_lazy(tensor));
  };
  for (std::size_t i = 0; i < lists.params().size(); ++i) {
    if (lists.params()[i].numel() == 0) continue;
    for (std::size_t b = 1; b < kStepListCount; ++b) {
      for (std::size_t a = 0; a < b; ++a) {
        if (lists.all[a].empty() || lists.all[b].empty()) continue;
        const at::Tensor &one = lists.all[a][i], &other = lists.all[b][i];
        if (is_skipped(a, one) || is_skipped(b, other)) continue;
        const Extent x = extent_of(one), y = extent_of(other);
        TORCH_CHECK(x.end <= y.begin || y.end <= x.begin, lists.names[b], "[",
                    i, "]: got memory of ", lists.names[a], "[", i,
                    "], expected tensors that do not overlap");
      }
    }
  }
}

// gather() makes the lists for the kernels in one pass over ordinary tensors,
// and their extents. Returns false for lists that need the other checks: those
// that are refused, or have tensors with holes, of another element order, lazy
// or misaligned.
bool gather(const StepLists& lists, StepScratch& scratch) {
  const std::size_t count = lists.params().size();
  for (std::size_t l = 0; l < kStepListCount; ++l) {
    const std::size_t own = lists.all[l].size();
    const bool unused =
        l == kStepOutput ||
        (l >= kStepStates && l - kStepStates >= lists.state_count);
    if (own != count && !(unused && own == 0)) return false;
    scratch.lists[l].begin(own);
  }
  scratch.extents.clear();
  for (std::size_t i = 0; i < count; ++i) {
    const at::Tensor& param = lists.params()[i];
    if (lists.storage.is_8_bit && !param.is_contiguous()) return false;
    if (lists.storage.compact && !has_type_of_weight(lists, i)) return false;
    const auto elements = static_cast<std::size_t>(param.numel());
    for (std::size_t l = 0; l < kStepListCount; ++l) {
      if (lists.all[l].empty()) continue;
      if (i + kPrefetchAhead < count)
        prefetch(lists.all[l][i + kPrefetchAhead]);
      if (i + kPrefetchAhead / 2 < count) {
        prefetch_storage(lists.all[l][i + kPrefetchAhead / 2]);
      }
      const at::Tensor& tensor = lists.all[l][i];
      if (!tensor.is_cpu() || tensor.layout() != at::kStrided ||
          !is_one_of(tensor.scalar_type(), types_of(lists.storage, l)) ||
          !(is_absmax(lists.storage, l) ? has_absmax(tensor, param)
                                        : tensor.sizes() == param.sizes() &&
                                              has_order_of(tensor, param))) {
        return false;
      }
      const swamp::ScalarType own_type =
          scalar_type(tensor.scalar_type()).value_or(kByteCodes);
      if (elements == 0) {
        scratch.lists[l].add(nullptr, 0, own_type);
        continue;
      }
      if (address_of(tensor) == 0) return false;
      // The const is cast away for the type of swamp::Tensor only.
      void* data = l == kStepGrads ? const_cast<void*>(const_data(tensor))
                                   : mutable_data(tensor);
      const std::size_t bytes = element_bytes(own_type);
      if (!is_aligned(data, bytes)) return false;
      const auto own = static_cast<std::size_t>(tensor.numel());
      scratch.lists[l].add(data, own, own_type);
      const auto begin = reinterpret_cast<std::uintptr_t>(data);
      scratch.extents.push_back({begin, begin + own * bytes});
    }
  }
  return true;
}

// set_storage() sets what takes less memory, but for the weights and moments.
void set_storage(AdamStep& step, const StepLists& lists, StepScratch& scratch) {
  const auto& tensors = scratch.lists;
  step.ids = lists.ids;
  step.first_elements = lists.first_elements;
  step.stochastic = !lists.storage.kahan;
  if (lists.storage.kahan) step.compensations = tensors[kStepOutput].tensors();
  if (!lists.storage.is_8_bit) return;
  scratch.blocks.clear();
  for (std::size_t i = 0; i < tensors[0].tensors().size(); ++i) {
    const auto data = [&](std::size_t l) {
      return tensors[l].tensors()[i].data;
    };
    scratch.blocks.push_back({static_cast<std::uint8_t*>(data(kStepStates)),
                              static_cast<std::uint8_t*>(data(kStepStates + 1)),
                              static_cast<float*>(data(kStepAbsmax))});
  }
  step.block_moments = scratch.blocks.data();
  step.float8_moments = lists.storage.is_float8;
}

// run() takes the step on gathered lists.
void run(const StepLists& lists, StepScratch& scratch, OptimizerStep& step,
         const StepScaling& scaling) {
  const auto& tensors = scratch.lists;
  const StepStorage& storage = lists.storage;
  if (auto* adam = std::get_if<AdamStep>(&step)) {
    if (storage.compact) {
      set_storage(*adam, lists, scratch);
    } else {
      adam->max_exp_avg_sqs = tensors[kStepStates + 2].tensors();
    }
  }
  const TensorList none;
  translated([&] {
    foreach_step_(tensors[0].tensors(), tensors[kStepGrads].tensors(),
                  storage.is_8_bit ? none : tensors[kStepStates].tensors(),
                  storage.is_8_bit ? none : tensors[kStepStates + 1].tensors(),
                  storage.kahan ? none : tensors[kStepOutput].tensors(), step,
                  scaling);
  });
}

// copy_and_run() does the same for lists whose tensors do not overlap.
void copy_and_run(const StepLists& lists, StepScratch& scratch,
                  OptimizerStep& step, const StepScaling& scaling) {
  for (std::size_t l = 0; l < kStepListCount; ++l) {
    scratch.lists[l].assign(
        lists.all[l], is_absmax(lists.storage, l) ? nullptr : &lists.all[0],
        l != kStepGrads, lists.storage.is_8_bit);
  }
  run(lists, scratch, step, scaling);
  for (StepTensors& list : scratch.lists) list.copy_back();
}

// A float64 holds every whole number below this.
constexpr float kStepEnd = 9007199254740992.0f;  // 2^53

}  // namespace

StepLists StepLists::only(std::size_t index) const {
  StepLists one = *this;
  for (at::TensorList& list : one.all) {
    if (!list.empty()) list = list.slice(index, 1);
  }
  if (one.ids != nullptr) one.ids += index;
  if (one.first_elements != nullptr) one.first_elements += index;
  return one;
}

StepLists adam_lists(bool amsgrad) {
  return {{},
          {"master_params", "grads", "exp_avgs", "exp_avg_sqs",
           "max_exp_avg_sqs", "model_params"},
          amsgrad ? std::size_t{3} : std::size_t{2}};
}

StepLists compact_adam_lists(const StepStorage& storage) {
  StepLists lists = adam_lists(storage.is_8_bit);
  lists.names[0] = "params";
  lists.names[kStepAbsmax] = "absmax";
  if (storage.kahan) lists.names[kStepOutput] = "compensations";
  lists.storage = storage;
  return lists;
}

StepLists sgd_lists(bool momentum) {
  return {
      {},
      {"master_params", "grads", "momentum_buffers", "", "", "model_params"},
      momentum ? std::size_t{1} : std::size_t{0}};
}

void require_step_lists(const StepLists& lists) {
  const auto check = [&](std::size_t l) {
    const at::TensorList all = lists.all[l];
    require_list(all, lists.names[l], l != kStepGrads,
                 types_of(lists.storage, l));
    if (!is_absmax(lists.storage, l)) {
      require_same_shapes(all, lists.names[l], lists.params(), lists.names[0]);
      return;
    }
    TORCH_CHECK(all.size() == lists.params().size(), lists.names[l], ": got ",
                all.size(), " tensors, expected ", lists.params().size());
    for (std::size_t i = 0; i < all.size(); ++i) {
      TORCH_CHECK(has_absmax(all[i], lists.params()[i]), lists.names[l], "[", i,
                  "]: got the shape ", all[i].sizes(),
                  ", expected two contiguous floats for each block of ",
                  kMomentBlock, " elements");
    }
  };
  check(0);
  check(kStepGrads);
  for (std::size_t s = 0; s < lists.state_count; ++s) check(kStepStates + s);
  if (!lists.all[kStepOutput].empty()) check(kStepOutput);
  for (std::size_t i = 0; lists.storage.compact && i < lists.grads().size();
       ++i) {
    const std::size_t weight = weight_of(lists);
    TORCH_CHECK(has_type_of_weight(lists, i), "grads[", i, "]: got the dtype ",
                c10::toString(lists.grads()[i].scalar_type()), ", expected ",
                c10::toString(lists.all[weight][i].scalar_type()), ", as ",
                lists.names[weight], "[", i, "]");
  }
}

std::int64_t next_step(const at::Tensor& taken) {
  const float steps = load<float>(const_data(taken));
  TORCH_CHECK(steps >= 0 && steps < kStepEnd && std::floor(steps) == steps,
              "step: got ", steps,
              ", expected a whole number from 0 to 2^53 - 1");
  return static_cast<std::int64_t>(steps) + 1;
}

void take_step(const StepLists& lists, OptimizerStep step, float inv_scale,
               const at::Tensor& grad_norm, double max_norm,
               ClipRule clip_rule) {
  TORCH_CHECK(max_norm >= 0, "max_norm: got ", max_norm,
              ", expected a number, at least 0 (0: no clipping)");
  at::get_num_threads();  // as for the unscale
  const ThreadScratch<StepScratch> scratch;
  const bool ordinary = gather(lists, *scratch) &&
                        !any_overlap(scratch->extents, scratch->sort_scratch);
  bool one_by_one = false;
  if (!ordinary) {
    require_step_lists(lists);
    scratch->extents.clear();
    one_by_one = overlap(lists, *scratch);
    if (one_by_one) require_own_memory(lists);
  }
  StepScaling scaling;
  scaling.inv_scale = inv_scale;
  double norm = 0;
  if (grad_norm.defined()) {
    norm = grad_norm.scalar_type() == ScalarType::Double
               ? load<double>(const_data(grad_norm))
               : load<float>(const_data(grad_norm));
  } else if (max_norm > 0) {
    StepTensors& all_grads = scratch->lists[kStepGrads];
    if (!ordinary) all_grads.assign(lists.grads(), &lists.all[0], false);
    norm = translated(
        [&] { return foreach_norm(all_grads.tensors(), scaling.inv_scale); });
  }
  scaling.clip_coefficient = clip_coefficient(max_norm, norm, clip_rule);
  if (ordinary) {
    run(lists, *scratch, step, scaling);
    return;
  }
  if (!one_by_one) {
    copy_and_run(lists, *scratch, step, scaling);
    return;
  }
  for (std::size_t i = 0; i < lists.params().size(); ++i) {
    copy_and_run(lists.only(i), *scratch, step, scaling);
  }
}

void count_writes(at::TensorList tensors) {
  // Reads the versions before it increases them: an atomic increment waits for
  // all loads before it, so that only reads can be in flight together.
  constexpr std::size_t kTogether = 16;
  for (std::size_t begin = 0; begin < tensors.size(); begin += kTogether) {
    const std::size_t end = std::min(begin + kTogether, tensors.size());
    for (std::size_t i = begin; i < end; ++i) {
      if (i + kTogether < tensors.size()) {
        __builtin_prefetch(
            &tensors[i + kTogether].unsafeGetTensorImpl()->version_counter());
      }
      const volatile std::uint32_t version =
          tensors[i].unsafeGetTensorImpl()->version_counter().current_version();
      static_cast<void>(version);
    }
    for (std::size_t i = begin; i < end; ++i) count_write(tensors[i]);
  }
}

namespace {

// Returns what norm(list, inv_scale, &found) returns for the gradients.
template <class Norm>
auto check_grads(at::TensorList grads, const at::Tensor& found_inf,
                 const at::Tensor& inv_scale, Norm norm) {
  const at::Tensor factor = resolved(inv_scale);
  require_scalars({{factor, "inv_scale"}, {found_inf, "found_inf"}});
  require_list(
      grads, "grads", false,
      {ScalarType::Half, ScalarType::BFloat16, ScalarType::Float,
       ScalarType::Double, ScalarType::Float8_e4m3fn, ScalarType::Float8_e5m2});
  at::get_num_threads();  // as for the unscale
  const ThreadScratch<StepTensors> tensors;
  tensors->assign(grads, nullptr, false);
  float found = 0;
  const auto result = translated([&] {
    return norm(tensors->tensors(), load<float>(const_data(factor)), &found);
  });
  if (found != 0) store<float>(mutable_data(found_inf), 1.0f);
  return result;
}

}  // namespace

at::Tensor grad_norm_and_check(at::TensorList grads, at::Tensor found_inf,
                               const at::Tensor& inv_scale) {
  if (found_inf.is_meta()) {
    return at::empty({}, found_inf.options().dtype(ScalarType::Double));
  }
  const double norm =
      check_grads(grads, found_inf, inv_scale,
                  [](TensorList list, float factor, float* found) {
                    return foreach_norm(list, factor, found);
                  });
  return at::scalar_tensor(norm, ScalarType::Double);
}

std::vector<double> grad_squares_and_check(at::TensorList grads,
                                           at::Tensor found_inf,
                                           const at::Tensor& inv_scale) {
  return check_grads(grads, found_inf, inv_scale,
                     [](TensorList list, float factor, float* found) {
                       std::vector<double> squares;
                       foreach_squares(list, factor, found, [&](double grain) {
                         squares.push_back(grain);
                       });
                       return squares;
                     });
}

void mixed_precision_adamw_(at::TensorList master_params, at::TensorList grads,
                            at::TensorList exp_avgs, at::TensorList exp_avg_sqs,
                            at::TensorList model_params, at::Tensor step,
                            const at::Tensor& found_inf,
                            const at::Tensor& inv_scale,
                            const OptionalTensor& grad_norm, double lr,
                            double beta1, double beta2, double weight_decay,
                            double eps, double max_norm) {
  const at::Tensor given_norm = resolved(grad_norm.value_or(at::Tensor()));
  const at::Tensor found = resolved(found_inf), factor = resolved(inv_scale);
  require_scalars(
      {{found, "found_inf"}, {factor, "inv_scale"}, {step, "step"}});
  StepLists lists = adam_lists(false);
  lists.all = {master_params, grads, exp_avgs, exp_avg_sqs, {}, model_params};
  require_step_lists(lists);
  if (given_norm.defined()) {
    require_scalars({{given_norm, "grad_norm", kFloatOrDouble}});
  }
  const AdamStep numbers{{lr, beta1, beta2, eps, weight_decay, true},
                         next_step(step)};
  if (load<float>(const_data(found)) != 0) return;  // nan counts as found
  take_step(lists, numbers, load<float>(const_data(factor)), given_norm,
            max_norm);
  store<float>(mutable_data(step), static_cast<float>(numbers.step));
}

void foreach_lerp_(at::TensorList out, at::TensorList input, double weight) {
  at::get_num_threads();  // as for the unscale
  StepLists lists = sgd_lists(false);
  lists.names = {"out", "input", "", "", "", ""};
  lists.all = {out, input, {}, {}, {}, {}};
  require_list(out, "out", true, kGradTypes);
  require_same_shapes(input, "input", out, "out");
  for (std::size_t i = 0; i < out.size(); ++i) {
    const Types same{out[i].scalar_type()};
    require_list(input.slice(i, 1), "input", false,
                 same.begin()[0] == ScalarType::Float ? kGradTypes : same);
  }
  const ThreadScratch<StepScratch> scratch;
  const auto run = [&](const StepLists& some) {
    StepTensors& outs = scratch->lists[0];
    StepTensors& inputs = scratch->lists[kStepGrads];
    outs.assign(some.params(), &some.all[0], true);
    inputs.assign(some.grads(), &some.all[0], false);
    translated([&] {
      swamp::foreach_lerp_(outs.tensors(), inputs.tensors(), weight);
    });
    outs.copy_back();
  };
  scratch->extents.clear();
  if (!overlap(lists, *scratch)) {
    run(lists);
    return;
  }
  require_own_memory(lists);
  for (std::size_t i = 0; i < out.size(); ++i) run(lists.only(i));
}

void foreach_zero_(at::TensorList tensors) {
  at::get_num_threads();  // as for the unscale
  require_list(tensors, "tensors", true, kGradTypes);
  const ThreadScratch<StepScratch> scratch;
  StepTensors& list = scratch->lists[0];
  list.begin(tensors.size());
  scratch->extents.clear();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (i + kPrefetchAhead < tensors.size()) {
      prefetch(tensors[i + kPrefetchAhead]);
    }
    const at::Tensor& tensor = tensors[i];
    if (tensor.numel() == 0) continue;
    const auto type = *scalar_type(tensor.scalar_type());
    if (!is_dense(tensor) || is_lazy(tensor) ||
        !is_aligned(address_of(tensor), element_bytes(type))) {
      tensor.zero_();
      continue;
    }
    list.add(mutable_data(tensor), static_cast<std::size_t>(tensor.numel()),
             type);
    scratch->extents.push_back(extent_of(tensor));
  }
  if (any_overlap(scratch->extents, scratch->sort_scratch)) {
    for (const at::Tensor& tensor : tensors) tensor.zero_();
    return;
  }
  translated([&] { swamp::foreach_zero_(list.tensors()); });
}

void register_steps(torch::Library& m) {
  constexpr auto kNone = Derivative::kNone;
  define<&grad_norm_and_check, kNone>(
      m,
      "grad_norm_and_check(Tensor[] grads, Tensor(a!) found_inf, "
      "Tensor inv_scale) -> Tensor");
  define<&mixed_precision_adamw_, kNone>(
      m,
      "mixed_precision_adamw_(Tensor(a!)[] master_params, Tensor[] grads, "
      "Tensor(b!)[] exp_avgs, Tensor(c!)[] exp_avg_sqs, "
      "Tensor(d!)[] model_params, Tensor(e!) step, Tensor found_inf, "
      "Tensor inv_scale, Tensor? grad_norm=None, *, float lr, float beta1, "
      "float beta2, float weight_decay, float eps, float max_norm=0.0) -> ()");
  define<&foreach_lerp_, kNone>(
      m, "foreach_lerp_(Tensor(a!)[] out, Tensor[] input, float weight) -> ()");
  define<&foreach_zero_, kNone>(m, "foreach_zero_(Tensor(a!)[] tensors) -> ()");
}

}  // namespace swamp::aten
