// The state dict of a MixedPrecisionOptimizer: Megatron's keys, flat.
#include <string>
#include <utility>

#include "master/mixed_precision/impl.h"
#include "master/mixed_precision/number_text.h"
#include "swamp/error.h"
#include "swamp/foreach.h"

namespace swamp {
namespace {

constexpr char kOptimizer[] = "optimizer";
constexpr char kOldOptimizer[] = "optimizer_state_dict";
constexpr char kMasters[] = "fp32_from_fp16_params";
constexpr char kOldMasters[] = "fp32_from_fp16";
constexpr char kScaler[] = "grad_scaler";

std::string group_key(std::size_t group, const char* field) {
  return ".param_groups." + std::to_string(group) + "." + field;
}

std::string state_key(const ModelParameter& parameter, const char* state) {
  return ".state." + parameter.name + "." + state;
}

bool has_entry(const OptimizerState& state, const std::string& name) {
  const auto begins = [&](const auto& map) {
    const auto found = map.lower_bound(name + ".");
    return found != map.end() && found->first.rfind(name + ".", 0) == 0;
  };
  return begins(state.texts) || begins(state.tensors);
}

[[noreturn]] void fail(const std::string& key, const std::string& text) {
  throw Error(SWAMP_INVALID_ARGUMENT, "state dict: " + key + ": " + text);
}

double number_at(const OptimizerState& state, const std::string& key) {
  const auto found = state.texts.find(key);
  if (found == state.texts.end()) fail(key, "missing; expected a number");
  double value;
  if (!master::read_number(found->second, value)) {
    fail(key, "'" + found->second + "'; expected a number");
  }
  return value;
}

const std::vector<float>& tensor_at(const OptimizerState& state,
                                    const std::string& key, std::size_t count) {
  const auto found = state.tensors.find(key);
  if (found == state.tensors.end()) {
    fail(key, "missing; expected " + std::to_string(count) + " elements");
  }
  if (found->second.size() != count) {
    fail(key, std::to_string(found->second.size()) + " elements; expected " +
                  std::to_string(count));
  }
  return found->second;
}

// Loaded is a state dict that has been read and found good.
struct Loaded {
  std::string optimizer = kOptimizer;
  std::string masters = kMasters;
  std::int64_t steps = 0;
  std::vector<master::InnerOptions> groups;
  std::optional<LossScaler> scaler;
  std::vector<std::string> warnings;
};

void read_names(const OptimizerState& state, Loaded& loaded) {
  if (!has_entry(state, kOptimizer) && has_entry(state, kOldOptimizer)) {
    loaded.optimizer = kOldOptimizer;
    loaded.warnings.emplace_back(
        "***WARNING*** loading optimizer from an old checkpoint ...");
  }
  if (!has_entry(state, kMasters) && has_entry(state, kOldMasters)) {
    loaded.masters = kOldMasters;
  }
}

void read_scaler(const OptimizerState& state,
                 const MixedPrecisionOptimizer::Impl& impl, Loaded& loaded) {
  const auto found = state.texts.find(kScaler);
  if (found == state.texts.end()) {
    if (impl.options.fp16) {
      loaded.warnings.emplace_back(
          "***WARNING*** found an old checkpoint, will not load grad scaler "
          "...");
    }
  } else if (!impl.scaler) {
    loaded.warnings.emplace_back(
        "***WARNING*** fould the grad scaler in the checkpoint but it is None "
        "in the class. Skipping loading grad scaler ...");
  } else {
    loaded.scaler = master::choose_scaler(impl.options);
    loaded.scaler->load_state_dict(found->second);
  }
}

void read_groups(const OptimizerState& state, Loaded& loaded) {
  const std::string key = loaded.optimizer + ".step";
  const double steps = number_at(state, key);
  loaded.steps = static_cast<std::int64_t>(steps);
  if (!(steps >= 0 && steps < 9e15) ||
      static_cast<double>(loaded.steps) != steps) {
    fail(key, state.texts.at(key) + "; expected a whole number, at least 0");
  }
  for (std::size_t g = 0; g < loaded.groups.size(); ++g) {
    for (auto& [field, value] : master::option_fields(loaded.groups[g])) {
      *value = number_at(state, loaded.optimizer + group_key(g, field));
    }
    master::check_inner_options(
        loaded.groups[g], "state dict: " + loaded.optimizer + group_key(g, ""));
  }
}

}  // namespace

OptimizerState MixedPrecisionOptimizer::state_dict() const {
  Impl& impl = *impl_;
  OptimizerState state;
  state.texts[std::string(kOptimizer) + ".step"] = std::to_string(impl.steps);
  for (std::size_t g = 0; g < impl.groups.size(); ++g) {
    for (const auto& [field, value] : master::option_fields(impl.groups[g])) {
      state.texts[kOptimizer + group_key(g, field)] =
          master::number_text(*value);
    }
  }
  if (impl.scaler) state.texts[kScaler] = impl.scaler->state_dict();

  const auto add = [&](auto array, auto key, bool only_16_bit) {
    std::vector<const float*> mine;
    for (master::MainSlice& main : impl.slices) mine.push_back(array(main));
    std::vector<std::vector<float>> whole = impl.gather_slices(mine);
    for (std::size_t p = 0; p < whole.size(); ++p) {
      if (only_16_bit && !impl.is_16_bit(p)) continue;
      state.tensors[key(impl.parameters[p])] = std::move(whole[p]);
    }
  };
  add(
      [&](master::MainSlice& main) {
        return static_cast<const float*>(impl.main_param(main).data);
      },
      [](const ModelParameter& parameter) {
        return std::string(kMasters) + "." + parameter.name;
      },
      true);
  const auto names = master::state_names(impl.options.optimizer);
  for (std::size_t s = 0; s < names.size(); ++s) {
    add(
        [&](master::MainSlice& main) {
          return static_cast<const float*>(main.states[s].data());
        },
        [&](const ModelParameter& parameter) {
          return kOptimizer + state_key(parameter, names[s]);
        },
        false);
  }
  return state;
}

std::vector<std::string> MixedPrecisionOptimizer::load_state_dict(
    const OptimizerState& state) {
  Impl& impl = *impl_;
  Loaded loaded;
  loaded.groups = impl.groups;
  read_names(state, loaded);
  read_groups(state, loaded);
  read_scaler(state, impl, loaded);
  const auto names = master::state_names(impl.options.optimizer);
  const auto state_of = [&](std::size_t parameter,
                            std::size_t s) -> const std::vector<float>& {
    const ModelParameter& p = impl.parameters[parameter];
    return tensor_at(state, loaded.optimizer + state_key(p, names[s]),
                     p.data.count);
  };
  const auto master_of =
      [&](std::size_t parameter) -> const std::vector<float>& {
    const ModelParameter& p = impl.parameters[parameter];
    return tensor_at(state, loaded.masters + "." + p.name, p.data.count);
  };
  for (std::size_t p = 0; p < impl.parameters.size(); ++p) {
    if (impl.is_16_bit(p)) master_of(p);
    for (std::size_t s = 0; s < names.size(); ++s) state_of(p, s);
  }

  // All is there: from here on nothing fails.
  const auto copy = [](const std::vector<float>& from,
                       const master::Slice& slice, std::vector<float>& to) {
    const float* at = from.data() + slice.begin;
    to.assign(at, at + slice.count);
  };
  for (master::MainSlice& main : impl.slices) {
    const std::size_t p = main.slice.parameter;
    if (impl.is_16_bit(p)) copy(master_of(p), main.slice, main.master);
    for (std::size_t s = 0; s < names.size(); ++s) {
      copy(state_of(p, s), main.slice, main.states[s]);
    }
  }
  impl.groups = loaded.groups;
  impl.steps = loaded.steps;
  impl.accumulated = 0;
  if (loaded.scaler) {
    impl.scaler = std::move(loaded.scaler);
    impl.loss_scale = impl.scaler->scale();
  }
  foreach_cast_(impl.rounded_masters, impl.masters, 1, impl.options.machine);
  if (impl.options.shard) impl.gather_model_params();
  return loaded.warnings;
}

}  // namespace swamp
