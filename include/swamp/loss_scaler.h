/// @file
/// Loss scalers: swamp's own and 34 of existing systems, selected by name.
#ifndef SWAMP_LOSS_SCALER_H_
#define SWAMP_LOSS_SCALER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "swamp/error.h"
#include "swamp/export.h"

namespace swamp {

/// ScalerValue is the value of one option: null, a boolean, an integer, a real,
/// a string, or a list of integers. Integer and real are different types,
/// because some of the originals refuse one of them.
using ScalerValue = std::variant<std::monostate, bool, std::int64_t, double,
                                 std::string, std::vector<std::int64_t>>;

/// ScalerOptions are the constructor arguments of the original by their names.
/// Omitted arguments have the original's defaults.
using ScalerOptions = std::map<std::string, ScalerValue>;

/// scaler_options_from_json() reads a JSON object of numbers, null, booleans,
/// strings and lists of integers. "inf", "-inf" and "nan" are numbers.
///
/// @param json the text
/// @throws Error SWAMP_INVALID_ARGUMENT that names what was found
SWAMP_API ScalerOptions scaler_options_from_json(const std::string& json);

/// ScalerError is an exception that the original would have raised: in its
/// constructor for bad options, or in its update, for example fairseq's at the
/// smallest loss scale. what() names the scaler and contains the original's
/// text.
class SWAMP_API ScalerError : public Error {
 public:
  /// @param scaler the name of the scaler
  /// @param type the name of the original's exception
  /// @param message the original's text; may be empty (a bare assert)
  /// @param detail the option and its value; may be empty
  ScalerError(const std::string& scaler, const std::string& type,
              const std::string& message, const std::string& detail = "");

  /// The name of the original's exception, for example "AssertionError".
  const std::string& type() const noexcept { return type_; }
  /// The original's text.
  const std::string& message() const noexcept { return message_; }

 private:
  std::string type_;
  std::string message_;
};

/// ScalerStep is the result of an update.
struct ScalerStep {
  bool found_inf = false;  ///< found_inf was not 0
  bool skipped = false;    ///< the optimizer's step is to be skipped
  double old_scale = 0.0;  ///< of this step's loss
  double new_scale = 0.0;  ///< for the next step
  std::string warning;     ///< of swamp.LossScaler, policy "warn"; else ""
};

/// ScalerPolicy is what swamp's own scaler does at an overflow with the scale
/// at min_scale, or at the max_overflows-th overflow in a row.
enum class ScalerPolicy {
  clamp,  ///< keeps min_scale and continues
  warn,   ///< the same, with ScalerStep::warning
  error   ///< update() throws ScalerError and changes nothing
};

/// ScalerRefill is when swamp's own scaler resets the overflows that hysteresis
/// tolerates.
enum class ScalerRefill {
  growth,  ///< when the scale grows, as in Megatron
  clean    ///< at any clean step, as in NeMo
};

/// LossScalerOptions are the options of swamp's own scaler, "swamp.LossScaler".
/// In ScalerOptions they have the same names, and enums are strings.
struct LossScalerOptions {
  double init_scale = 65536.0;          ///< in [min_scale, max_scale]
  double growth_factor = 2.0;           ///< above 1, finite
  double backoff_factor = 0.5;          ///< between 0 and 1
  std::int64_t growth_interval = 2000;  ///< clean steps in a row; at least 1
  double min_scale = 0.0;               ///< 0: none
  double max_scale = 0.0;               ///< 0: none
  /// The scale does not grow if it would become infinite.
  bool stop_before_inf = true;
  /// The scale decreases at this overflow; 1: at every one. At least 1.
  std::int64_t hysteresis = 1;
  ScalerRefill hysteresis_refill = ScalerRefill::growth;  ///< resets it
  /// Growth intervals in rising order, used instead of growth_interval: three
  /// growths without an overflow between them select the next, three overflows
  /// without a growth the previous one. Empty: growth_interval is used.
  std::vector<std::int64_t> window_list;
  std::int64_t max_overflows = 0;             ///< in a row; 0: any number
  ScalerPolicy policy = ScalerPolicy::clamp;  ///< at min_scale
};

/// LossScaler is the scale of the loss and the rule that updates it. Only one
/// thread at a time may use it.
class SWAMP_API LossScaler {
 public:
  /// swamp's own scaler.
  ///
  /// @param options numbers and rules
  /// @throws Error SWAMP_INVALID_ARGUMENT that names option and value
  explicit LossScaler(const LossScalerOptions& options = {});
  /// Moves the state; `other` can then only be destroyed or assigned.
  LossScaler(LossScaler&& other) noexcept;
  /// As the constructor.
  LossScaler& operator=(LossScaler&& other) noexcept;
  ~LossScaler();

  /// from_name() makes a scaler with the rule of a known system, bit for bit,
  /// for example "megatron.DynamicGradScaler" or "torch.amp.GradScaler"; see
  /// names().
  ///
  /// @param name of the scaler
  /// @param options constructor arguments by the original's names
  /// @throws Error SWAMP_INVALID_ARGUMENT for an unknown name or option (the
  ///   text lists the valid ones), an option that is nan, or a first scale that
  ///   is infinite; ScalerError for what the original refuses
  static LossScaler from_name(const std::string& name,
                              const ScalerOptions& options = {});

  /// names() returns all names in alphabetical order.
  static std::vector<std::string> names();

  /// The name as from_name() takes it.
  const std::string& name() const noexcept;

  /// scale() returns the factor of the loss: a widened float32, except for
  /// systems that use a Python float.
  double scale() const noexcept;

  /// inv_scale() returns 1 / scale, computed in double and rounded to float
  /// once, for amp_foreach_non_finite_check_and_unscale_().
  float inv_scale() const noexcept;

  /// update() updates the scale after a step.
  ///
  /// @param found_inf as set by the unscale, or by the all-reduce after it;
  ///   some originals treat only certain values as an overflow
  /// @throws ScalerError if the original raises an exception; the state is then
  ///   that of the original after the exception
  ScalerStep update(float found_inf);

  /// tracker_names() returns the names of the state besides the scale.
  std::vector<std::string> tracker_names() const;

  /// trackers() returns their values in the same order. All are integers except
  /// metaseq's scale_window.
  std::vector<double> trackers() const;

  /// Returns whether a tracker is an integer in the original.
  ///
  /// @param index below tracker_names().size()
  bool tracker_is_integer(std::size_t index) const;

  /// state_dict() returns one JSON object with the original's keys and values;
  /// state that the original does not save is in the object "swamp", with its
  /// version.
  std::string state_dict() const;

  /// load_state_dict() loads the result of state_dict(), or the original's own
  /// checkpoint as JSON; state that the original does not save is then set as
  /// the original sets it. Floats may be strings of C99 hexadecimal numbers.
  ///
  /// @param json the text
  /// @throws Error SWAMP_INVALID_ARGUMENT that names the key; nothing is
  ///   changed then
  void load_state_dict(const std::string& json);

  /// For swamp's own sources.
  struct Impl;
  /// For swamp's own sources.
  Impl& impl() noexcept { return *impl_; }

 private:
  explicit LossScaler(std::unique_ptr<Impl> impl) noexcept;

  std::unique_ptr<Impl> impl_;
};

}  // namespace swamp

#endif  // SWAMP_LOSS_SCALER_H_
