// The state dict of a MixedPrecisionOptimizer: Megatron's keys, flat.
#include <algorithm>
#include <exception>
#include <string>
#include <utility>

#include "master/mixed_precision/number_text.h"
#include "master/mixed_precision/state_reader.h"
#include "swamp/error.h"
#include "swamp/foreach.h"

namespace swamp {

using master::group_key;
using master::kMasters;
using master::kOptimizer;
using master::kScaler;
using master::state_key;

OptimizerState MixedPrecisionOptimizer::state_dict() const {
  Impl& impl = *impl_;
  OptimizerState state;
  state.texts[std::string(kOptimizer) + ".step"] = std::to_string(impl.steps);
  for (std::size_t g = 0; g < impl.groups.size(); ++g) {
    for (const auto& [field, value] : master::option_fields(impl.groups[g])) {
      state.texts[kOptimizer + group_key(g, field)] =
          master::number_text(*value);
    }
    const auto [name, flag] = master::option_flag(impl.groups[g]);
    state.texts[kOptimizer + group_key(g, name)] = *flag ? "1" : "0";
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

// read_together() lets no rank load what another has refused.
master::LoadedState read_together(const OptimizerState& state,
                                  const MixedPrecisionOptimizer::Impl& impl) {
  if (!impl.options.shard) return master::read_state(state, impl);
  master::LoadedState loaded;
  std::exception_ptr refused;
  try {
    loaded = master::read_state(state, impl);
  } catch (...) {
    refused = std::current_exception();
  }
  const bool any = impl.communicator.max(refused ? 1.0f : 0.0f) != 0;
  if (refused) std::rethrow_exception(refused);
  if (any) {
    throw Error(SWAMP_INVALID_ARGUMENT,
                "state dict: refused by another rank; expected the same one on "
                "all");
  }
  return loaded;
}

void copy_slice(const std::vector<float>& from, const master::Slice& slice,
                std::vector<float>& to) {
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
    for (std::size_t s = 0; s < 2; ++s) {
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
