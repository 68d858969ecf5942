#include "master/mixed_precision/inner_optimizer.h"

#include <cmath>

#include "master/mixed_precision/number_text.h"
#include "swamp/error.h"

namespace swamp::master {
namespace {

void require(bool good, const std::string& option, double value,
             const char* expected) {
  if (good) return;
  throw Error(SWAMP_INVALID_ARGUMENT,
              option + ": " + number_text(value) + "; expected " + expected);
}

constexpr double kLargest = 3.4028234663852886e38;  // float32's

void require_not_negative(const std::string& option, double value) {
  require(value >= 0 && value <= kLargest, option, value,
          "a finite number, at least 0");
}

void require_fraction(const std::string& option, double value) {
  require(value >= 0 && value < 1, option, value, "a number in [0, 1)");
}

}  // namespace

void check_inner_options(const InnerOptions& options,
                         const std::string& group) {
  if (const auto* adam = std::get_if<AdamOptions>(&options)) {
    require_not_negative(group + "lr", adam->lr);
    require_fraction(group + "beta1", adam->beta1);
    require_fraction(group + "beta2", adam->beta2);
    require_not_negative(group + "eps", adam->eps);
    require_not_negative(group + "weight_decay", adam->weight_decay);
    return;
  }
  const auto& sgd = std::get<SgdOptions>(options);
  require_not_negative(group + "lr", sgd.lr);
  require_not_negative(group + "momentum", sgd.momentum);
  require_not_negative(group + "weight_decay", sgd.weight_decay);
  require(std::isfinite(sgd.dampening), group + "dampening", sgd.dampening,
          "a finite number");
  require(!sgd.nesterov || sgd.momentum > 0, group + "momentum", sgd.momentum,
          "a momentum above 0 with nesterov");
  require(!sgd.nesterov || sgd.dampening == 0, group + "dampening",
          sgd.dampening, "0 with nesterov");
}

InnerOptions group_options(const InnerOptions& options,
                           const ParameterGroup& group) {
  InnerOptions own = options;
  std::visit(
      [&](auto& o) {
        o.lr = group.lr.value_or(o.lr);
        o.weight_decay = group.weight_decay.value_or(o.weight_decay);
      },
      own);
  return own;
}

double& lr_of(InnerOptions& options) {
  return std::visit([](auto& o) -> double& { return o.lr; }, options);
}

std::vector<std::pair<const char*, double*>> option_fields(
    InnerOptions& options) {
  if (auto* adam = std::get_if<AdamOptions>(&options)) {
    return {{"lr", &adam->lr},
            {"betas.0", &adam->beta1},
            {"betas.1", &adam->beta2},
            {"eps", &adam->eps},
            {"weight_decay", &adam->weight_decay}};
  }
  auto& sgd = std::get<SgdOptions>(options);
  return {{"lr", &sgd.lr},
          {"momentum", &sgd.momentum},
          {"dampening", &sgd.dampening},
          {"weight_decay", &sgd.weight_decay}};
}

std::pair<const char*, bool*> option_flag(InnerOptions& options) {
  if (auto* adam = std::get_if<AdamOptions>(&options)) {
    return {"decoupled_weight_decay", &adam->decoupled};
  }
  return {"nesterov", &std::get<SgdOptions>(options).nesterov};
}

std::vector<const char*> state_names(const InnerOptions& options) {
  if (std::holds_alternative<AdamOptions>(options)) {
    return {"exp_avg", "exp_avg_sq"};
  }
  if (std::get<SgdOptions>(options).momentum == 0) return {};
  return {"momentum_buffer"};
}

AdamStep adam_step_of(const AdamOptions& options, std::int64_t step) {
  AdamStep numbers;
  numbers.lr = options.lr;
  numbers.beta1 = options.beta1;
  numbers.beta2 = options.beta2;
  numbers.eps = options.eps;
  numbers.weight_decay = options.weight_decay;
  numbers.decoupled = options.decoupled;
  numbers.step = step;
  return numbers;
}

SgdStep sgd_step_of(const SgdOptions& options, std::int64_t step) {
  SgdStep numbers;
  numbers.lr = options.lr;
  numbers.momentum = options.momentum;
  numbers.dampening = options.dampening;
  numbers.weight_decay = options.weight_decay;
  numbers.nesterov = options.nesterov;
  numbers.first = step == 1;
  return numbers;
}

void inner_step(const InnerOptions& options, const StepLists& lists,
                std::int64_t step, const StepScaling& scaling,
                Machine* machine) {
  if (const auto* adam = std::get_if<AdamOptions>(&options)) {
    foreach_adam_(lists.params, lists.gradients, lists.states[0],
                  lists.states[1], lists.model_params,
                  adam_step_of(*adam, step), scaling, machine);
    return;
  }
  foreach_sgd_(
      lists.params, lists.gradients, lists.states[0], lists.model_params,
      sgd_step_of(std::get<SgdOptions>(options), step), scaling, machine);
}

}  // namespace swamp::master
