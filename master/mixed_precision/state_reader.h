// The keys of a state dict, and reading one.
#ifndef SWAMP_MASTER_MIXED_PRECISION_STATE_READER_H_
#define SWAMP_MASTER_MIXED_PRECISION_STATE_READER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "master/mixed_precision/impl.h"

namespace swamp::master {

inline constexpr char kOptimizer[] = "optimizer";
inline constexpr char kOldOptimizer[] = "optimizer_state_dict";
inline constexpr char kMasters[] = "fp32_from_fp16_params";
inline constexpr char kOldMasters[] = "fp32_from_fp16";
inline constexpr char kScaler[] = "grad_scaler";

inline std::string group_key(std::size_t group) {
  return ".param_groups." + std::to_string(group);
}

inline std::string group_key(std::size_t group, const char* field) {
  return group_key(group) + "." + field;
}

inline std::string state_key(const ModelParameter& parameter,
                             const char* state) {
  return ".state." + parameter.name + "." + state;
}

// LoadedState is a state dict that has been read and found good. It points into
// the dict.
struct LoadedState {
  std::string optimizer = kOptimizer;
  std::string masters = kMasters;
  std::int64_t steps = 0;
  std::vector<InnerOptions> groups;
  std::optional<LossScaler> scaler;
  std::vector<std::string> warnings;
  // By parameter: null where it has no master.
  std::vector<const std::vector<float>*> master_of;
  std::vector<const std::vector<float>*> states_of[2];
};

// read_state() validates all of it; throws Error that names the key.
LoadedState read_state(const OptimizerState& state,
                       const MixedPrecisionOptimizer::Impl& impl);

}  // namespace swamp::master

#endif  // SWAMP_MASTER_MIXED_PRECISION_STATE_READER_H_
