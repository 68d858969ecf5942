// A scale manager is the values of its options, a ScaledTensor for each tensor,
// and a Recipe: a row that names the rules and describes options and state.
// delayed_scaling.cpp has the recipes with state, current_scaling.cpp those
// without; the arithmetic that block kernels need too is in
// slave/scale_rules.h.
#ifndef SWAMP_MASTER_SCALER_SCALE_MANAGER_H_
#define SWAMP_MASTER_SCALER_SCALE_MANAGER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "swamp/scale_manager.h"

namespace swamp::scaler {

// Elements is what a rule needs of the format of a tensor.
struct Elements {
  float largest;
  std::uint32_t mantissa_bits;
};

// Formats is the value of an option: an index of kFormats, which has those of
// the forward and of the backward pass.
enum Formats {
  kE4M3,
  kE5M2,
  kHybrid,
  kE3M2,
  kE2M3,
  kE2M1,
  kInt8,
  kHalf,
  kHalfOfHalf,
  kHiFloat8
};
inline constexpr Elements kFormats[][2] = {
    {{448, 3}, {448, 3}},
    {{57344, 2}, {57344, 2}},
    {{448, 3}, {57344, 2}},
    {{28, 2}, {28, 2}},
    {{7.5f, 3}, {7.5f, 3}},
    {{6, 1}, {6, 1}},
    {{1.984375f, 6}, {1.984375f, 6}},  // of MX: 127 / 64
    {{65504, 10}, {65504, 10}},
    {{32752, 10}, {32752, 10}},  // Transformer Engine's float16 states
    {{15, 3}, {224, 3}}};        // MindSpeed and torch_npu

// RecipeOptions are all double, so that the tables can hold member pointers.
struct RecipeOptions {
  double formats = kHybrid;
  double margin = 0;
  double history_length = 1;
  double most_recent = 0;  // the last amax, not the largest of the window
  double fused = 1;
  double reduces = 1;
  double power_of_2 = 0;
  double eps = 0;
  double input_largest = 0x1.fffffep127;
  double rule = 0;        // a slave::MxRule
  double per_tensor = 1;  // the scale of a tensor, in torchao's NVFP4
  double in_time = 1;     // MS-AMP's flag in_time_scaling
  double interval = 1;    // MindSpeed's fp8_interval
};

struct ScaledTensor {
  Elements elements = {};
  BlockScale scale = {};
  float amax = 0;  // observed since the last update
  bool observed = false;
  std::vector<float> history = {};
  double filled = 0;   // entries of the history, or steps
  double waiting = 1;  // MindSpeed's current_interval
};

// CurrentRule returns the scale that belongs to this amax.
using CurrentRule = BlockScale (*)(const RecipeOptions&, const ScaledTensor&,
                                   float amax);
// UpdateRule ends a step.
using UpdateRule = void (*)(const RecipeOptions&, ScaledTensor&);

struct Word {
  const char* text;  // compared without regard to case
  double value;
};

// RecipeOption is one of `words`, else a boolean, else a number.
struct RecipeOption {
  const char* name;
  double RecipeOptions::*member;
  std::vector<Word> words = {};
  bool boolean = false;
  bool integer = true;
  double low = 0, high = 0;
};

// StateField is an entry of the state dict; lists have the order of the
// tensors.
enum class StateField {
  scale,
  scale_inv,
  reciprocal,  // 1 / scale, which is written only
  by_slot,     // the history: a list for each slot
  by_tensor,   // the history: a list for each tensor
  filled,
  waiting,
  recipe  // the name of the original's class
};

struct StateKey {
  std::string pointer;  // JSON pointer
  bool backward;
  StateField field;
  const char* text = nullptr;  // of StateField::recipe
};

struct Recipe {
  const char* name;
  CurrentRule current;  // null: never in time
  // Returns whether the scale of this step is `current`; null: always.
  bool (*in_time)(const RecipeOptions&, const ScaledTensor&);
  UpdateRule update;  // null: sets the scale to `current`
  CurrentRule block;  // null: scales are of whole tensors
  RecipeOptions defaults;
  std::vector<RecipeOption> options;
  std::vector<StateKey> keys = {};
  bool amax_in_history = false;  // the original observes into slot 0
  bool nan_is_inf = false;       // in a reduction
  bool any_scale = false;        // the rule may yield 0, inf or nan
};

std::vector<Recipe> delayed_recipes();
std::vector<Recipe> current_recipes();

// history_of() is the window as the original keeps it.
std::vector<float> history_of(const Recipe& recipe, const ScaledTensor& tensor);

// The state as JSON, and back. json.cpp
std::string write_scales(const Recipe& recipe, std::size_t forward,
                         const std::vector<ScaledTensor>& tensors);
void read_scales(const Recipe& recipe, std::size_t forward,
                 const std::string& json, std::vector<ScaledTensor>& tensors);

}  // namespace swamp::scaler

#endif  // SWAMP_MASTER_SCALER_SCALE_MANAGER_H_
