// What the steps of all optimizers share, per target: the gradient, and how a
// weight is stored. Included once per target, like Highway's own -inl.h.
#if defined(SWAMP_SLAVE_STEP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SWAMP_SLAVE_STEP_INL_H_
#undef SWAMP_SLAVE_STEP_INL_H_
#else
#define SWAMP_SLAVE_STEP_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>
#include <type_traits>

#include "slave/batch-inl.h"
#include "slave/exact_fma-inl.h"

HWY_BEFORE_NAMESPACE();
namespace swamp::slave::HWY_NAMESPACE {

using DF = hn::ScalableTag<float>;
using VF = hn::Vec<DF>;
using DU = hn::RebindToUnsigned<DF>;
using VU = hn::Vec<DU>;

HWY_INLINE VF set(float value) { return hn::Set(DF(), value); }
HWY_INLINE VF load(const float* at) { return hn::LoadU(DF(), at); }
HWY_INLINE void store(VF value, float* at) { hn::StoreU(value, DF(), at); }
HWY_INLINE VF fma(VF a, VF b, VF c) { return exact_fma(DF(), a, b, c); }

// Unscales, clips and widens a gradient; every optimizer step calls it first.
template <class Gradient>
struct ClippedGradient {
  VF inv_scale, clip_coefficient;

  HWY_INLINE VF operator()(const typename Gradient::Element* at) const {
    return hn::Mul(hn::Mul(Gradient::load(DF(), at), inv_scale),
                   clip_coefficient);
  }
};

// ---- Stochastic rounding

// Rounded<Format> rounds with 16 random bits in the lower half of each lane.
template <class Format>
struct Rounded;

template <>
struct Rounded<Float32> {
  static constexpr bool kRandom = false;
  static HWY_INLINE void store(VF value, VU, float* at) {
    slave::HWY_NAMESPACE::store(value, at);
  }
};

template <>
struct Rounded<BFloat16> {
  static constexpr bool kRandom = true;
  static HWY_INLINE void store(VF value, VU random, std::uint16_t* at) {
    const DU du;
    const VU bits = hn::BitCast(du, value);
    const VU nan = hn::Or(bits, hn::Set(du, 0x400000U));
    const VU sum = hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(value)), nan,
                                  hn::Add(bits, random));
    const hn::Rebind<std::uint16_t, DF> d16;
    hn::StoreU(hn::TruncateTo(d16, hn::ShiftRight<16>(sum)), d16, at);
  }
};

template <>
struct Rounded<Float16> {
  static constexpr bool kRandom = true;
  // The value is rounded to a float that narrow() does not change.
  static HWY_INLINE void store(VF value, VU random, std::uint16_t* at) {
    const DF df;
    const hn::RebindToSigned<DF> di;
    const auto bits = hn::BitCast(di, value);
    const auto magnitude = hn::And(bits, hn::Set(di, 0x7fffffff));
    const auto sign = hn::Xor(bits, magnitude);
    const auto r = hn::BitCast(di, random);
    const auto normal = hn::AndNot(hn::Set(di, 0x1fff),
                                   hn::Add(magnitude, hn::ShiftRight<3>(r)));
    // Subnormal results are multiples of 2^-24. Other lanes are zeroed, because
    // values that do not fit into an int would raise the invalid flag.
    const auto is_tiny = hn::Lt(magnitude, hn::Set(di, 0x38800000));
    const auto tiny = hn::BitCast(df, hn::IfThenElseZero(is_tiny, magnitude));
    const auto fixed = hn::ConvertTo(di, hn::Mul(tiny, hn::Set(df, 0x1p40f)));
    const auto count = hn::ShiftRight<16>(hn::Add(fixed, r));
    const auto subnormal = hn::BitCast(
        di, hn::Mul(hn::ConvertTo(df, count), hn::Set(df, 0x1p-24f)));
    const auto is_nonfinite = hn::Gt(magnitude, hn::Set(di, 0x7f7fffff));
    auto result = hn::IfThenElse(is_tiny, subnormal, normal);
    result = hn::IfThenElse(is_nonfinite, magnitude, result);
    const VF rounded = hn::BitCast(df, hn::Or(result, sign));
    const hn::Rebind<std::uint16_t, DF> d16;
    hn::StoreU(Float16::narrow(df, rounded), d16, at);
  }
};

// ---- Weights: how one is loaded and stored. `more` is the operand that
// belongs to it, if there is one, the last of a step. for_each() is
// for_each_vector() with it; `operands` are all others.

// Without a master, rounded stochastically if it is of 16 bits.
template <class Format>
struct RoundedWeight {
  using Element = typename Format::Element;
  static constexpr bool kRandom = Rounded<Format>::kRandom;

  static HWY_INLINE VF load(const Element* at) {
    return Format::load(DF(), at);
  }
  template <class NonTemporal>
  static HWY_INLINE void store(VF weight, VU random, NonTemporal, Element* at) {
    Rounded<Format>::store(weight, random, at);
  }
  template <class Step, class... Data>
  static HWY_INLINE void for_each(const Tile& tile, int, const Step& step,
                                  Data... operands) {
    for_each_vector(tile, step, operands...);
  }
};

// A float32 master and the model's weight.
template <class Format>
struct MasterWeight {
  using Element = float;
  static constexpr bool kRandom = false;

  static HWY_INLINE VF load(const float* at, typename Format::Element*) {
    return slave::HWY_NAMESPACE::load(at);
  }
  template <class NonTemporal>
  static HWY_INLINE void store(VF weight, VU, NonTemporal non_temporal,
                               float* at, typename Format::Element* model) {
    slave::HWY_NAMESPACE::store(weight, at);
    store_as<Format>(DF(), weight, non_temporal, model);
  }
  template <class Step, class... Data>
  static HWY_INLINE void for_each(const Tile& tile, int more, const Step& step,
                                  Data... operands) {
    for_each_vector_out(tile, step, Output<Format>(tile, more), operands...);
  }
};

// A 16-bit weight and its Kahan compensation, both in `Format`.
template <class Format>
struct CompensatedWeight {
  using Element = typename Format::Element;
  static constexpr bool kRandom = false;

  static HWY_INLINE VF load(const Element* at, const Element* compensation) {
    return hn::Add(Format::load(DF(), at), Format::load(DF(), compensation));
  }
  template <class NonTemporal>
  static HWY_INLINE void store(VF weight, VU, NonTemporal non_temporal,
                               Element* at, Element* compensation) {
    const VF rounded = Format::round(DF(), weight);
    store_as<Format>(DF(), weight, std::false_type(), at);
    store_as<Format>(DF(), hn::Sub(weight, rounded), non_temporal,
                     compensation);
  }
  template <class Step, class... Data>
  static HWY_INLINE void for_each(const Tile& tile, int more, const Step& step,
                                  Data... operands) {
    for_each_vector(tile, step, operands..., InOut<Format>(tile, more));
  }
};

// A weight of `Format`, or, if there is a model's weight, its float32 master.
template <class Format, class Model>
using WeightOf = std::conditional_t<std::is_same_v<Model, element::None>,
                                    RoundedWeight<Format>, MasterWeight<Model>>;

}  // namespace swamp::slave::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // SWAMP_SLAVE_STEP_INL_H_
