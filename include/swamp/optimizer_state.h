/// @file
/// OptimizerState: the state dict of an optimizer.
#ifndef SWAMP_OPTIMIZER_STATE_H_
#define SWAMP_OPTIMIZER_STATE_H_

#include <map>
#include <string>
#include <vector>

namespace swamp {

/// OptimizerState is a flat state dict: the key of an entry is its path in
/// Megatron's nested dict, with dots between the parts.
///
///     texts:   optimizer.step, optimizer.param_groups.0.lr, grad_scaler, ...
///     tensors: optimizer.state.<parameter>.exp_avg (exp_avg_sq,
///              momentum_buffer), fp32_from_fp16_params.<parameter>
///
/// It owns its data.
struct OptimizerState {
  /// Numbers as text that reads back to the same bits; "grad_scaler" is the
  /// scaler's JSON.
  std::map<std::string, std::string> texts;
  /// float32, flat.
  std::map<std::string, std::vector<float>> tensors;
};

}  // namespace swamp

#endif  // SWAMP_OPTIMIZER_STATE_H_
