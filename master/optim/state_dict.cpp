// The state dict of a MixedPrecisionOptimizer: Megatron's keys, flat. Loading
// first reads and validates the whole dict, on all ranks, into a LoadedState;
// nothing is changed if one of them refuses it.
#include <algorithm>
#include <cmath>
#include <exception>
#include <string>
#include <utility>

#include "master/foreach.h"
#include "master/optim/mixed_precision.h"
#include "master/text.h"
#include "swamp/error.h"
#include "swamp/foreach.h"

namespace swamp::master {
namespace {

constexpr char kOptimizer[] = "optimizer";
constexpr char kOldOptimizer[] = "optimizer_state_dict";
constexpr char kMasters[] = "fp32_from_fp16_params";
constexpr char kOldMasters[] = "fp32_from_fp16";
constexpr char kScaler[] = "grad_scaler";

std::string group_key(std::size_t group) {
  return ".param_groups." + std::to_string(group);
}

std::string group_key(std::size_t group, const char* field) {
  return group_key(group) + "." + field;
}

std::string state_key(const ModelParameter& parameter, const char* state) {
  return ".state." + parameter.name + "." + state;
}

// LoadedState is a validated state dict. It points into the dict.
struct LoadedState {
  std::string optimizer = kOptimizer;
  std::string masters = kMasters;
  std::int64_t steps = 0;
  std::vector<InnerOptions> groups;
  std::optional<LossScaler> scaler;
  std::vector<std::string> warnings;
  // By parameter; null if it has no master.
  std::vector<const std::vector<float>*> master_of;
  std::vector<const std::vector<float>*> states_of[kMaxStates];
};

bool has_entry(const OptimizerState& state, const std::string& name) {
  const auto begins = [&](const auto& map) {
    const auto found = map.lower_bound(name + ".");
    return found != map.end() && found->first.rfind(name + ".", 0) == 0;
  };
  return begins(state.texts) || begins(state.tensors);
}

[[noreturn]] void refuse_entry(const std::string& key, const std::string& value,
                               const std::string& expected) {
  refuse("state dict: " + key, value, expected);
}

double number_at(const OptimizerState& state, const std::string& key) {
  const auto found = state.texts.find(key);
  if (found == state.texts.end()) refuse_entry(key, "nothing", "a number");
  double value;
  if (!read_number(found->second, value)) {
    refuse_entry(key, "'" + found->second + "'", "a number");
  }
  return value;
}

const std::vector<float>& tensor_at(const OptimizerState& state,
                                    const std::string& key, std::size_t count) {
  const auto found = state.tensors.find(key);
  if (found == state.tensors.end()) {
    refuse_entry(key, "nothing", std::to_string(count) + " elements");
  }
  if (found->second.size() != count) {
    refuse_entry(key, std::to_string(found->second.size()) + " elements",
                 std::to_string(count));
  }
  return found->second;
}

void read_names(const OptimizerState& state, LoadedState& loaded) {
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
                 const MixedPrecisionOptimizer::Impl& impl,
                 LoadedState& loaded) {
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
  } else if (impl.scaler->name() != "megatron.ConstantGradScaler") {
    // Megatron's constant scaler loads nothing either.
    loaded.scaler = choose_scaler(impl.options);
    try {
      loaded.scaler->load_state_dict(found->second);
    } catch (const Error& error) {
      throw Error(SWAMP_INVALID_ARGUMENT,
                  std::string("state dict: ") + kScaler + ": " + error.what());
    }
  }
}

// Leaves a flag unchanged if an old state dict lacks it.
void read_flags(const OptimizerState& state, const std::string& optimizer,
                std::size_t group, InnerOptions& options) {
  for (const auto& [name, flag] : option_flags(options)) {
    const std::string key = optimizer + group_key(group, name);
    if (state.texts.count(key) == 0) continue;
    const double value = number_at(state, key);
    if (value != 0 && value != 1) {
      refuse_entry(key, state.texts.at(key), "0 or 1");
    }
    *flag = value != 0;
  }
}

void read_groups(const OptimizerState& state,
                 const std::vector<const char*>& states, LoadedState& loaded) {
  const std::string key = loaded.optimizer + ".step";
  const double steps = number_at(state, key);
  const bool whole = steps >= 0 && steps < 0x1p53 && std::floor(steps) == steps;
  loaded.steps = whole ? static_cast<std::int64_t>(steps) : -1;
  if (!is_step(loaded.steps + 1)) {  // the next one
    refuse_entry(key, state.texts.at(key), "a whole number from 0 to 2^53 - 2");
  }
  for (std::size_t g = 0; g < loaded.groups.size(); ++g) {
    for (const OptionField& field : option_fields(loaded.groups[g])) {
      *field.value =
          number_at(state, loaded.optimizer + group_key(g, field.name));
    }
    read_flags(state, loaded.optimizer, g, loaded.groups[g]);
    check_inner_options(loaded.groups[g],
                        "state dict: " + loaded.optimizer + group_key(g, ""));
    if (state_names(loaded.groups[g]) != states) {
      const bool sgd = std::holds_alternative<SgdOptions>(loaded.groups[g]);
      const std::string option =
          loaded.optimizer + group_key(g, sgd ? "momentum" : "amsgrad");
      refuse_entry(option, state.texts.at(option),
                   std::string(sgd ? states.empty() ? "0" : "a momentum"
                               : states.size() == kMaxStates ? "1"
                                                             : "0") +
                       ", as the optimizer was made");
    }
  }
  const std::string next = loaded.optimizer + group_key(loaded.groups.size());
  if (has_entry(state, next)) {
    refuse_entry(next, "an entry",
                 std::to_string(loaded.groups.size()) + " groups");
  }
}

// Throws Error if there are states of unknown parameters.
void require_known(const OptimizerState& state, const std::string& prefix,
                   std::size_t expected) {
  std::size_t found = 0;
  for (auto at = state.tensors.lower_bound(prefix);
       at != state.tensors.end() && at->first.rfind(prefix, 0) == 0; ++at) {
    ++found;
  }
  if (found == expected) return;
  refuse_entry(prefix, std::to_string(found) + " tensors",
               std::to_string(expected) + ", for these parameters");
}

// Finds every array. Throws Error if one is missing or unknown.
void read_tensors(const OptimizerState& state,
                  const MixedPrecisionOptimizer::Impl& impl,
                  LoadedState& loaded) {
  const auto names = state_names(impl.options.optimizer);
  const std::string masters = loaded.masters + ".";
  std::size_t master_count = 0;
  for (std::size_t p = 0; p < impl.parameters.size(); ++p) {
    const ModelParameter& parameter = impl.parameters[p];
    const std::size_t count = parameter.data.count;
    loaded.master_of.push_back(nullptr);
    if (impl.is_16_bit(p)) {
      loaded.master_of.back() =
          &tensor_at(state, masters + parameter.name, count);
      ++master_count;
    }
    for (std::size_t s = 0; s < names.size(); ++s) {
      loaded.states_of[s].push_back(&tensor_at(
          state, loaded.optimizer + state_key(parameter, names[s]), count));
    }
  }
  require_known(state, masters, master_count);
  require_known(state, loaded.optimizer + ".state.",
                impl.parameters.size() * names.size());
}

// Validates the whole dict. Throws Error that names the key.
LoadedState read_state(const OptimizerState& state,
                       const MixedPrecisionOptimizer::Impl& impl) {
  LoadedState loaded;
  loaded.groups = impl.groups;
  read_names(state, loaded);
  read_groups(state, state_names(impl.options.optimizer), loaded);
  read_scaler(state, impl, loaded);
  read_tensors(state, impl, loaded);
  return loaded;
}

}  // namespace
}  // namespace swamp::master

namespace swamp {

using master::group_key;
using master::kMasters;
using master::kOptimizer;
using master::kScaler;
using master::state_key;

OptimizerState MixedPrecisionOptimizer::state_dict() const {
  Impl& impl = *impl_;
  if (impl.options.shard) impl.require_same_ranks("state_dict()");
  OptimizerState state;
  state.texts[std::string(kOptimizer) + ".step"] = std::to_string(impl.steps);
  for (std::size_t g = 0; g < impl.groups.size(); ++g) {
    for (const auto& field : master::option_fields(impl.groups[g])) {
      state.texts[kOptimizer + group_key(g, field.name)] =
          master::number_text(*field.value);
    }
    for (const auto& [name, flag] : master::option_flags(impl.groups[g])) {
      state.texts[kOptimizer + group_key(g, name)] = *flag ? "1" : "0";
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

namespace {

// Reads the dict. Throws Error on all ranks if one of them refuses it.
master::LoadedState read_together(const OptimizerState& state,
                                  MixedPrecisionOptimizer::Impl& impl) {
  if (!impl.options.shard) return master::read_state(state, impl);
  impl.require_same_ranks("load_state_dict()",
                          MixedPrecisionOptimizer::Impl::State::replaced);
  master::LoadedState loaded;
  std::exception_ptr refused;
  try {
    loaded = master::read_state(state, impl);
  } catch (...) {
    refused = std::current_exception();
  }
  const bool any = impl.max_of_ranks(refused ? 1.0f : 0.0f) != 0;
  if (refused) std::rethrow_exception(refused);
  if (any) {
    master::refuse("state dict", "one that another rank refused",
                   "the same on all ranks");
  }
  return loaded;
}

void copy_slice(const std::vector<float>& from, const master::Slice& slice,
                master::FloatArray& to) {
  const float* at = from.data() + slice.begin;
  std::copy(at, at + slice.count, to.begin());
}

}  // namespace

std::vector<std::string> MixedPrecisionOptimizer::load_state_dict(
    const OptimizerState& state) {
  Impl& impl = *impl_;
  master::LoadedState loaded = read_together(state, impl);
  for (master::MainSlice& main : impl.slices) {
    const std::size_t p = main.slice.parameter;
    if (impl.is_16_bit(p)) {
      copy_slice(*loaded.master_of[p], main.slice, main.master);
    }
    for (std::size_t s = 0; s < master::kMaxStates; ++s) {
      if (loaded.states_of[s].empty()) continue;
      copy_slice(*loaded.states_of[s][p], main.slice, main.states[s]);
    }
  }
  impl.groups = std::move(loaded.groups);
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
