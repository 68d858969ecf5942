/// @file
/// MixedPrecisionOptimizer: everything between backward and the next forward,
/// as Megatron-LM's Float16OptimizerWithFloat16Params
/// (megatron/core/optimizer/optimizer.py).
#ifndef SWAMP_MIXED_PRECISION_H_
#define SWAMP_MIXED_PRECISION_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "swamp/amp.h"
#include "swamp/communicator.h"
#include "swamp/export.h"
#include "swamp/foreach.h"
#include "swamp/loss_scaler.h"
#include "swamp/tensor.h"

namespace swamp {

/// ModelParameter is one parameter of the model. Its arrays belong to the
/// caller and must not move during the optimizer's lifetime.
struct ModelParameter {
  std::string name;  ///< for reports and state dicts; unique
  /// The weights that the model computes with, written by every step: float16
  /// or bfloat16 (the optimizer then keeps a float32 master copy), or float32.
  Tensor data;
  /// As many elements; float16, bfloat16 or float32, read by every step. If the
  /// step is not fused, a float32 gradient is Megatron's main_grad: without
  /// accumulation it is unscaled and clipped in place.
  Tensor gradient;
};

/// ParameterGroup is a group of parameters that share options, as in
/// torch.optim.
struct ParameterGroup {
  std::vector<ModelParameter> parameters;  ///< may be empty
  std::optional<double> lr;                ///< instead of the optimizer's
  std::optional<double> weight_decay;      ///< instead of the optimizer's
};

/// How the gradients of several micro batches, or ranks, are combined.
enum class GradientReduction {
  mean,  ///< sum divided by the number
  sum    ///< sum
};

/// StepObserver is called for Megatron's timers and for the events between
/// them, in order, on the thread that steps. Its functions must not throw.
class SWAMP_API StepObserver {
 public:
  virtual ~StepObserver();
  /// A timer starts.
  ///
  /// @param timer Megatron's name, for example "optimizer-inner-step"
  /// @param log_level Megatron's
  virtual void start(const char* timer, int log_level) = 0;
  /// A timer stops.
  ///
  /// @param timer as in start()
  virtual void stop(const char* timer) = 0;
  /// An event happened.
  ///
  /// @param what for example "grad_scaler.update(False)"
  virtual void event(const std::string& what);
};

/// MixedPrecisionOptions has Megatron's names and defaults.
struct MixedPrecisionOptions {
  bool fp16 = false;  ///< the 16-bit parameters are float16
  bool bf16 = false;  ///< the 16-bit parameters are bfloat16
  /// A constant loss scale; 0 is unset, as in Megatron. If unset, fp16 uses the
  /// dynamic scaler of the next four options, and bf16 no scaler.
  double loss_scale = 0;
  double initial_loss_scale = 4294967296.0;  ///< 2^32
  double min_loss_scale = 1.0;               ///< of the dynamic scaler
  double loss_scale_window = 1000;           ///< growth interval
  std::int64_t hysteresis = 2;               ///< of the dynamic scaler
  /// Another rule, by a name of LossScaler::names(), instead of the above. It
  /// also decides which overflows skip the step.
  std::string scaler;
  ScalerOptions scaler_options;  ///< of `scaler`

  double clip_grad = 1.0;  ///< largest global 2-norm; 0: no clipping
  /// With mindspore, a step that overflows also has a grad_norm, because
  /// MindSpore's pipeline clips before it checks.
  ClipRule clip_rule = ClipRule::megatron;
  /// Also skip a step with a float16 gradient of +-65504, the largest number:
  /// hardware that saturates stores it in place of inf (Ascend's float status).
  /// It is a false alarm if the gradient has just this value, and an overflow
  /// of an intermediate result stays unseen. Reads float16 gradients once more.
  /// Needs a scaler and fp16.
  bool saturated_is_overflow = false;
  bool log_num_zeros_in_grad = false;  ///< count the zeros of the gradients
  /// The inner optimizer; AdamW unless set.
  std::variant<AdamOptions, SgdOptions> optimizer = AdamWOptions();

  /// Micro batches in a step. If above 1, call accumulate_gradients() after
  /// each backward.
  std::int64_t micro_batches = 1;
  GradientReduction reduction = GradientReduction::mean;  ///< of micro batches

  /// The ranks that step together. Each has its own parameters
  /// (model-parallel), or, with `shard`, all have the same. All options from
  /// fp16 to `reduction` must be the same on all ranks; without `shard`, except
  /// `optimizer`.
  Communicator* communicator = nullptr;  ///< null: alone
  /// ZeRO: every rank has the gradients of its own part of the batch and owns a
  /// shard of master weights and moments; all gather the weights.
  bool shard = false;
  /// With `shard`, the ranks that have the other parts of the model and the
  /// same part of the batch (Megatron's model-parallel group), beside the
  /// data-parallel ones of `communicator`: found_inf is the largest, norm and
  /// zeros are those of all parts. null: every rank has the whole model.
  Communicator* model_communicator = nullptr;

  /// Two passes instead of Megatron's six, with the same bits: one reads the
  /// gradients (inf, nan and norm), one does the rest, and no main gradients
  /// are kept. Counting zeros needs the six.
  bool fused = true;

  Machine* machine = nullptr;        ///< null: Machine::default_machine()
  StepObserver* observer = nullptr;  ///< of timers and events; may be null
};

/// StepResult is the result of a step: Megatron's (success, grad_norm,
/// num_zeros), and the reasons.
struct StepResult {
  /// False after an overflow: no weight or moment was changed. A few rules, for
  /// example DeepSpeed's static one, take the step nevertheless.
  bool success = false;
  /// Before clipping; 0 if clip_grad is 0; missing after an overflow, except
  /// with ClipRule::mindspore.
  std::optional<double> grad_norm;
  std::optional<std::uint64_t> num_zeros;  ///< 0 if not counted
  double loss_scale = 1;                   ///< of the step's loss
  double next_loss_scale = 1;              ///< for the next step
  /// Of this rank; with `shard`, of the shard that this rank owns: the
  /// gradients of all ranks, added. Indices are those of this rank's own
  /// gradients.
  OverflowReport overflow;
  /// The first parameter with inf or nan, or else with a saturated gradient; or
  /// "".
  std::string overflow_name;
  /// The first rank whose own gradient has inf or nan at overflow.index; -1
  /// without an overflow, or if only the sum of the ranks overflowed.
  int overflow_rank = -1;
  std::string warning;  ///< of the loss scaler; usually ""
};

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

/// MixedPrecisionOptimizer updates the weights of a model in mixed precision.
/// One thread at a time may call, except that any thread may call
/// get_loss_scale() while a step runs.
class SWAMP_API MixedPrecisionOptimizer {
 public:
  /// Copies the weights into float32 masters. The arrays of the parameters must
  /// not overlap; they, the communicator, the machine and the observer must
  /// outlive the optimizer.
  ///
  /// @param groups the model's parameters
  /// @param options all of it
  /// @throws Error SWAMP_INVALID_ARGUMENT that names option or parameter, value
  ///   and what was expected; ScalerError for what the scaler refuses;
  ///   SWAMP_OUT_OF_MEMORY. Nothing is written then.
  MixedPrecisionOptimizer(std::vector<ParameterGroup> groups,
                          const MixedPrecisionOptions& options);
  ~MixedPrecisionOptimizer();
  MixedPrecisionOptimizer(const MixedPrecisionOptimizer&) = delete;
  MixedPrecisionOptimizer& operator=(const MixedPrecisionOptimizer&) = delete;

  /// scale_loss() returns loss * get_loss_scale() in float32.
  ///
  /// @param loss of a micro batch
  float scale_loss(float loss) const noexcept;

  /// The loss scale: 1 without a scaler. Any thread.
  double get_loss_scale() const noexcept;

  /// The scaler; null without one. Not while a step runs.
  const LossScaler* loss_scaler() const noexcept;

  /// accumulate_gradients() adds the gradients of a micro batch to the main
  /// gradients, in float32.
  ///
  /// @throws Error SWAMP_INVALID_ARGUMENT if micro_batches is 1, or if that
  ///   many have been added since the last step
  void accumulate_gradients();

  /// step() computes the model's next weights from its gradients, in Megatron's
  /// order: copy to main, unscale and check, found_inf of all ranks, update of
  /// the scaler; then, unless there was an overflow, clip, count zeros, the
  /// inner step, copy to the model. With `shard` or other ranks it is
  /// collective.
  ///
  /// After an error the gradients cannot be used again: they may be unscaled
  /// already, and accumulated ones are lost.
  ///
  /// @throws Error SWAMP_INVALID_ARGUMENT if micro batches are missing; the
  ///   same on all ranks, before anything is changed, if they differ in an
  ///   option, in the number of steps or in the loss scale, with `shard` also
  ///   in parameters or learning rates; and as the communicator. ScalerError of
  ///   the scaler's policy, with no weight changed
  StepResult step();

  /// Number of steps taken, without the skipped ones.
  std::int64_t step_count() const noexcept;

  /// set_lr() changes the learning rate of a group, for schedules.
  ///
  /// @param group index in the constructor's groups
  /// @param lr at least 0
  void set_lr(std::size_t group, double lr);
  /// The learning rate of a group.
  ///
  /// @param group index in the constructor's groups
  double lr(std::size_t group) const;

  /// reload_model_params() copies the model's weights into the masters again,
  /// as Megatron does after loading a model without its optimizer.
  void reload_model_params();

  /// state_dict() is Megatron's: entries below "optimizer", "grad_scaler"
  /// (if there is a scaler) and "fp32_from_fp16_params"; see OptimizerState.
  /// With `shard` it is collective, refuses ranks that differ as step() does,
  /// and gives every rank the whole state.
  OptimizerState state_dict() const;

  /// load_state_dict() loads the result of state_dict(), on any number of
  /// ranks, and writes the masters into the model's 16-bit weights. Old names
  /// are read as in Megatron. With `shard` it is collective: if one rank
  /// refuses the dict, no rank loads it.
  ///
  /// @param state with the same parameters
  /// @return Megatron's warnings about old checkpoints; usually none
  /// @throws Error SWAMP_INVALID_ARGUMENT that names the key; nothing is
  ///   changed then
  std::vector<std::string> load_state_dict(const OptimizerState& state);

  /// For swamp's own sources.
  struct Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace swamp

#endif  // SWAMP_MIXED_PRECISION_H_
