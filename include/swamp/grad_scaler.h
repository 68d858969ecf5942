/// @file
/// GradScaler: the protocol of torch.amp.GradScaler for C++.
#ifndef SWAMP_GRAD_SCALER_H_
#define SWAMP_GRAD_SCALER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "swamp/amp.h"
#include "swamp/export.h"
#include "swamp/loss_scaler.h"
#include "swamp/machine.h"
#include "swamp/optimizer.h"
#include "swamp/tensor.h"

namespace swamp {

/// GradScalerOptions are the arguments of torch.amp.GradScaler.
struct GradScalerOptions {
  double init_scale = 65536.0;          ///< finite; else as in PyTorch: any
  double growth_factor = 2.0;           ///< above 1
  double backoff_factor = 0.5;          ///< below 1
  std::int64_t growth_interval = 2000;  ///< clean updates in a row
  bool enabled = true;                  ///< false: every call is a no-op
};

/// GradScalerStep is the report of one GradScaler::step().
struct GradScalerStep {
  bool found_inf = false;     ///< on this rank or, after the reduction, any
  bool skipped = false;       ///< the optimizer's step() was not called
  double scale_before = 1.0;  ///< of these gradients
  /// The scale that update() would set if it were called next; scale_before if
  /// it would throw. Only update() changes the scale.
  double scale_after = 1.0;
  /// Position of inf/nan on this rank, as indices into gradients().
  OverflowReport overflow;
  /// Name of the first gradient that held any; "" if there is no name.
  std::string gradient_name;
};

/// GradScaler is torch.amp.GradScaler, call for call:
///
///     float scaled = scaler.scale(loss);   // then the backward pass
///     scaler.unscale_(optimizer);          // optional, e.g. before clipping
///     scaler.step(optimizer);              // skipped if inf/nan was found
///     scaler.update();                     // once, after all optimizers
///
/// Calls in the wrong order throw ScalerError with PyTorch's exception and
/// words. Gradients may be accumulated over several scale() before one
/// unscale_() or step(). Several losses and optimizers share one scale: only
/// the optimizer that overflowed is skipped, and the scale backs off once.
///
/// One thread at a time may make the calls that change something: scale(),
/// scale_(), unscale_(), step(), update(), load_state_dict(), the setters.
/// The const ones may be called from any thread at the same time, also while a
/// step runs and from within the optimizer's step(): a lock is held only while
/// numbers are copied.
class SWAMP_API GradScaler {
 public:
  /// The rule and the checks of torch.amp.GradScaler.
  ///
  /// @param options all of it; not checked when not enabled
  /// @throws ScalerError as PyTorch: AssertionError for a growth_factor not
  ///   above 1 or a backoff_factor not below 1; Error for an init_scale that is
  ///   nan or infinite, which PyTorch accepts
  explicit GradScaler(const GradScalerOptions& options = {});

  /// The same protocol with another rule.
  ///
  /// @param rule updates the scale and decides whether an overflow skips a step
  /// @param enabled as GradScalerOptions::enabled
  explicit GradScaler(LossScaler rule, bool enabled = true);

  /// Moves the state; `other` can then only be destroyed or assigned.
  GradScaler(GradScaler&& other) noexcept;
  /// As the constructor.
  GradScaler& operator=(GradScaler&& other) noexcept;
  ~GradScaler();

  /// scale() returns the loss times the scale, in the type of the loss.
  ///
  /// @param loss of float32
  /// @throws ScalerError RuntimeError if init_scale overflows float32
  float scale(float loss);
  /// As for float.
  double scale(double loss);

  /// scale_() multiplies every element of every tensor by the scale, in place;
  /// PyTorch's scale() makes new tensors of the same bits.
  ///
  /// @param outputs as for amp_foreach_non_finite_check_and_unscale_()
  /// @throws Error as that; ScalerError as scale()
  void scale_(TensorList outputs);

  /// unscale_() multiplies the optimizer's gradients by 1 / scale (the double
  /// reciprocal, rounded to float32 once) and notes whether any was inf or nan.
  /// At most once between two update().
  ///
  /// @param optimizer one gradient list, one call of the operator
  /// @throws ScalerError in the wrong order (RuntimeError, AssertionError), or
  ///   for float16 gradients (ValueError; see allow_fp16()); Error as
  ///   amp_foreach_non_finite_check_and_unscale_(). The gradients are unchanged
  ///   then. Exceptions of the reduction pass through; the gradients are
  ///   unscaled by then, and step() throws because nothing was recorded.
  void unscale_(Optimizer& optimizer);

  /// step() calls unscale_() if it was not called, then the optimizer's step()
  /// unless inf or nan was found. If that throws, step() may be called again.
  ///
  /// @return the report; also kept for last_step()
  /// @throws ScalerError as unscale_(); AssertionError if the optimizer has no
  ///   gradients
  GradScalerStep step(Optimizer& optimizer);

  /// update() updates the scale from the results of all optimizers since the
  /// last update(), and begins a new iteration.
  ///
  /// @return the scale before and after
  /// @throws ScalerError AssertionError if nothing was unscaled, and as the
  /// rule
  ScalerStep update();

  /// update() sets the scale, rounded to float32 if the rule uses float32, and
  /// begins a new iteration. Counters do not change.
  ///
  /// @param new_scale only checked for nan and for overflow of float32
  /// @throws ScalerError AssertionError before the first scale(), RuntimeError
  ///   if it overflows float32; Error if it is nan
  ScalerStep update(double new_scale);

  /// get_scale() returns the scale: init_scale before the first scale(), 1 if
  /// not enabled.
  double get_scale() const;
  /// PyTorch's _get_growth_tracker(): clean updates in a row; 0 if not enabled.
  ///
  /// @throws Error SWAMP_UNSUPPORTED if the rule has no such counter
  std::int64_t get_growth_tracker() const;
  /// Whether the scaler does anything.
  bool is_enabled() const noexcept;

  /// get_growth_factor() and the next five are plain reads and writes.
  ///
  /// @throws ScalerError AttributeError when not enabled, as PyTorch; Error
  ///   SWAMP_UNSUPPORTED if the rule's original cannot change this number, or
  ///   SWAMP_INVALID_ARGUMENT for a nan
  double get_growth_factor() const;
  /// As get_growth_factor().
  double get_backoff_factor() const;
  /// As get_growth_factor().
  std::int64_t get_growth_interval() const;
  /// As get_growth_factor(), but does nothing when not enabled.
  ///
  /// @param new_factor not checked, as in PyTorch
  void set_growth_factor(double new_factor);
  /// As set_growth_factor().
  void set_backoff_factor(double new_factor);
  /// As set_growth_factor(). If it is below the counter, the scale cannot grow
  /// before the next overflow.
  void set_growth_interval(std::int64_t new_interval);

  /// last_step() returns the report of the last step() that returned.
  GradScalerStep last_step() const;

  /// state_dict() returns one JSON object with PyTorch's keys (scale,
  /// growth_factor, backoff_factor, growth_interval, _growth_tracker; another
  /// rule's own), and an object "swamp"; "{}" when not enabled.
  std::string state_dict() const;
  /// load_state_dict() loads the result of state_dict(), or PyTorch's as JSON.
  ///
  /// @param json the text; ignored if not enabled
  /// @throws ScalerError RuntimeError for "{}"; Error SWAMP_INVALID_ARGUMENT
  ///   that names the key; nothing is changed then
  void load_state_dict(const std::string& json);

  /// Not in PyTorch: allows unscale_() to unscale float16 gradients in place.
  ///
  /// @param allow initially false: unscale_() throws ValueError
  void set_allow_fp16(bool allow);

  /// Not in PyTorch: sets how ranks agree on found_inf. unscale_() calls it
  /// with this rank's value (0 or 1), even if the optimizer has no gradients
  /// here, and uses its result: non-zero or nan is an overflow. The result must
  /// be the same on all ranks, as that of MPI_Allreduce with MPI_MAX.
  ///
  /// @param reduction empty: this rank alone
  void set_found_inf_reduction(std::function<float(float)> reduction);

  /// Not in PyTorch: sets the machine of scale_() and unscale_().
  ///
  /// @param machine must outlive this; null: Machine::default_machine()
  void set_machine(Machine* machine);

  /// For swamp's own sources.
  struct Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace swamp

#endif  // SWAMP_GRAD_SCALER_H_
