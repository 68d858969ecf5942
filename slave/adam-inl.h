// The formula of Adam, and how weights and moments are loaded and stored, per
// target. Included once per target, like Highway's own -inl.h.
#if defined(SWAMP_SLAVE_ADAM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SWAMP_SLAVE_ADAM_INL_H_
#undef SWAMP_SLAVE_ADAM_INL_H_
#else
#define SWAMP_SLAVE_ADAM_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>

#include "slave/kernel_args.h"
#include "slave/random-inl.h"
#include "slave/step-inl.h"

HWY_BEFORE_NAMESPACE();
namespace swamp::slave::HWY_NAMESPACE {

using DU = hn::RebindToUnsigned<DF>;
using VU = hn::Vec<DU>;

// Adam is the formula in two parts, between which a kernel stores the moments.
template <class Gradient>
struct Adam {
  ClippedGradient<Gradient> gradient;
  VF lerp_factor, beta2, one_minus_beta2, minus_step_size;
  VF bias_correction2_sqrt, eps, weight_decay, decay;
  hn::Mask<DF> lerp_is_small;
  bool decays;
  bool corrects;  // false after about 17,000 steps with beta2 of 0.999

  explicit HWY_INLINE Adam(const AdamArgs& args)
      : gradient{set(args.inv_scale), set(args.clip_coefficient)},
        beta2(set(args.beta2)),
        one_minus_beta2(set(args.one_minus_beta2)),
        minus_step_size(set(-args.step_size)),
        bias_correction2_sqrt(set(args.bias_correction2_sqrt)),
        eps(set(args.eps)),
        weight_decay(set(args.weight_decay)),
        decay(set(args.decay)),
        lerp_is_small(hn::Lt(hn::Abs(set(args.one_minus_beta1)), set(0.5f))),
        decays(args.weight_decay != 0.0f),
        corrects(args.bias_correction2_sqrt != 1.0f) {
    // torch's lerp starts from the nearer end.
    const VF factor = set(args.one_minus_beta1);
    lerp_factor =
        hn::IfThenElse(lerp_is_small, factor, hn::Sub(factor, set(1.0f)));
  }

  // moments() updates the moments and decays the weight.
  HWY_INLINE void moments(const typename Gradient::Element* at_gradient,
                          VF& weight, VF& m, VF& v) const {
    VF g = gradient(at_gradient);
    if (decays) g = fma(weight, weight_decay, g);
    weight = hn::Mul(weight, decay);
    m = fma(lerp_factor, hn::Sub(g, m), hn::IfThenElse(lerp_is_small, m, g));
    v = fma(hn::Mul(one_minus_beta2, g), g, hn::Mul(v, beta2));
  }

  // stepped() returns the new weight.
  HWY_INLINE VF stepped(VF weight, VF m, VF v) const {
    VF root = hn::Sqrt(v);
    if (corrects) root = hn::Div(root, bias_correction2_sqrt);
    const VF denominator = hn::Add(root, eps);
    return hn::Add(weight, hn::Div(hn::Mul(minus_step_size, m), denominator));
  }
};

// ---- Random bits

// ElementIndex is an operand without memory: the index of a vector's first
// element in its tensor, modulo 2^32.
class ElementIndex {
 public:
  using Element = std::uint32_t;

  explicit HWY_INLINE ElementIndex(std::size_t first)
      : first_(static_cast<std::uint32_t>(first)) {}
  HWY_INLINE std::uint32_t at(std::size_t i) const {
    return first_ + static_cast<std::uint32_t>(i);
  }
  HWY_INLINE void prefetch_batch(std::size_t, std::size_t, std::size_t) const {}

 private:
  std::uint32_t first_;
};
template <>
class TailCopy<ElementIndex> {
 public:
  HWY_INLINE TailCopy(std::uint32_t index, std::size_t) : index_(index) {}
  HWY_INLINE std::uint32_t at() const { return index_; }
  HWY_INLINE void put(std::size_t) const {}

 private:
  std::uint32_t index_;
};

HWY_INLINE VU upper_half(VU word) { return hn::ShiftRight<16>(word); }
HWY_INLINE VU lower_half(VU word) {
  return hn::And(word, hn::Set(DU(), 0xffffU));
}

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

// ---- Weights: how one is loaded and stored. `more` is the operands after the
// moments that belong to it.

// Without a master, rounded stochastically.
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
};

}  // namespace swamp::slave::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // SWAMP_SLAVE_ADAM_INL_H_
