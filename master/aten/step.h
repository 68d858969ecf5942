// A step of an optimizer on lists of at::Tensors.
#ifndef SWAMP_MASTER_ATEN_STEP_H_
#define SWAMP_MASTER_ATEN_STEP_H_

#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "swamp/foreach.h"

namespace swamp::aten {

// StepStorage is how Adam's weights and moments are stored, if not as float32:
// see AdamStep.
struct StepStorage {
  bool compact = false;  // any of what follows, or rounded stochastically
  bool kahan = false;    // the last list is compensations
  // The last state is the absmax of blocks, whose elements are counted by
  // index, not by memory: so a change of the strides changes no block.
  bool is_8_bit = false;
  bool is_float8 = false;  // the codes are float8_e4m3fn
};

// StepLists is what a step reads and writes, in the order of its names.
inline constexpr std::size_t kStepListCount = 6;
inline constexpr std::size_t kStepGrads = 1;   // the only list not written
inline constexpr std::size_t kStepStates = 2;  // up to three
inline constexpr std::size_t kStepAbsmax = 4;  // of 8-bit moments
inline constexpr std::size_t kStepOutput = 5;

// is_absmax() returns whether tensors of the list have two floats for each
// block of a parameter, not the parameter's shape. absmax_count() returns how
// many floats a parameter needs.
inline bool is_absmax(const StepStorage& storage, std::size_t list) {
  return storage.is_8_bit && list == kStepAbsmax;
}
inline std::int64_t absmax_count(std::int64_t elements) {
  return 2 * ((elements + kMomentBlock - 1) / kMomentBlock);
}

struct StepLists {
  std::array<at::TensorList, kStepListCount> all;
  std::array<const char*, kStepListCount> names;
  std::size_t state_count;
  StepStorage storage = {};
  const std::uint64_t* ids = nullptr;             // AdamStep::ids, if `compact`
  const std::uint64_t* first_elements = nullptr;  // AdamStep's, if `compact`

  at::TensorList params() const noexcept { return all[0]; }
  at::TensorList grads() const noexcept { return all[kStepGrads]; }

  // only() returns the tensors of one parameter.
  StepLists only(std::size_t index) const;
};

// adam_lists() and sgd_lists() name the lists; the caller sets them.
StepLists adam_lists(bool amsgrad);
StepLists compact_adam_lists(const StepStorage& storage);
StepLists sgd_lists(bool momentum);

// require_step_lists() throws c10::Error for lists that a step cannot take.
void require_step_lists(const StepLists& lists);

// next_step() returns the number of the next step, from a tensor that counts
// those taken. Throws c10::Error if it is not a whole number below 2^53 - 1.
std::int64_t next_step(const at::Tensor& taken);

// take_step() validates the lists, sets those of AdamStep and its ids, and
// takes the step. `grad_norm` is the norm of the unscaled gradients; if it is
// undefined and max_norm is above 0, it is computed. Throws c10::Error before
// anything is written.
void take_step(const StepLists& lists, OptimizerStep step, float inv_scale,
               const at::Tensor& grad_norm, double max_norm,
               ClipRule clip_rule = ClipRule::megatron);

// count_writes() is count_write() for tensors that are written once.
void count_writes(at::TensorList tensors);

// register_steps() defines the operators of step.cpp.
void register_steps(torch::Library& library);

// register_step_lists() defines the class torch.classes.swamp.StepLists.
void register_step_lists(torch::Library& library);

}  // namespace swamp::aten

#endif  // SWAMP_MASTER_ATEN_STEP_H_
