/// @file
/// Loss scalers: one engine, and the rules of thirty systems by name.
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
/// a word, or a list of integers. Integer and real are kept apart, because some
/// of the originals refuse one of them.
using ScalerValue = std::variant<std::monostate, bool, std::int64_t, double,
                                 std::string, std::vector<std::int64_t>>;

/// ScalerOptions are the constructor arguments of the original by their names;
/// one that is left out has the original's default.
using ScalerOptions = std::map<std::string, ScalerValue>;

/// scaler_options_from_json() reads a JSON object of numbers, null, booleans,
/// strings and lists of integers. "inf", "-inf" and "nan" are numbers.
///
/// @param json the text
/// @throws Error SWAMP_INVALID_ARGUMENT that says what was found
SWAMP_API ScalerOptions scaler_options_from_json(const std::string& json);

/// ScalerError is what the original would have raised: its constructor for bad
/// options, or its update, as fairseq's at the smallest loss scale. what()
/// names the scaler and contains the original's text.
class SWAMP_API ScalerError : public Error {
 public:
  /// @param scaler the name of the scaler
  /// @param type the name of the original's exception
  /// @param message the original's text; may be empty (a bare assert)
  /// @param detail the option and its value; may be empty
  ScalerError(const std::string& scaler, const std::string& type,
              const std::string& message, const std::string& detail = "");

  /// The name of the original's exception, as "AssertionError".
  const std::string& type() const noexcept { return type_; }
  /// The original's text.
  const std::string& message() const noexcept { return message_; }

 private:
  std::string type_;
  std::string message_;
};

/// ScalerStep says what an update did.
struct ScalerStep {
  bool found_inf = false;  ///< found_inf was not 0
  bool skipped = false;    ///< the optimizer's step is to be skipped
  double old_scale = 0.0;  ///< with which this step's loss was scaled
  double new_scale = 0.0;  ///< for the next step
  std::string warning;     ///< of the policy "warn" of swamp's own; else ""
};

/// ScalerPolicy is what swamp's own scaler does when an overflow comes at
/// min_scale, or is the max_overflows-th in a row.
enum class ScalerPolicy {
  clamp,  ///< stays at min_scale and goes on
  warn,   ///< the same, with ScalerStep::warning
  error   ///< update() throws ScalerError and changes nothing
};

/// When a tolerated overflow of swamp's own scaler is forgiven.
enum class ScalerRefill {
  growth,  ///< when the scale grows, as Megatron
  clean    ///< by any clean step, as NeMo
};

/// LossScalerOptions are the options of swamp's own scaler, "swamp.LossScaler".
/// In a ScalerOptions they have the same names, the enums as words.
struct LossScalerOptions {
  double init_scale = 65536.0;          ///< in [min_scale, max_scale]
  double growth_factor = 2.0;           ///< above 1, finite
  double backoff_factor = 0.5;          ///< between 0 and 1
  std::int64_t growth_interval = 2000;  ///< clean steps in a row; at least 1
  double min_scale = 0.0;               ///< 0: none
  double max_scale = 0.0;               ///< 0: none
  /// The scale does not grow where it would become infinite.
  bool stop_before_inf = true;
  /// The overflow that backs off: 1 is every one; at least 1.
  std::int64_t hysteresis = 1;
  ScalerRefill hysteresis_refill = ScalerRefill::growth;  ///< of hysteresis
  /// Growth intervals in rising order, which then count instead of
  /// growth_interval: three growths without an overflow between them move to
  /// the next, three overflows without a growth to the one before. Empty: none.
  std::vector<std::int64_t> window_list;
  std::int64_t max_overflows = 0;             ///< in a row; 0: any number
  ScalerPolicy policy = ScalerPolicy::clamp;  ///< at the floor
};

/// LossScaler is the scale of the loss and the rule that moves it. Not for
/// several threads at once.
class SWAMP_API LossScaler {
 public:
  /// swamp's own scaler.
  ///
  /// @param options all of it
  /// @throws Error SWAMP_INVALID_ARGUMENT that names option and value
  explicit LossScaler(const LossScalerOptions& options = {});
  /// The state goes with it; what is left can only be destroyed.
  LossScaler(LossScaler&& other) noexcept;
  /// As the constructor.
  LossScaler& operator=(LossScaler&& other) noexcept;
  ~LossScaler();

  /// from_name() makes a scaler that moves as the original of that name, bit
  /// for bit: "megatron.DynamicGradScaler", "torch.amp.GradScaler", ... (see
  /// names()).
  ///
  /// @param name of the scaler
  /// @param options constructor arguments by the original's names
  /// @throws Error SWAMP_INVALID_ARGUMENT for an unknown name or option (the
  ///   text lists the good ones); ScalerError for what the original refuses
  static LossScaler from_name(const std::string& name,
                              const ScalerOptions& options = {});

  /// names() are all names, in the order of the alphabet.
  static std::vector<std::string> names();

  /// The name that from_name() takes.
  const std::string& name() const noexcept;

  /// scale() multiplies the loss. A float32 widened, but for the systems that
  /// keep a Python float.
  double scale() const noexcept;

  /// inv_scale() is 1 / scale in double, rounded to float once: for
  /// amp_foreach_non_finite_check_and_unscale_().
  float inv_scale() const noexcept;

  /// update() moves the scale after a step.
  ///
  /// @param found_inf as the unscale (or the all-reduce after it) has left it;
  ///   some originals do not take every number but 0 for an overflow
  /// @return what was done
  /// @throws ScalerError where the original raises; the state is then the one
  ///   that the original's exception leaves behind
  ScalerStep update(float found_inf);

  /// tracker_names() names the counters beside the scale.
  std::vector<std::string> tracker_names() const;

  /// trackers() are their values, in the same order: all integers, but for
  /// metaseq's scale_window.
  std::vector<double> trackers() const;

  /// Whether a tracker is an integer in the original.
  ///
  /// @param index below tracker_names().size()
  bool tracker_is_integer(std::size_t index) const;

  /// state_dict() is one JSON object with the original's keys and values; what
  /// the original forgets is in the object "swamp", beside its version.
  std::string state_dict() const;

  /// load_state_dict() takes what state_dict() gave, or the original's own
  /// checkpoint as JSON; then what the original forgets is as the original
  /// leaves it. Floats may be C99 hex strings.
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
