#include "master/mixed_precision/state_reader.h"

#include <cmath>
#include <string>

#include "master/foreach.h"
#include "master/mixed_precision/number_text.h"
#include "swamp/error.h"

namespace swamp::master {
namespace {

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
  if (!read_number(found->second, value)) {
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
    // The constant one loads nothing, in Megatron too.
    loaded.scaler = choose_scaler(impl.options);
    try {
      loaded.scaler->load_state_dict(found->second);
    } catch (const Error& error) {
      fail(kScaler, error.what());
    }
  }
}

// read_flag() leaves it alone where an old state does not say.
void read_flag(const OptimizerState& state, const std::string& optimizer,
               std::size_t group, InnerOptions& options) {
  const auto [name, flag] = option_flag(options);
  const std::string key = optimizer + group_key(group, name);
  if (state.texts.count(key) == 0) return;
  const double value = number_at(state, key);
  if (value != 0 && value != 1) {
    fail(key, state.texts.at(key) + "; expected 0 or 1");
  }
  *flag = value != 0;
}

void read_groups(const OptimizerState& state,
                 const std::vector<const char*>& states, LoadedState& loaded) {
  const std::string key = loaded.optimizer + ".step";
  const double steps = number_at(state, key);
  const bool whole = steps >= 0 && steps < 0x1p53 && std::floor(steps) == steps;
  loaded.steps = whole ? static_cast<std::int64_t>(steps) : -1;
  if (!is_step(loaded.steps + 1)) {  // the next one
    fail(key, "got " + state.texts.at(key) +
                  ", expected a whole number from 0 to 2^53 - 2");
  }
  for (std::size_t g = 0; g < loaded.groups.size(); ++g) {
    for (auto& [field, value] : option_fields(loaded.groups[g])) {
      *value = number_at(state, loaded.optimizer + group_key(g, field));
    }
    read_flag(state, loaded.optimizer, g, loaded.groups[g]);
    check_inner_options(loaded.groups[g],
                        "state dict: " + loaded.optimizer + group_key(g, ""));
    if (state_names(loaded.groups[g]) != states) {
      fail(loaded.optimizer + group_key(g, "momentum"),
           state.texts.at(loaded.optimizer + group_key(g, "momentum")) +
               "; expected " + (states.empty() ? "0" : "a momentum") +
               ", as the optimizer was made");
    }
  }
  const std::string next = loaded.optimizer + group_key(loaded.groups.size());
  if (has_entry(state, next)) {
    fail(next,
         "there; expected " + std::to_string(loaded.groups.size()) + " groups");
  }
}

// require_known() refuses the states of parameters that there are not.
void require_known(const OptimizerState& state, const std::string& prefix,
                   std::size_t expected) {
  std::size_t found = 0;
  for (auto at = state.tensors.lower_bound(prefix);
       at != state.tensors.end() && at->first.rfind(prefix, 0) == 0; ++at) {
    ++found;
  }
  if (found == expected) return;
  fail(prefix, std::to_string(found) + " tensors; expected " +
                   std::to_string(expected) + ", for these parameters");
}

// read_tensors() finds every array, and no other.
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

}  // namespace

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

}  // namespace swamp::master
