// The formula of Adam and its random bits, per target. Included once per
// target, like Highway's own -inl.h.
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

}  // namespace swamp::slave::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // SWAMP_SLAVE_ADAM_INL_H_
