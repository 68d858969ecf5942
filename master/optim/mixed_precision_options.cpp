// Options: their validation, those of the inner optimizer, and the loss scaler
// that they select.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>
#include <string>

#include "master/optim/mixed_precision.h"
#include "master/tensor_list.h"
#include "master/text.h"
#include "swamp/error.h"

namespace swamp::master {
namespace {

void require(bool good, const std::string& option, double value,
             const char* expected) {
  if (!good) refuse(option, number_text(value), expected);
}

}  // namespace

void check_inner_options(InnerOptions options, const std::string& group) {
  constexpr double kLargest = 3.4028234663852886e38;  // float32's
  constexpr const char* kRanges[] = {"a finite number, at least 0",
                                     "a number in [0, 1)", "a finite number"};
  for (const OptionField& field : option_fields(options)) {
    const double value = *field.value;
    const bool good = field.range == OptionField::kFinite ? std::isfinite(value)
                      : field.range == OptionField::kFraction
                          ? value >= 0 && value < 1
                          : value >= 0 && value <= kLargest;
    require(good, group + field.option, value, kRanges[field.range]);
  }
  const auto* sgd = std::get_if<SgdOptions>(&options);
  if (sgd == nullptr || !sgd->nesterov) return;
  require(sgd->momentum > 0, group + "momentum", sgd->momentum,
          "a momentum above 0 with nesterov");
  require(sgd->dampening == 0, group + "dampening", sgd->dampening,
          "0 with nesterov");
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

std::vector<OptionField> option_fields(InnerOptions& options) {
  if (auto* adam = std::get_if<AdamOptions>(&options)) {
    return {{"lr", &adam->lr},
            {"betas.0", &adam->beta1, "beta1", OptionField::kFraction},
            {"betas.1", &adam->beta2, "beta2", OptionField::kFraction},
            {"eps", &adam->eps},
            {"weight_decay", &adam->weight_decay}};
  }
  auto& sgd = std::get<SgdOptions>(options);
  return {{"lr", &sgd.lr},
          {"momentum", &sgd.momentum},
          {"dampening", &sgd.dampening, "dampening", OptionField::kFinite},
          {"weight_decay", &sgd.weight_decay}};
}

std::vector<std::pair<const char*, bool*>> option_flags(InnerOptions& options) {
  if (auto* adam = std::get_if<AdamOptions>(&options)) {
    return {{"decoupled_weight_decay", &adam->decoupled},
            {"amsgrad", &adam->amsgrad},
            {"maximize", &adam->maximize}};
  }
  auto& sgd = std::get<SgdOptions>(options);
  return {{"nesterov", &sgd.nesterov}, {"maximize", &sgd.maximize}};
}

std::vector<const char*> state_names(const InnerOptions& options) {
  if (const auto* adam = std::get_if<AdamOptions>(&options)) {
    if (adam->amsgrad) return {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"};
    return {"exp_avg", "exp_avg_sq"};
  }
  if (std::get<SgdOptions>(options).momentum == 0) return {};
  return {"momentum_buffer"};
}

namespace {

void check_parameter(const std::string& where, const ModelParameter& parameter,
                     const MixedPrecisionOptions& options) {
  constexpr std::uint32_t kTaken =
      1u << kFloat16 | 1u << kBFloat16 | 1u << kFloat32;
  const std::string data = where + ".data";
  const std::string gradient = where + ".gradient";
  const auto check = [&](const std::string& name, const Tensor& tensor) {
    const std::uint32_t type = scalar_type_index(tensor);
    if (type >= 32 || (kTaken >> type & 1u) == 0) {
      refuse(name + ".dtype", std::to_string(static_cast<int>(type)),
             "0 (float16), 1 (bfloat16) or 2 (float32)");
    }
    if (is_valid_data(tensor, type)) return;
    const std::string count = std::to_string(tensor.count);
    const std::size_t largest = kMaxBytes / kScalarTypeBytes[type];
    if (tensor.count > largest) {
      refuse(name + ".count", count, "at most " + std::to_string(largest));
    }
    refuse(name + ".data",
           tensor.data == nullptr ? "null" : "a misaligned address",
           "the address of " + count + " elements");
  };
  check(data, parameter.data);
  check(gradient, parameter.gradient);
  if (parameter.gradient.count != parameter.data.count) {
    refuse(gradient + ".count", std::to_string(parameter.gradient.count),
           std::to_string(parameter.data.count) + ", as the data");
  }
  if (parameter.data.dtype == kFloat16 && !options.fp16) {
    refuse(data + ".dtype", "float16 without fp16", "the option fp16");
  }
  if (parameter.data.dtype == kBFloat16 && !options.bf16) {
    refuse(data + ".dtype", "bfloat16 without bf16", "the option bf16");
  }
}

// Array is an array of the model, and its name for error texts.
struct Array {
  std::uintptr_t begin, end;
  std::string name;
};

// Throws Error for arrays that share memory: tied weights that are given twice
// would be stepped twice.
void check_overlap(const std::vector<ParameterGroup>& groups) {
  std::vector<Array> arrays;
  const auto add = [&](const Tensor& tensor, const std::string& name) {
    if (tensor.count == 0) return;
    const auto begin = reinterpret_cast<std::uintptr_t>(tensor.data);
    arrays.push_back(
        {begin, begin + tensor.count * kScalarTypeBytes[tensor.dtype], name});
  };
  for (const ParameterGroup& group : groups) {
    for (const ModelParameter& parameter : group.parameters) {
      add(parameter.data, "the data of '" + parameter.name + "'");
      add(parameter.gradient, "the gradient of '" + parameter.name + "'");
    }
  }
  std::sort(arrays.begin(), arrays.end(),
            [](const Array& a, const Array& b) { return a.begin < b.begin; });
  for (std::size_t i = 1; i < arrays.size(); ++i) {
    if (arrays[i].begin >= arrays[i - 1].end) continue;
    refuse("groups",
           arrays[i - 1].name + " and " + arrays[i].name + ", which overlap",
           "arrays that share no memory");
  }
}

}  // namespace

void check_options(const MixedPrecisionOptions& options) {
  if (options.fp16 && options.bf16) {
    refuse("fp16", "true with bf16", "one of them");
  }
  if (!(options.clip_grad >= 0)) {
    refuse("clip_grad", number_text(options.clip_grad), "a number, at least 0");
  }
  if (options.micro_batches < 1) {
    refuse("micro_batches", std::to_string(options.micro_batches),
           "at least 1");
  }
  if (options.shard && options.communicator == nullptr) {
    refuse("shard", "true without a communicator", "a communicator");
  }
  if (options.model_communicator != nullptr && !options.shard) {
    refuse("model_communicator", "one without shard", "the option shard");
  }
  if (options.saturated_is_overflow && !options.fp16) {
    refuse("saturated_is_overflow", "true without fp16", "the option fp16");
  }
  if (!options.scaler.empty() && options.loss_scale != 0) {
    refuse(
        "loss_scale",
        number_text(options.loss_scale) + " with the scaler " + options.scaler,
        "one of them");
  }
  if (options.scaler.empty() && !options.scaler_options.empty()) {
    refuse("scaler_options", "options without a scaler",
           "the name of one in scaler");
  }
  check_inner_options(options.optimizer, "");
}

void check_parameters(const std::vector<ParameterGroup>& groups,
                      const MixedPrecisionOptions& options) {
  std::set<std::string> names;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const std::string group = "groups[" + std::to_string(g) + "].";
    check_inner_options(group_options(options.optimizer, groups[g]), group);
    for (std::size_t p = 0; p < groups[g].parameters.size(); ++p) {
      const ModelParameter& parameter = groups[g].parameters[p];
      const std::string where = group + "parameters[" + std::to_string(p) + "]";
      check_parameter(where, parameter, options);
      if (!names.insert(parameter.name).second) {
        refuse(where + ".name", "'" + parameter.name + "' again",
               "a name that no other parameter has");
      }
    }
  }
  check_overlap(groups);
}

std::pair<std::string, ScalerOptions> scaler_choice(
    const MixedPrecisionOptions& options) {
  if (!options.scaler.empty()) return {options.scaler, options.scaler_options};
  if (options.loss_scale != 0) {
    return {"megatron.ConstantGradScaler",
            {{"initial_scale", options.loss_scale}}};
  }
  if (!options.fp16) return {};
  return {"megatron.DynamicGradScaler",
          {{"initial_scale", options.initial_loss_scale},
           {"min_scale", options.min_loss_scale},
           {"growth_factor", 2.0},
           {"backoff_factor", 0.5},
           {"growth_interval", options.loss_scale_window},
           {"hysteresis", options.hysteresis}}};
}

std::optional<LossScaler> choose_scaler(const MixedPrecisionOptions& options) {
  const auto [name, scaler_options] = scaler_choice(options);
  if (name.empty()) return std::nullopt;
  return LossScaler::from_name(name, scaler_options);
}

}  // namespace swamp::master
