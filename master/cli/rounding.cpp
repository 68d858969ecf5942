#include "master/cli/rounding.h"

#include "swamp/float_formats.h"

namespace swamp::cli {
namespace {

struct Float16Rounding {
  float operator()(float value) const noexcept {
    return float16_to_float(float16_from_float(value));
  }
};

struct BFloat16Rounding {
  float operator()(float value) const noexcept {
    return bfloat16_to_float(bfloat16_from_float(value));
  }
};

template <typename Rounding>
std::uint64_t round_all(Rounding rounding, std::vector<float>& values) {
  std::uint64_t lost = 0;
  for (float& value : values) {
    const float rounded = rounding(value);
    lost += value != 0.0f && rounded == 0.0f ? 1 : 0;
    value = rounded;
  }
  return lost;
}

}  // namespace

std::uint64_t round_gradient(ScalarType dtype, std::vector<float>& values) {
  if (dtype == kFloat16) return round_all(Float16Rounding(), values);
  if (dtype == kBFloat16) return round_all(BFloat16Rounding(), values);
  return 0;
}

void round_values(ScalarType dtype, std::vector<float>& values) {
  round_gradient(dtype, values);
}

}  // namespace swamp::cli
