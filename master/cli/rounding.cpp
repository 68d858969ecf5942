#include "master/cli/rounding.h"

#include "swamp/float_formats.h"

namespace swamp::cli {
namespace {

struct Float16Format {
  static std::uint16_t narrow(float value) noexcept {
    return float16_from_float(value);
  }
  static float widen(std::uint16_t bits) noexcept {
    return float16_to_float(bits);
  }
};

struct BFloat16Format {
  static std::uint16_t narrow(float value) noexcept {
    return bfloat16_from_float(value);
  }
  static float widen(std::uint16_t bits) noexcept {
    return bfloat16_to_float(bits);
  }
};

// is_lost() says whether a value that was not 0 has become one.
bool is_lost(float value, std::uint16_t bits) noexcept {
  return value != 0.0f && (bits & 0x7fffu) == 0;
}

template <class Format>
std::uint64_t round_all(Format /*format*/, std::vector<float>& values) {
  std::uint64_t lost = 0;
  for (float& value : values) {
    const std::uint16_t bits = Format::narrow(value);
    lost += is_lost(value, bits) ? 1 : 0;
    value = Format::widen(bits);
  }
  return lost;
}

template <class Format>
std::uint64_t narrow_all(Format /*format*/, const std::vector<float>& values,
                         std::vector<std::uint16_t>& bits) {
  bits.resize(values.size());
  std::uint64_t lost = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    bits[i] = Format::narrow(values[i]);
    lost += is_lost(values[i], bits[i]) ? 1 : 0;
  }
  return lost;
}

template <class Format>
void widen_all(Format /*format*/, const std::vector<std::uint16_t>& bits,
               std::vector<float>& values) {
  values.resize(bits.size());
  for (std::size_t i = 0; i < bits.size(); ++i) {
    values[i] = Format::widen(bits[i]);
  }
}

}  // namespace

std::uint64_t round_values(ScalarType dtype, std::vector<float>& values) {
  if (dtype == kFloat16) return round_all(Float16Format(), values);
  if (dtype == kBFloat16) return round_all(BFloat16Format(), values);
  return 0;
}

std::uint64_t narrow_values(ScalarType dtype, const std::vector<float>& values,
                            std::vector<std::uint16_t>& bits) {
  if (dtype == kFloat16) return narrow_all(Float16Format(), values, bits);
  return narrow_all(BFloat16Format(), values, bits);
}

void widen_values(ScalarType dtype, const std::vector<std::uint16_t>& bits,
                  std::vector<float>& values) {
  if (dtype == kFloat16) return widen_all(Float16Format(), bits, values);
  return widen_all(BFloat16Format(), bits, values);
}

}  // namespace swamp::cli
