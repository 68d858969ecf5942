// Recipes whose scales depend on earlier steps: delayed scaling of Transformer
// Engine, Megatron-LM and MindSpeed, and MS-AMP's windows. All arithmetic is
// float32, in the order of the originals.
#include <algorithm>
#include <cmath>

#include "master/scaler/scale_manager.h"
#include "slave/scale_rules.h"

namespace swamp::scaler {
namespace {

using slave::power_of_two;

// larger() is a maximum in which nan wins, as PyTorch's.
float larger(float a, float b) { return a > b || std::isnan(a) ? a : b; }

float largest_of(const std::vector<float>& list) {
  float largest = 0;
  for (const float entry : list) largest = larger(largest, entry);
  return largest;
}

float power_of_margin(const RecipeOptions& o, int sign) {
  return power_of_two(sign * static_cast<int>(o.margin));
}

// update_te() is Transformer Engine's delayed scaling of one tensor: fused,
// common/recipe/delayed_scaling.cu, kernel_bulk(), in which an amax of 0 moves
// nothing and nan is skipped; else pytorch/quantization.py,
// _amax_and_scale_update(), where PyTorch computes number / tensor as
// reciprocal times number.
void update_te(const RecipeOptions& o, ScaledTensor& t) {
  std::vector<float>& history = t.history;
  float amax = 0;
  float scale = 0;
  if (o.fused != 0) {
    if (t.amax != 0) {
      history.front() = t.amax;
      std::rotate(history.begin(), history.begin() + 1, history.end());
      for (const float entry : history) amax = std::fmax(amax, entry);
      history.front() = 0;
    }
    if (o.most_recent != 0) amax = t.amax;
    scale = t.elements.largest * power_of_margin(o, -1) / amax;
  } else {
    history.front() = t.amax;
    amax = o.most_recent != 0 ? t.amax : largest_of(history);
    std::rotate(history.begin(), history.begin() + 1, history.end());
    history.front() = 0;
    scale = 1 / amax * t.elements.largest / power_of_margin(o, 1);
  }
  if (!(amax > 0) || std::isinf(amax)) scale = t.scale.scale;
  if (std::isinf(scale)) scale = slave::kFloatMax;
  t.scale = {scale, 1 / scale};
}

// msamp_scale() is MS-AMP's msamp/common/tensor/meta.py,
// compute_scaling_factor() without margin. The reciprocal is taken last, so inf
// gives 1 / the old scale.
BlockScale msamp_scale(const RecipeOptions&, const ScaledTensor& t,
                       float amax) {
  float scale = t.scale.scale;
  if (std::isinf(amax)) {
    scale = 1 / scale;
  } else if (amax > 0) {
    const float ratio = 1 / amax * t.elements.largest;
    const int exponent = std::isinf(ratio) ? 128 : slave::floor_of_log2(ratio);
    scale = exponent < 0 ? 1 / power_of_two(-exponent) : power_of_two(exponent);
  }
  return {scale, 1 / scale};
}

// A tensor is scaled in time if it has no window, and until it is full.
bool is_msamp_in_time(const RecipeOptions& o, const ScaledTensor& t) {
  return o.in_time != 0 &&
         (o.history_length == 1 || t.filled < o.history_length);
}

// update_msamp() is msamp/optim/optimizer.py, _update_scaling_factors(), after
// the cast of msamp/common/tensor/cast.py. Inf and nan count as 0.
void update_msamp(const RecipeOptions& o, ScaledTensor& t) {
  if (t.observed && is_msamp_in_time(o, t)) {
    t.scale = msamp_scale(o, t, t.amax);
  }
  if (o.in_time != 0 && o.history_length == 1) return;
  const bool finite = std::isfinite(t.amax);
  t.history.front() = finite ? t.amax : 0;
  t.scale = msamp_scale(o, t, largest_of(t.history));
  std::rotate(t.history.begin(), t.history.end() - 1, t.history.end());
  t.history.front() = 0;
  t.filled = finite ? t.filled + 1 : 0;
}

// The scale of MindSpeed is the inverse:
// mindspeed/te/pytorch/fp8/scale_data.py, delayed_recipe_update_scale().
BlockScale mindspeed_scale(const RecipeOptions& o, const ScaledTensor& t,
                           float amax) {
  const float inverse = amax * power_of_margin(o, 1) / t.elements.largest;
  return {1 / inverse, inverse};
}

bool is_first(const RecipeOptions&, const ScaledTensor& t) {
  return t.filled == 0;
}

// update_mindspeed() is ScaleData.delayed_recipe_update_amax(). A full window
// is rolled along its axis of length 1: only its last entry is ever replaced.
void update_mindspeed(const RecipeOptions& o, ScaledTensor& t) {
  if (!t.observed) return;
  if (t.filled != 0 && t.waiting < o.interval) {
    t.waiting += 1;
    return;
  }
  t.waiting = 1;
  t.filled = std::min(t.filled + 1, o.history_length);
  float& last = t.history[static_cast<std::size_t>(t.filled) - 1];
  last = t.amax;
  t.scale =
      mindspeed_scale(o, t, o.most_recent != 0 ? last : largest_of(t.history));
}

constexpr double kMaxHistory = 1 << 20;
constexpr double kMaxMargin = 126;

RecipeOption margin(const char* name) {
  return {name,      &RecipeOptions::margin, {}, false, true, -kMaxMargin,
          kMaxMargin};
}
RecipeOption window(const char* name) {
  return {name,       &RecipeOptions::history_length, {}, false, true, 1,
          kMaxHistory};
}
RecipeOption algorithm(const char* name) {
  return {name, &RecipeOptions::most_recent, {{"max", 0}, {"most_recent", 1}}};
}
RecipeOption flag(const char* name, double RecipeOptions::*member) {
  return {name, member, {}, true};
}

// keys_of() is the lists of the forward pass, in the object `forward`, and of
// the backward pass.
std::vector<StateKey> keys_of(
    const std::string& forward, const std::string& backward,
    const std::vector<std::pair<const char*, StateField>>& lists) {
  std::vector<StateKey> keys;
  for (const bool is_backward : {false, true}) {
    for (const auto& [name, field] : lists) {
      keys.push_back({"/" + (is_backward ? backward : forward) + "/" + name,
                      is_backward, field});
    }
  }
  return keys;
}

RecipeOptions with(Formats formats, double history_length, bool most_recent) {
  RecipeOptions options;
  options.formats = formats;
  options.history_length = history_length;
  options.most_recent = most_recent ? 1 : 0;
  return options;
}

}  // namespace

std::vector<Recipe> delayed_recipes() {
  const std::vector<Word> formats = {{"E4M3", kE4M3}, {"HYBRID", kHybrid}};
  const std::vector<StateKey> te = {
      {"/recipe", false, StateField::recipe, "DelayedScaling"},
      {"/scale_fwd", false, StateField::scale},
      {"/amax_history_fwd", false, StateField::by_slot},
      {"/scale_bwd", true, StateField::scale},
      {"/amax_history_bwd", true, StateField::by_slot}};
  return {
      // fused = false is NVTE_UNFUSED_FP8_UPDATE=1.
      {"te.DelayedScaling",
       nullptr,
       nullptr,
       update_te,
       nullptr,
       with(kHybrid, 1024, false),
       {margin("margin"),
        {"fp8_format", &RecipeOptions::formats, formats},
        window("amax_history_len"),
        algorithm("amax_compute_algo"),
        flag("reduce_amax", &RecipeOptions::reduces),
        flag("fused", &RecipeOptions::fused)},
       te,
       true},
      // The defaults of Megatron-LM's command line; it has none for the format.
      {"megatron.delayed",
       nullptr,
       nullptr,
       update_te,
       nullptr,
       with(kHybrid, 1, true),
       {margin("fp8_margin"),
        {"fp8_format", &RecipeOptions::formats, formats},
        window("fp8_amax_history_len"),
        algorithm("fp8_amax_compute_algo")},
       te,
       true},
      // Of FP8Linear: inputs in e4m3, gradients in e5m2, a window of 16.
      {"msamp",
       msamp_scale,
       is_msamp_in_time,
       update_msamp,
       nullptr,
       with(kHybrid, 16, false),
       {{"qtype",
         &RecipeOptions::formats,
         {{"kfloat8_e4m3", kE4M3},
          {"kfloat8_e5m2", kE5M2},
          {"kfloat16", kHalf},
          {"hybrid", kHybrid}}},
        window("window_size"),
        flag("in_time_scaling", &RecipeOptions::in_time)},
       keys_of("input", "ograd",
               {{"scales", StateField::scale},
                {"scales_inv", StateField::reciprocal},
                {"amaxs", StateField::by_tensor},
                {"amax_counters", StateField::filled}}),
       true,
       true,
       true},
      {"mindspeed.delayed",
       mindspeed_scale,
       is_first,
       update_mindspeed,
       nullptr,
       with(kHybrid, 1, true),
       {margin("fp8_margin"),
        {"fp8_format",
         &RecipeOptions::formats,
         {{"e4m3", kE4M3}, {"hybrid", kHybrid}, {"hif8", kHiFloat8}}},
        window("fp8_amax_history_len"),
        algorithm("fp8_amax_compute_algo"),
        {"fp8_interval",
         &RecipeOptions::interval,
         {},
         false,
         true,
         1,
         kMaxHistory}},
       keys_of("inputs", "grads",
               {{"scale", StateField::scale_inv},
                {"amax_history", StateField::by_tensor},
                {"amax_history_current_len", StateField::filled},
                {"current_interval", StateField::waiting}}),
       false,
       false,
       true}};
}

}  // namespace swamp::scaler
