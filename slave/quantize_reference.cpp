// The reference of slave/quantize.cpp: by the values of the codes, in double,
// without the bits of a format.
#include <algorithm>
#include <cmath>
#include <vector>

#include "slave/kernel_list.h"
#include "slave/reference.h"

namespace swamp::slave::reference {
namespace {

using namespace element;

// Number is a code without its sign, and its value.
struct Number {
  double value;
  std::uint32_t code;
};

// numbers_of() are those of a format in the order of their values, and the one
// that would be next.
std::vector<Number> numbers_of(const QuantizeArgs& args) {
  std::vector<Number> numbers;
  if (args.tapered != 0) {
    // dot: exponent bits and mantissa bits by the prefix of the code.
    numbers.push_back({0, 0});
    for (std::uint32_t c = 1; c < 8; ++c) {
      numbers.push_back({std::ldexp(1.0, static_cast<int>(c) - 23), c});
    }
    for (std::uint32_t c = 8; c < 0x80; ++c) {
      const int dot = c < 16 ? 0 : c < 32 ? 1 : static_cast<int>(c >> 5) + 1;
      const int mantissa_bits = dot < 3 ? 3 : dot == 3 ? 2 : 1;
      const std::uint32_t rest = c & (dot < 2 ? 7 : 15);
      int exponent = dot == 0 ? 0 : 1 << (dot - 1);
      if (dot > 1) exponent |= static_cast<int>(rest >> mantissa_bits);
      const bool negative = dot == 1 ? (c & 8) != 0 : dot > 1 && (c & 16) != 0;
      const double fraction =
          std::ldexp(static_cast<double>(rest & ((1u << mantissa_bits) - 1)),
                     -mantissa_bits);
      numbers.push_back(
          {std::ldexp(1 + fraction, negative ? -exponent : exponent), c});
    }
  } else {
    const int bits = static_cast<int>(args.mantissa_bits);
    for (std::uint32_t c = 0; c <= args.largest + 1; ++c) {
      const int exponent = static_cast<int>(c >> bits);
      const double mantissa = c & ((1u << bits) - 1);
      const int least = static_cast<int>(args.least_exponent) - 127;
      numbers.push_back({exponent == 0
                             ? std::ldexp(mantissa, least - bits)
                             : std::ldexp(mantissa + (1 << bits),
                                          exponent - 1 + least - bits),
                         c});
    }
  }
  std::sort(numbers.begin(), numbers.end(),
            [](const Number& a, const Number& b) { return a.value < b.value; });
  return numbers;
}

// rounded() returns the index of the number that |v| becomes.
std::size_t rounded(const QuantizeArgs& args,
                    const std::vector<Number>& numbers, float v,
                    std::uint32_t random) {
  const auto floor_of = [&](double y) {
    std::size_t i = 0;
    while (i + 1 < numbers.size() && numbers[i + 1].value <= y) ++i;
    return i;
  };
  const double y = static_cast<double>(v);
  const std::size_t i = floor_of(y);
  if (i + 1 == numbers.size()) return i;
  const double low = numbers[i].value, high = numbers[i + 1].value;
  if (args.rounding == kStochastic && args.tapered == 0) {
    const auto step = static_cast<float>(high - low);
    const float part = static_cast<float>(random) / 256;
    return floor_of(static_cast<double>(std::fma(part, step, v)));
  }
  const double middle = (low + high) / 2;
  if (args.tapered != 0) {
    // The width of the mantissa is that of the lower neighbour.
    if (i == 0) return y >= high / 2 ? 1 : 0;
    return y >= middle ? i + 1 : i;
  }
  const bool even = args.rounding == kNearestEven && numbers[i].code % 2 == 0;
  return y > middle || (y == middle && !even) ? i + 1 : i;
}

template <class Format>
void quantize(const void* arguments, const Tile& tile, Result&) {
  const auto& args = *static_cast<const QuantizeArgs*>(arguments);
  const auto* x =
      static_cast<const typename Format::Element*>(tile.operands[0]);
  auto* codes = static_cast<std::uint8_t*>(tile.operands[1]);
  const auto* octets = static_cast<const std::uint8_t*>(tile.operands[2]);
  const std::vector<Number> numbers = numbers_of(args);
  // HiFloat8's 6f is infinity; 3 * 2^14 is beyond the largest number.
  const std::uint32_t largest = args.tapered != 0 ? 0x6e : args.largest;
  double largest_value = 0;
  for (const Number& number : numbers) {
    if (number.code == largest) largest_value = number.value;
  }
  QuantizePartial partial = {};
  for (std::size_t i = 0; i < tile.count * args.elements; ++i) {
    const float wide = Format::widen(x[i]);
    const bool negative = std::signbit(wide);
    std::uint32_t code;
    if (std::isnan(wide)) {
      ++partial.nan_count;
      code = negative ? args.negative_nan : args.nan;
    } else {
      const float v = std::abs(wide * args.scale);
      const std::uint32_t random =
          octets != nullptr
              ? octets[i]
              : rounding_bits(args.key, tile.first * args.elements + i)
                        .weight >>
                    8;
      const std::size_t at = rounded(args, numbers, v, random);
      code = numbers[at].code;
      partial.amax = std::max(partial.amax, float_to_bits(std::abs(wide)));
      if (std::isinf(v)) {
        ++partial.saturated;
        code = args.infinity;
      } else if (numbers[at].value > largest_value) {
        ++partial.saturated;
        code = args.overflow;
      } else if (code == 0 && wide != 0) {
        ++partial.flushed;
      }
      if (negative) {
        code = code == 0 ? args.negative_zero : code | 1u << args.sign;
      }
    }
    if (args.elements == 1) {
      codes[i] = static_cast<std::uint8_t>(code);
    } else if (i % 2 == 0) {
      codes[i / 2] = static_cast<std::uint8_t>(code);
    } else {
      codes[i / 2] = static_cast<std::uint8_t>(codes[i / 2] | code << 4);
    }
  }
  static_cast<QuantizePartial*>(tile.partial)->join(partial);
}

template <class Format>
void dequantize(const void* arguments, const Tile& tile, Result&) {
  const auto& args = *static_cast<const DequantizeArgs*>(arguments);
  const auto* codes = static_cast<const std::uint8_t*>(tile.operands[1]);
  const auto* values = static_cast<const float*>(tile.operands[2]);
  auto* x = static_cast<typename Format::Element*>(tile.operands[0]);
  for (std::size_t i = 0; i < tile.count * args.elements; ++i) {
    std::uint32_t code = codes[i / args.elements];
    if (args.elements == 2) code = i % 2 == 0 ? code & 15 : code >> 4;
    x[i] = Format::narrow(values[code] * args.scale);
  }
}

}  // namespace

SWAMP_KERNELS(quantize, quantize<A>)
SWAMP_KERNELS(dequantize, dequantize<A>)

}  // namespace swamp::slave::reference
