// What the steps of all optimizers share, per target. Included once per target,
// like Highway's own -inl.h.
#if defined(SWAMP_SLAVE_STEP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SWAMP_SLAVE_STEP_INL_H_
#undef SWAMP_SLAVE_STEP_INL_H_
#else
#define SWAMP_SLAVE_STEP_INL_H_
#endif

#include <hwy/highway.h>

#include <type_traits>

#include "slave/batch-inl.h"
#include "slave/exact_fma-inl.h"

HWY_BEFORE_NAMESPACE();
namespace swamp::slave::HWY_NAMESPACE {

using DF = hn::ScalableTag<float>;
using VF = hn::Vec<DF>;

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

// for_each_weight() is for_each_vector() with the model's weight, if there is
// one, as the last operand.
template <class... Model, class Step, class... Data>
HWY_INLINE void for_each_weight(const Tile& tile, const Step& step,
                                Data... operands) {
  if constexpr (sizeof...(Model) == 0) {
    for_each_vector(tile, step, operands...);
  } else {
    for_each_vector_out(tile, step, Output<Model>(tile, sizeof...(Data))...,
                        operands...);
  }
}

// with_model() calls f with the format of the model's weight, if there is one.
template <class Model, class Function>
HWY_INLINE void with_model(const Function& f) {
  if constexpr (std::is_same_v<Model, element::None>) {
    f();
  } else {
    f(Model());
  }
}

}  // namespace swamp::slave::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // SWAMP_SLAVE_STEP_INL_H_
