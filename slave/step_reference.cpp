// The scalar references of the optimizers: the formulas of slave/kernel_args.h
// for one element after another. Each fma is written out, because the result
// must not depend on the compiler.
#include <cmath>
#include <type_traits>

#include "slave/block_code.h"
#include "slave/kernel_args.h"
#include "slave/reference.h"
#include "slave/scale_rules.h"

namespace swamp::slave::reference {
namespace {

template <class Gradient, class Args>
float clipped_gradient(const Args& args, const void* tile, std::size_t i) {
  const float wide =
      Gradient::widen(static_cast<const typename Gradient::Element*>(tile)[i]);
  return wide * args.inv_scale * args.clip_coefficient;
}

// ---- Storage of weights and moments

// rounded() rounds stochastically with 16 random bits.
template <class Format>
typename Format::Element rounded(float value, std::uint32_t random);
template <>
float rounded<Float32>(float value, std::uint32_t) {
  return value;
}
template <>
std::uint16_t rounded<BFloat16>(float value, std::uint32_t random) {
  if (std::isnan(value)) return BFloat16::narrow(value);
  return static_cast<std::uint16_t>((float_to_bits(value) + random) >> 16);
}
template <>
std::uint16_t rounded<Float16>(float value, std::uint32_t random) {
  const std::uint32_t bits = float_to_bits(value);
  const std::uint32_t sign = bits >> 16 & 0x8000;
  const std::uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude >= 0x47800000) return Float16::narrow(value);  // inf or nan
  std::uint32_t half = 0;
  if (magnitude >= 0x38800000) {
    half = (magnitude + (random >> 3) - (112U << 23)) >> 13;
  } else if (magnitude >= 0x00800000) {
    // A multiple of 2^-40: the mantissa, an integer, shifted.
    const std::uint32_t shift = 110 - (magnitude >> 23);
    const std::uint32_t mantissa = (magnitude & 0x7fffff) | 0x800000;
    std::uint32_t fixed = 0;
    if (magnitude >> 23 >= 110) {
      fixed = mantissa << ((magnitude >> 23) - 110);
    } else if (shift < 24) {
      fixed = mantissa >> shift;
    }
    half = (fixed + random) >> 16;
  }
  return static_cast<std::uint16_t>(half | sign);
}

// The weights: see slave/step-inl.h. `more` is the operand of the model's
// weight or of the compensation.
template <class Format>
struct RoundedWeight {
  using Element = typename Format::Element;
  static constexpr bool kRandom = !std::is_same_v<Format, Float32>;
  static float load(const Element& at, const void*, std::size_t) {
    return Format::widen(at);
  }
  static void store(float weight, std::uint32_t random, Element& at, void*,
                    std::size_t) {
    at = rounded<Format>(weight, random);
  }
};
template <class Format>
struct MasterWeight {
  using Element = float;
  static constexpr bool kRandom = false;
  static float load(float at, const void*, std::size_t) { return at; }
  static void store(float weight, std::uint32_t, float& at, void* more,
                    std::size_t i) {
    at = weight;
    static_cast<typename Format::Element*>(more)[i] = Format::narrow(weight);
  }
};
template <class Format>
struct CompensatedWeight {
  using Element = typename Format::Element;
  static constexpr bool kRandom = false;
  static float load(Element at, const void* more, std::size_t i) {
    return Format::widen(at) +
           Format::widen(static_cast<const Element*>(more)[i]);
  }
  static void store(float weight, std::uint32_t, Element& at, void* more,
                    std::size_t i) {
    at = Format::narrow(weight);
    static_cast<Element*>(more)[i] = Format::narrow(weight - Format::widen(at));
  }
};

template <class Format, class Model>
using WeightOf = std::conditional_t<std::is_same_v<Model, None>,
                                    RoundedWeight<Format>, MasterWeight<Model>>;

// ---- Steps

template <class Gradient, class Weight, bool kMomentum>
void sgd(const void* args_bytes, const Tile& tile, Result&) {
  using At = SgdOperand<kMomentum>;
  const SgdArgs& args = *static_cast<const SgdArgs*>(args_bytes);
  auto* weights = static_cast<float*>(tile.operands[At::weight]);
  for (std::size_t i = 0; i < tile.count; ++i) {
    float g = clipped_gradient<Gradient>(args, tile.operands[At::gradient], i);
    if (args.weight_decay != 0.0f) {
      g = std::fma(weights[i], args.weight_decay, g);
    }
    if (kMomentum) {
      float& b = static_cast<float*>(tile.operands[At::buffer])[i];
      b = args.first_step != 0
              ? g
              : std::fma(g, args.one_minus_dampening, b * args.momentum);
      g = args.nesterov != 0 ? std::fma(b, args.momentum, g) : b;
    }
    Weight::store(std::fma(g, -args.lr, weights[i]), 0, weights[i],
                  tile.operands[At::more], i);
  }
}

// torch's lerp starts from the nearer end.
float lerp(float from, float to, float weight) {
  return std::fabs(weight) < 0.5f ? std::fma(weight, to - from, from)
                                  : std::fma(weight - 1.0f, to - from, to);
}

// torch's maximum: nan if one is, with all bits set; b if they are equal. With
// a > b, gcc uses an instruction that flushes subnormals if the program does.
float maximum(float a, float b) {
  if (std::isnan(a) || std::isnan(b)) return float_from_bits(0xffffffff);
  return a <= b ? b : a;
}

// adam_element() steps one element, whose moments are float32. `max` is the
// largest second moment of AMSGrad, or null.
template <class At, class Gradient, class Weight>
void adam_element(const AdamArgs& args, const Tile& tile, std::size_t i,
                  float& m, float& v, float* max, std::uint32_t random) {
  void* more = tile.operands[At::more];
  auto& at =
      static_cast<typename Weight::Element*>(tile.operands[At::weight])[i];
  float weight = Weight::load(at, more, i);
  float g = clipped_gradient<Gradient>(args, tile.operands[At::gradient], i);
  if (args.weight_decay != 0.0f) g = std::fma(weight, args.weight_decay, g);
  m = lerp(m, g, args.one_minus_beta1);
  v = std::fma(args.one_minus_beta2 * g, g, v * args.beta2);
  if (max != nullptr) *max = maximum(*max, v);
  const float square = max != nullptr ? *max : v;
  const float denominator =
      std::sqrt(square) / args.bias_correction2_sqrt + args.eps;
  weight = weight * args.decay + -args.step_size * m / denominator;
  Weight::store(weight, random, at, more, i);
}

template <class At, class Gradient, class Weight, class Moment,
          bool kAmsgrad = false>
void adam(const void* args_bytes, const Tile& tile, Result&) {
  const AdamArgs& args = *static_cast<const AdamArgs*>(args_bytes);
  auto* at_m = static_cast<typename Moment::Element*>(tile.operands[At::m]);
  auto* at_v = static_cast<typename Moment::Element*>(tile.operands[At::v]);
  for (std::size_t i = 0; i < tile.count; ++i) {
    RoundingBits random{};
    if constexpr (Weight::kRandom || !std::is_same_v<Moment, Float32>) {
      random = rounding_bits(
          *static_cast<const RoundingKey*>(tile.operands[At::key]),
          tile.first + i);
    }
    float* max = nullptr;
    if constexpr (kAmsgrad) {
      max = static_cast<float*>(tile.operands[At::max]) + i;
    }
    float m = Moment::widen(at_m[i]);
    float v = Moment::widen(at_v[i]);
    adam_element<At, Gradient, Weight>(args, tile, i, m, v, max, random.weight);
    at_m[i] = rounded<Moment>(m, random.m);
    at_v[i] = rounded<Moment>(v, random.v);
  }
}

// number_value() is the number c of a map.
float number_value(const DecadeTables& tables, int c) {
  if (c == 256) return 1;
  int j = 0;
  while (c >> (j + 1) != 0) ++j;
  return tables.low[j] + tables.step[j] * static_cast<float>(c - (1 << j));
}

// number_of() is the number nearest to |value| * unit. It compares bits, in
// which nan is above 1.
int number_of(const DecadeTables& tables, float value, float unit,
              int first_decade) {
  float ratio = float_from_bits(float_to_bits(value) & 0x7fffffff) * unit;
  if ((float_to_bits(ratio) & 0x7fffffff) > float_to_bits(1.0f)) ratio = 1;
  int j = -1;
  for (int d = first_decade; d < DecadeTables::kDecades; ++d) {
    if (float_to_bits(ratio) >= float_to_bits(tables.threshold[d])) j = d;
  }
  if (j < 0) return first_decade;
  if (float_to_bits(ratio) >= float_to_bits(tables.one))
    return 1 << (7 + first_decade);
  const float number = ratio * tables.parts[j] + tables.offset[j];
  return static_cast<int>(number < tables.last[j] ? number : tables.last[j]);
}

float largest_magnitude(const float* values, std::size_t count) {
  std::uint32_t largest = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t bits = float_to_bits(values[i]) & 0x7fffffff;
    if (bits > largest) largest = bits;
  }
  return float_from_bits(largest > 0x7f800000 ? 0x7fc00000 : largest);
}

// decoded() is the moment of a code.
float decoded(const AdamBlockArgs& args, bool is_m, std::uint32_t code,
              float absmax) {
  if (args.float8 != 0) {
    const float size = e4m3_value(code & 0x7f);
    return (code < 0x80 ? size : -size) * float8_scale(absmax);
  }
  const int c = static_cast<int>(code) + (is_m ? -127 : 1);
  if (!is_m) return number_value(kUnsignedTables, c) * absmax;
  const float size = c == 0 ? 0 : number_value(kSignedTables, c < 0 ? -c : c);
  return (c < 0 ? -size : size) * absmax;
}

// encoded() is the code of a moment.
int encoded(const AdamBlockArgs& args, bool is_m, float value, float absmax) {
  // A nan has no sign.
  const std::uint32_t bits = float_to_bits(value);
  const bool negative = bits >= 0x80000000 && bits <= 0xff800000;
  const float size = float_from_bits(float_to_bits(value) & 0x7fffffff);
  if (args.float8 != 0) {
    const auto code = static_cast<int>(e4m3_code(size / float8_scale(absmax)));
    return negative && code != 0x7f ? code | 0x80 : code;
  }
  const int c = number_of(is_m ? kSignedTables : kUnsignedTables, value,
                          block_unit(absmax), is_m ? 0 : 1);
  if (is_m) return negative ? 127 - (c < 127 ? c : 127) : 127 + c;
  return c == 1 && float_to_bits(size) != 0 ? 1 : c - 1;
}

template <class Weight, class Gradient>
void adam_8bit(const void* args_bytes, const Tile& tile, Result&) {
  using At = AdamBlockOperand;
  const auto& args = *static_cast<const AdamBlockArgs*>(args_bytes);
  const std::size_t columns = args.columns;
  for (std::size_t row = 0; row < tile.count; ++row) {
    auto* m_codes = static_cast<std::uint8_t*>(tile.operands[At::m]);
    auto* v_codes = static_cast<std::uint8_t*>(tile.operands[At::v]);
    auto* absmax = static_cast<float*>(tile.operands[At::absmax]) + 2 * row;
    m_codes += row * columns;
    v_codes += row * columns;
    float m[kBlockColumns], v[kBlockColumns];
    for (std::size_t j = 0; j < columns; ++j) {
      const std::size_t i = row * columns + j;
      m[j] = decoded(args, true, m_codes[j], absmax[0]);
      v[j] = decoded(args, false, v_codes[j], absmax[1]);
      RoundingBits random{};
      if constexpr (Weight::kRandom) {
        random = rounding_bits(
            *static_cast<const RoundingKey*>(tile.operands[At::more]),
            tile.first * columns + i);
      }
      adam_element<At, Gradient, Weight>(args.adam, tile, i, m[j], v[j],
                                         nullptr, random.weight);
    }
    absmax[0] = largest_magnitude(m, columns);
    absmax[1] = largest_magnitude(v, columns);
    for (std::size_t j = 0; j < columns; ++j) {
      m_codes[j] =
          static_cast<std::uint8_t>(encoded(args, true, m[j], absmax[0]));
      v_codes[j] =
          static_cast<std::uint8_t>(encoded(args, false, v[j], absmax[1]));
    }
  }
}

}  // namespace

SWAMP_KERNELS(sgd, kSteps, sgd<A, WeightOf<Float32, B>, false>)
SWAMP_KERNELS(sgd_momentum, kSteps, sgd<A, WeightOf<Float32, B>, true>)
SWAMP_KERNELS(adam, kSteps,
              adam<AdamOperand<false>, A, WeightOf<Float32, B>, Float32>)
SWAMP_KERNELS(adam_amsgrad, kSteps,
              adam<AdamOperand<true>, A, WeightOf<Float32, B>, Float32, true>)
SWAMP_KERNELS(
    adam_stochastic, kStochasticSteps,
    adam<AdamRoundedOperand<!std::is_same_v<D, None>>, A, WeightOf<A, D>, C>)
SWAMP_KERNELS(adam_kahan, kKahanSteps,
              adam<AdamRoundedOperand<true>, A, CompensatedWeight<A>, B>)
SWAMP_KERNELS(adam_8bit, kBlockSteps, adam_8bit<WeightOf<A, B>, A>)
SWAMP_KERNELS(adam_8bit_stochastic, kHalf, adam_8bit<RoundedWeight<A>, A>)
SWAMP_KERNELS(adam_8bit_kahan, kHalf, adam_8bit<CompensatedWeight<A>, A>)

}  // namespace swamp::slave::reference
