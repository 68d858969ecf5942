// The C ABI of the optimizer: norm, cast, step.
#include <cstddef>
#include <cstring>
#include <optional>
#include <string>

#include "master/c_guard.h"
#include "master/foreach.h"
#include "master/optim/mixed_precision.h"
#include "master/text.h"
#include "swamp/amp.h"
#include "swamp/c_api.h"
#include "swamp/foreach.h"

using swamp::guarded;
using swamp::require;
using swamp::require_struct_size;

namespace {

using Options = swamp_mixed_precision_step_options;

void require_option(bool good, const char* name, const std::string& value,
                    const char* expected) {
  if (good) return;
  swamp::master::refuse(std::string("options.") + name, value, expected);
}

swamp::master::InnerOptions inner_options(const Options& options) {
  if (options.optimizer == SWAMP_ADAM) {
    return swamp::AdamOptions{options.lr,           options.beta1,
                              options.beta2,        options.eps,
                              options.weight_decay, options.decoupled != 0,
                              options.amsgrad != 0, options.maximize != 0};
  }
  return swamp::SgdOptions{
      options.lr,           options.momentum,      options.dampening,
      options.weight_decay, options.nesterov != 0, options.maximize != 0};
}

void require_flag(int value, const char* name) {
  require_option(value == 0 || value == 1, name, std::to_string(value),
                 "0 or 1");
}

// Returns a copy of the options. The fields that an older version of the struct
// lacks are 0.
Options known_options(const Options* given) {
  require(given, "options");
  const std::size_t bytes = given->struct_size;
  if (bytes != offsetof(Options, optimizer) &&
      bytes != offsetof(Options, amsgrad) &&
      bytes != offsetof(Options, block_moments)) {
    require_struct_size("options", given->struct_size, sizeof(Options));
  }
  Options options{};
  std::memcpy(&options, given, bytes);
  return options;
}

// Returns the options of the optimizer. Throws Error that names a bad one.
swamp::master::InnerOptions check_options(const Options& options) {
  const int optimizer = options.optimizer;
  require_option(optimizer == SWAMP_ADAM || optimizer == SWAMP_SGD, "optimizer",
                 std::to_string(optimizer), "SWAMP_ADAM (0) or SWAMP_SGD (1)");
  if (optimizer == SWAMP_ADAM) {
    require_flag(options.decoupled, "decoupled");
    require_flag(options.amsgrad, "amsgrad");
    require_flag(options.float8_moments, "float8_moments");
  } else {
    require_flag(options.nesterov, "nesterov");
  }
  require_flag(options.maximize, "maximize");
  const swamp::master::InnerOptions inner = inner_options(options);
  swamp::master::check_inner_options(inner, "options.");
  require_option(options.max_norm >= 0, "max_norm",
                 swamp::master::number_text(options.max_norm),
                 "a number, at least 0");
  require_option(swamp::master::is_step(options.step), "step",
                 std::to_string(options.step), swamp::master::kStepRange);
  const float coefficient = options.clip_coefficient;
  require_option(coefficient >= 0 && coefficient <= 1, "clip_coefficient",
                 swamp::master::number_text(coefficient),
                 "0, or a factor up to 1");
  return inner;
}

// FirstPass is the result of the pass that checks the gradients.
struct FirstPass {
  float found_inf = 0;
  std::optional<double> norm;
  float clip = 1;  // factor of the unscaled gradients
};

// Runs that pass, unless the caller already did. The norm costs more than the
// check alone, so it is computed only if it is needed.
FirstPass check_gradients(const Options& options, swamp::TensorList gradients,
                          bool with_norm, swamp::Machine* machine) {
  FirstPass first;
  if (options.clip_coefficient != 0) {
    first.clip = options.clip_coefficient;
  } else if (options.max_norm > 0 || with_norm) {
    first.norm = swamp::foreach_norm(gradients, options.inv_scale,
                                     &first.found_inf, nullptr, machine);
    first.clip = swamp::clip_coefficient(options.max_norm, *first.norm);
  } else {
    swamp::amp_foreach_non_finite_check_and_unscale_(gradients, first.found_inf,
                                                     1.0f, nullptr, machine);
  }
  return first;
}

}  // namespace

swamp_status swamp_foreach_norm(swamp_machine* machine,
                                const swamp_tensor* tensors,
                                size_t tensor_count, const float* inv_scale,
                                float* found_inf, double* norm) {
  return guarded([&] {
    require(inv_scale, "inv_scale");
    require(norm, "norm");
    *norm = swamp::foreach_norm({tensors, tensor_count}, *inv_scale, found_inf,
                                nullptr, swamp::machine_of(machine));
  });
}

swamp_status swamp_foreach_cast(swamp_machine* machine, size_t tensor_count,
                                const swamp_tensor* out, const swamp_tensor* in,
                                float divisor) {
  return guarded([&] {
    swamp::foreach_cast_({out, tensor_count}, {in, tensor_count}, divisor,
                         swamp::machine_of(machine));
  });
}

swamp_status swamp_mixed_precision_step(
    swamp_machine* machine, const swamp_mixed_precision_step_options* given,
    size_t tensor_count, const swamp_tensor* masters,
    const swamp_tensor* gradients, const swamp_tensor* exp_avgs,
    const swamp_tensor* exp_avg_sqs, const swamp_tensor* model_params,
    float* found_inf, double* grad_norm) {
  return guarded([&] {
    const Options options = known_options(given);
    const swamp::master::InnerOptions inner = check_options(options);
    require(found_inf, "found_inf");
    const auto list_of = [&](const swamp_tensor* list, bool optional) {
      return swamp::TensorList{list,
                               optional && list == nullptr ? 0 : tensor_count};
    };
    const auto* adam = std::get_if<swamp::AdamOptions>(&inner);
    const bool is_adam = adam != nullptr;
    const bool has_blocks = is_adam && options.block_moments != nullptr;
    const bool has_first = is_adam ? !has_blocks : options.momentum != 0;
    const swamp::master::OptimizerLists lists{
        list_of(masters, false),
        list_of(gradients, false),
        {list_of(exp_avgs, !has_first),
         list_of(exp_avg_sqs, !is_adam || has_blocks),
         list_of(options.max_exp_avg_sqs, !is_adam || options.amsgrad == 0)},
        list_of(model_params, true),
        "masters",
        "exp_avgs"};
    swamp::Machine* const where = swamp::machine_of(machine);
    swamp::master::PreparedStep step;
    swamp::OptimizerStep numbers = swamp::master::step_of(inner, options.step);
    if (auto* one = std::get_if<swamp::AdamStep>(&numbers)) {
      one->block_moments = options.block_moments;
      one->float8_moments = options.float8_moments != 0;
    }
    const char* const names[] = {"exp_avg_sqs", "options.max_exp_avg_sqs"};
    for (int i = 0; i < 2 && !is_adam; ++i) {
      if (lists.states[i + 1].count() == 0) continue;
      swamp::master::refuse(
          names[i], "a list of " + std::to_string(tensor_count) + " tensors",
          "NULL with SWAMP_SGD");
    }
    step.prepare(lists, numbers, options.inv_scale, where);
    const FirstPass first =
        check_gradients(options, lists.gradients, grad_norm != nullptr, where);
    if (first.found_inf == 0) step.run(first.clip);
    // After run(), which may fail.
    if (first.found_inf != 0) *found_inf = 1.0f;
    if (grad_norm != nullptr && first.norm) *grad_norm = *first.norm;
  });
}
