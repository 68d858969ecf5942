// MixedPrecisionOptimizer: the parameters of the model and the arrays made for
// them, their slices of this rank, float32 masters and gradients, and the lists
// of a step, one for each group and dtype. The step itself is in step.cpp.
#include "swamp/mixed_precision.h"

#include <new>
#include <stdexcept>
#include <string>
#include <utility>

#include "master/launch.h"
#include "master/optim/mixed_precision.h"
#include "master/tensor_list.h"
#include "master/text.h"
#include "swamp/error.h"
#include "swamp/foreach.h"

namespace swamp {

using master::MainSlice;
using master::Slice;

StepObserver::~StepObserver() = default;

void StepObserver::event(const std::string&) {}

namespace {

template <class Visit>
void for_each_parameter(std::vector<ParameterGroup>& groups, Visit visit) {
  for (std::size_t g = 0; g < groups.size(); ++g) {
    for (ModelParameter& parameter : groups[g].parameters) visit(g, parameter);
  }
}

Tensor float32_tensor(master::FloatArray& values) {
  return {values.data(), values.size(), kFloat32};
}

// LDM that small tiles need for the four arrays of an Adam step; and for the
// five of its fused step or of AMSGrad, and for the six of a fused AMSGrad
// step.
constexpr std::size_t kStepLdmBytes = 4096;
constexpr std::size_t kFusedLdmBytes = 8192;

bool has_room(const Machine::Impl& machine, std::size_t ldm_bytes) {
  return runtime::usable_ldm(machine) >= ldm_bytes;
}

// Throws Error if a step would fail on this machine after it has begun.
void require_room(const Machine::Impl& machine,
                  const master::InnerOptions& options) {
  const bool amsgrad = master::state_names(options).size() == 3;
  const std::size_t needed = amsgrad ? kFusedLdmBytes : kStepLdmBytes;
  if (has_room(machine, needed)) return;
  master::refuse("machine", std::to_string(machine.ldm_bytes) + " bytes of LDM",
                 "at least " + std::to_string(needed) +
                     " for the arrays of a step (SWAMP_LDM_BYTES)");
}

// Converts the allocation errors of the standard library to Error.
template <class Call>
decltype(auto) or_out_of_memory(Call call) {
  try {
    return call();
  } catch (const std::bad_alloc&) {
  } catch (const std::length_error&) {
  }
  throw Error(SWAMP_OUT_OF_MEMORY,
              "cannot allocate the arrays of a mixed-precision optimizer");
}

}  // namespace

MixedPrecisionOptimizer::Impl::Impl(std::vector<ParameterGroup> model_groups,
                                    const MixedPrecisionOptions& given)
    : options(given),
      communicator(given.communicator != nullptr ? *given.communicator
                                                 : Communicator::alone()),
      model_communicator(given.model_communicator != nullptr
                             ? *given.model_communicator
                             : Communicator::alone()),
      fused(given.fused && !given.log_num_zeros_in_grad &&
            has_room(master::impl_of(given.machine), kFusedLdmBytes)) {
  master::check_options(options);
  master::check_parameters(model_groups, options);
  require_room(master::impl_of(options.machine), options.optimizer);
  scaler = master::choose_scaler(options);
  if (scaler) loss_scale = scaler->scale();
  for (const ParameterGroup& group : model_groups) {
    groups.push_back(master::group_options(options.optimizer, group));
  }
  for_each_parameter(model_groups, [&](std::size_t g, ModelParameter& p) {
    parameters.push_back(std::move(p));
    group_of_parameter.push_back(g);
  });
  make_slices();
  make_lists();
  clear_arrays();
  foreach_cast_(masters, rounded_masters, 1, options.machine);
}

Tensor MixedPrecisionOptimizer::Impl::slice_of(const Tensor& tensor,
                                               const Slice& slice) {
  auto* data = static_cast<std::byte*>(tensor.data);
  if (slice.begin != 0) {
    data += slice.begin * master::kScalarTypeBytes[tensor.dtype];
  }
  return {data, slice.count, tensor.dtype};
}

Tensor MixedPrecisionOptimizer::Impl::main_param(MainSlice& main) const {
  if (is_16_bit(main.slice.parameter)) return float32_tensor(main.master);
  return slice_of(parameters[main.slice.parameter].data, main.slice);
}

Tensor MixedPrecisionOptimizer::Impl::main_gradient(MainSlice& main) const {
  const std::size_t parameter = main.slice.parameter;
  if (!uses_model_gradient(parameter)) return float32_tensor(main.gradient);
  return slice_of(parameters[parameter].gradient, main.slice);
}

void MixedPrecisionOptimizer::Impl::make_slices() {
  std::vector<std::size_t> counts;
  for (const ModelParameter& p : parameters) counts.push_back(p.data.count);
  std::size_t mine = 0;
  if (options.shard) {
    shards = master::partition_slices(counts, communicator.size());
    mine = static_cast<std::size_t>(communicator.rank());
  } else {
    shards.push_back(master::whole_slices(counts));
  }
  const std::size_t states = master::state_names(options.optimizer).size();
  for (const Slice& slice : shards[mine]) {
    MainSlice main;
    main.slice = slice;
    if (is_16_bit(slice.parameter)) main.master.resize(slice.count);
    for (std::size_t s = 0; s < states; ++s) main.states[s].resize(slice.count);
    if (!uses_model_gradient(slice.parameter))
      main.gradient.resize(slice.count);
    slices.push_back(std::move(main));
  }
}

// Returns the lists that a slice belongs to. There is one for each group, and
// in a fused step, which writes the 16-bit model weights with their masters,
// two.
master::StepLists& MixedPrecisionOptimizer::Impl::step_lists_of(
    const MainSlice& main) {
  const std::size_t group = group_of_parameter[main.slice.parameter];
  const bool with_model = fused && is_16_bit(main.slice.parameter);
  for (master::StepLists& lists : step_lists) {
    if (lists.group == group && lists.model_params.empty() != with_model) {
      return lists;
    }
  }
  step_lists.push_back({group, {}, {}, {}, {}});
  return step_lists.back();
}

void MixedPrecisionOptimizer::Impl::make_lists() {
  const std::size_t states = master::state_names(options.optimizer).size();
  for (MainSlice& main : slices) {
    const ModelParameter& parameter = parameters[main.slice.parameter];
    const Tensor gradient = main_gradient(main);
    main_gradients.push_back(gradient);
    if (!options.shard && !uses_model_gradient(main.slice.parameter)) {
      model_gradients.push_back(parameter.gradient);
      gradient_sums.push_back(gradient);
    }
    master::StepLists& lists = step_lists_of(main);
    if (is_16_bit(main.slice.parameter)) {
      const Tensor rounded = slice_of(parameter.data, main.slice);
      masters.push_back(float32_tensor(main.master));
      rounded_masters.push_back(rounded);
      if (fused) lists.model_params.push_back(rounded);
    }
    lists.params.push_back(main_param(main));
    lists.gradients.push_back(gradient);
    for (std::size_t s = 0; s < states; ++s) {
      lists.states[s].push_back(float32_tensor(main.states[s]));
    }
  }
  if (!options.shard || options.micro_batches == 1) return;
  for (const ModelParameter& parameter : parameters) {
    local_sums.emplace_back(parameter.gradient.count);
    model_gradients.push_back(parameter.gradient);
    gradient_sums.push_back(float32_tensor(local_sums.back()));
  }
}

// clear_arrays() sets the arrays of the optimizer to 0, list by list as a step
// uses them: each slave touches first what will be its part.
void MixedPrecisionOptimizer::Impl::clear_arrays() {
  std::vector<const void*> own;
  for (const MainSlice& main : slices) {
    own.push_back(main.master.data());
    own.push_back(main.gradient.data());
  }
  std::sort(own.begin(), own.end());
  const auto is_own = [&](const Tensor& tensor) {
    return std::binary_search(own.begin(), own.end(), tensor.data);
  };
  for (const master::StepLists& lists : step_lists) {
    for (const std::vector<Tensor>* list : {&lists.params, &lists.gradients}) {
      std::vector<Tensor> kept;
      std::copy_if(list->begin(), list->end(), std::back_inserter(kept),
                   is_own);
      foreach_zero_(kept, options.machine);
    }
    for (const std::vector<Tensor>& list : lists.states) {
      foreach_zero_(list, options.machine);
    }
  }
  if (!local_sums.empty()) foreach_zero_(gradient_sums, options.machine);
}

MixedPrecisionOptimizer::MixedPrecisionOptimizer(
    std::vector<ParameterGroup> groups, const MixedPrecisionOptions& options)
    : impl_(or_out_of_memory([&] {
        return std::make_unique<Impl>(std::move(groups), options);
      })) {}

MixedPrecisionOptimizer::~MixedPrecisionOptimizer() = default;

float MixedPrecisionOptimizer::scale_loss(float loss) const noexcept {
  return loss * static_cast<float>(get_loss_scale());
}

double MixedPrecisionOptimizer::get_loss_scale() const noexcept {
  return impl_->loss_scale.load(std::memory_order_relaxed);
}

const LossScaler* MixedPrecisionOptimizer::loss_scaler() const noexcept {
  return impl_->scaler ? &*impl_->scaler : nullptr;
}

std::int64_t MixedPrecisionOptimizer::step_count() const noexcept {
  return impl_->steps;
}

void MixedPrecisionOptimizer::accumulate_gradients() {
  Impl& impl = *impl_;
  const std::int64_t micro_batches = impl.options.micro_batches;
  if (micro_batches == 1 || impl.accumulated == micro_batches) {
    master::refuse(
        "accumulate_gradients()",
        "a call after " + std::to_string(impl.accumulated) + " micro batches",
        "step(), because micro_batches is " + std::to_string(micro_batches));
  }
  const bool last = impl.accumulated + 1 == micro_batches;
  const bool divide = last && impl.options.reduction == GradientReduction::mean;
  impl.accumulate(divide ? static_cast<float>(micro_batches) : 1);
  ++impl.accumulated;
}

StepResult MixedPrecisionOptimizer::step() {
  return or_out_of_memory([&] { return impl_->step(); });
}

void MixedPrecisionOptimizer::reload_model_params() {
  foreach_cast_(impl_->masters, impl_->rounded_masters, 1,
                impl_->options.machine);
}

namespace {

void require_group(std::size_t group, std::size_t count) {
  if (group < count) return;
  master::refuse("group", std::to_string(group),
                 "less than " + std::to_string(count));
}

}  // namespace

void MixedPrecisionOptimizer::set_lr(std::size_t group, double lr) {
  require_group(group, impl_->groups.size());
  master::InnerOptions options = impl_->groups[group];
  master::lr_of(options) = lr;
  master::check_inner_options(options, "");
  impl_->groups[group] = options;
}

double MixedPrecisionOptimizer::lr(std::size_t group) const {
  require_group(group, impl_->groups.size());
  return master::lr_of(impl_->groups[group]);
}

}  // namespace swamp
