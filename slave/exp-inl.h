// exp_nonpositive() of vectors, per target: the bits of the scalar one.
// Included once per target, like Highway's own -inl.h.
#if defined(SWAMP_SLAVE_EXP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SWAMP_SLAVE_EXP_INL_H_
#undef SWAMP_SLAVE_EXP_INL_H_
#else
#define SWAMP_SLAVE_EXP_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <utility>

#include "slave/row_math.h"

HWY_BEFORE_NAMESPACE();
namespace swamp::slave::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// exp_each() replaces values[k] by its exp. Each step depends on the previous
// one, so the steps of all values alternate: otherwise the CPU could not start
// the next value early enough.
template <class DF, std::size_t... k>
HWY_INLINE void exp_each(DF df, hn::Vec<DF>* values,
                         std::index_sequence<k...>) {
  using namespace exp_constant;
  using V = hn::Vec<DF>;
  const hn::RebindToUnsigned<DF> du;
  const auto lowest = hn::Set(df, kLowest);
  const hn::Mask<DF> is_zero[] = {hn::Lt(values[k], lowest)...};
  // Replaced before they are computed with: -inf - -inf is invalid.
  const V t[] = {hn::IfThenZeroElse(is_zero[k], values[k])...};
  const auto round = hn::Set(df, kRound);
  const V rounded[] = {hn::Add(hn::Mul(t[k], hn::Set(df, kLog2E)), round)...};
  const V n[] = {hn::Sub(rounded[k], round)...};
  V r[] = {hn::Sub(t[k], hn::Mul(n[k], hn::Set(df, kLn2High)))...};
  ((r[k] = hn::Add(r[k], hn::Mul(n[k], hn::Set(df, kMinusLn2Low)))), ...);
  V q[] = {hn::Add(hn::Mul(hn::Set(df, kC6), r[k]), hn::Set(df, kC5))...};
  ((q[k] = hn::Add(hn::Mul(q[k], r[k]), hn::Set(df, kC4))), ...);
  ((q[k] = hn::Add(hn::Mul(q[k], r[k]), hn::Set(df, kC3))), ...);
  ((q[k] = hn::Add(hn::Mul(q[k], r[k]), hn::Set(df, kC2))), ...);
  ((q[k] = hn::Add(hn::Mul(q[k], hn::Mul(r[k], r[k])), r[k])), ...);
  ((q[k] = hn::Add(q[k], hn::Set(df, 1.0f))), ...);
  ((q[k] = hn::Mul(
        q[k], hn::BitCast(df, hn::ShiftLeft<23>(hn::BitCast(du, rounded[k]))))),
   ...);
  ((values[k] = hn::IfThenZeroElse(is_zero[k], q[k])), ...);
}

template <class DF>
HWY_INLINE hn::Vec<DF> exp_nonpositive(DF df, hn::Vec<DF> value) {
  exp_each(df, &value, std::index_sequence<0>());
  return value;
}

}  // namespace swamp::slave::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // SWAMP_SLAVE_EXP_INL_H_
