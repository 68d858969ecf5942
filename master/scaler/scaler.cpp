#include "master/scaler/scaler.h"

#include <cmath>

#include "swamp/loss_scaler.h"

namespace swamp::scaler {

void round_scale(Scaler& scaler) {
  if (scaler.float_rule != FloatRule::d) {
    scaler.scale = to_float32(scaler.scale);
  }
}

double times(const Scaler& scaler, double factor) {
  switch (scaler.float_rule) {
    case FloatRule::a:
      return to_float32(scaler.scale * factor);
    case FloatRule::b:
    case FloatRule::c:
      return static_cast<double>(static_cast<float>(scaler.scale) *
                                 static_cast<float>(factor));
    case FloatRule::d:
      break;
  }
  return scaler.scale * factor;
}

double divided_by(const Scaler& scaler, double factor) {
  if (scaler.float_rule == FloatRule::d) {
    if (factor == 0.0) {
      raise(scaler, "ZeroDivisionError", "float division by zero");
    }
    return scaler.scale / factor;
  }
  const auto scale = static_cast<float>(scaler.scale);
  const auto divisor = static_cast<float>(factor);
  if (scaler.float_rule == FloatRule::c) {
    const float reciprocal = 1.0f / divisor;
    return static_cast<double>(scale * reciprocal);
  }
  return static_cast<double>(scale / divisor);
}

void grow(Scaler& scaler, double factor) {
  const double grown = times(scaler, factor);
  switch (scaler.guard) {
    case GrowthGuard::none:
      break;
    case GrowthGuard::finite:
      if (!std::isfinite(grown)) return;
      break;
    case GrowthGuard::below_3e38:
      if (!(scaler.scale < to_float32(3.4e38 / factor))) return;
      break;
  }
  scaler.scale = grown;
}

bool is_overflow(const Scaler& scaler, float found_inf) {
  switch (scaler.overflow_test) {
    case OverflowTest::non_zero:
      break;
    case OverflowTest::at_least_one:
      return found_inf >= 1.0f;
    case OverflowTest::equal_to_one:
      return found_inf == 1.0f;
  }
  return found_inf != 0.0f;  // nan counts as found
}

double modulo(const Scaler& scaler, double value, double divisor) {
  if (divisor == 0.0) {
    raise(scaler, "ZeroDivisionError", "integer modulo by zero");
  }
  return std::fmod(value, divisor);
}

void raise(const Scaler& scaler, const char* type, const std::string& message,
           const std::string& detail) {
  throw ScalerError(scaler.name, type, message, detail);
}

}  // namespace swamp::scaler
