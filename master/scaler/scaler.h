// What every loss scaler is made of: numbers from its options, and a state. A
// rule (rules_*.cpp) is a function that moves the state; a row of the table
// (presets_*.cpp) names a rule and where its numbers come from.
#ifndef SWAMP_MASTER_SCALER_SCALER_H_
#define SWAMP_MASTER_SCALER_SCALER_H_

#include <limits>
#include <string>
#include <vector>

namespace swamp::scaler {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

// FloatRule is how a system forms scale * factor. They differ for every factor
// that is not a power of two (loss_scalers.md, section 0).
enum class FloatRule {
  a,  // f32(double(scale) * double(factor)): torch's kernels
  b,  // f32(scale * f32(factor)): systems that hold the factor as float32
  c,  // b, but a decrease multiplies with f32(1 / f32(factor)): MindSpore cells
  d   // plain double, never rounded: Python floats on the host
};

// GrowthGuard is what keeps a scale from growing to infinity.
enum class GrowthGuard {
  none,
  finite,      // the grown scale must be finite
  below_3e38,  // scale < f32(3.4e38 / factor): Ascend's TensorFlow adapters
};

// OverflowTest is what a system takes for an overflow.
enum class OverflowTest { non_zero, at_least_one, equal_to_one };

// Scaler is the numbers and the state of one scaler. All are doubles, counts
// too: they are exact, a fractional interval stays one, and a table of options,
// trackers or checkpoint keys is a table of members.
struct Scaler {
  std::string name;

  // Traits of the system, from its row.
  FloatRule float_rule = FloatRule::b;
  GrowthGuard guard = GrowthGuard::none;
  OverflowTest overflow_test = OverflowTest::non_zero;

  // Numbers, from the options.
  double initial_scale = 65536.0;
  double growth_factor = 2.0;
  double backoff_factor = 0.5;
  double growth_interval = 2000.0;
  double min_scale = -kInfinity;
  double max_scale = kInfinity;
  double hysteresis = 1.0;
  double decrease_interval = 1.0;  // overflows before a decrease
  double tolerance = 0.0;
  double threshold = -kInfinity;
  double min_window = 0.0;
  double max_window = 0.0;
  double constant_scale = 0.0;  // 0: dynamic
  double dynamic = 1.0;
  double consecutive = 0.0;   // DeepSpeed's consecutive_hysteresis
  double raise_at_min = 0.0;  // DeepSpeed's raise_error_at_min_scale
  double refill_on_clean = 0.0;
  double policy = 0.0;  // a ScalerPolicy
  double max_overflows = 0.0;
  double skips = 1.0;    // an overflow skips the optimizer's step
  std::string min_text;  // min_scale as Python prints it
  std::vector<double> window_list;

  // State.
  double scale = 65536.0;
  double good_steps = 0.0;  // clean steps since the last change
  double bad_steps = 0.0;   // overflows since the last change
  double hysteresis_left = 1.0;
  double iteration = 0.0;
  double last_overflow = 0.0;
  double last_rescale = 0.0;
  double window = 0.0;  // where it moves
  double list_index = 0.0;
  double up_count = 0.0;
  double down_count = 0.0;
  std::string warning;  // of this update
};

inline double to_float32(double value) {
  return static_cast<double>(static_cast<float>(value));
}

// round_scale() makes the scale what the system can keep.
void round_scale(Scaler& scaler);

// times() is scale * factor in the float rule of the system.
double times(const Scaler& scaler, double factor);
// divided_by() is scale / factor, for the systems that divide.
double divided_by(const Scaler& scaler, double factor);
// grow() multiplies the scale, unless the guard forbids it.
void grow(Scaler& scaler, double factor);
bool is_overflow(const Scaler& scaler, float found_inf);

// modulo() is Python's, of numbers that are not negative.
double modulo(const Scaler& scaler, double value, double divisor);

// raise() throws the exception of the original.
[[noreturn]] void raise(const Scaler& scaler, const char* type,
                        const std::string& message,
                        const std::string& detail = "");

using Rule = void (*)(Scaler&, float found_inf);

// The rules, one function a family.
void update_constant(Scaler&, float);  // rules_torch.cpp
void update_torch(Scaler&, float);     // torch and its relatives
void update_nemo(Scaler&, float);      // torch + hysteresis
void update_megatron(Scaler&, float);  // rules_megatron.cpp
void update_colossalai(Scaler&, float);
void update_paddle(Scaler&, float);  // rules_tensorflow.cpp
void update_paddle_op(Scaler&, float);
void update_exponential(Scaler&, float);
void update_keras2(Scaler&, float);
void update_jmp(Scaler&, float);
void update_mindspore_cell(Scaler&, float);  // rules_mindspore.cpp
void update_mindspore_manager(Scaler&, float);
void update_mindformers(Scaler&, float);
void update_deepspeed(Scaler&, float);  // rules_host.cpp
void update_fp16_optimizer(Scaler&, float);
void update_apex_utils(Scaler&, float);
void update_apex_amp(Scaler&, float);
void update_bmtrain(Scaler&, float);
void update_fairseq(Scaler&, float);  // rules_fairseq.cpp
void update_metaseq(Scaler&, float);
void update_swamp(Scaler&, float);  // rules_swamp.cpp

}  // namespace swamp::scaler

#endif  // SWAMP_MASTER_SCALER_SCALER_H_
