// Per-target exact_fma(): a * b + c of floats or doubles, rounded once, with
// the same bits on every target. Re-included once per target, as Highway's own
// -inl.h.
#if defined(SWAMP_SLAVE_EXACT_FMA_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SWAMP_SLAVE_EXACT_FMA_INL_H_
#undef SWAMP_SLAVE_EXACT_FMA_INL_H_
#else
#define SWAMP_SLAVE_EXACT_FMA_INL_H_
#endif

#include <hwy/highway.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace swamp::slave::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || \
    (HWY_TARGET == HWY_NEON && HWY_ARCH_ARM_A64)

template <class DF>
HWY_INLINE hn::Vec<DF> exact_fma(DF, hn::Vec<DF> a, hn::Vec<DF> b,
                                 hn::Vec<DF> c) {
  return hn::MulAdd(a, b, c);
}

// On other targets Highway's MulAdd rounds twice. Here the product of two
// floats is exact in double, and the sum is rounded to odd: if it is inexact,
// to the odd one of the two doubles around it. Rounding that to float equals
// rounding the exact sum (53 >= 24 + 2 bits). The error of the sum is small -
// (sum - large). Its inner difference is exact in every rounding mode, so its
// sign is right; inf and nan make it nan, which is neither below nor above 0.
#elif HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128

// One lane in plain C++: Highway's own DemoteTo turns inf into the largest
// finite float here. Of doubles, the C library's, which may be slow.
HWY_INLINE double exact_fma_lane(double a, double b, double c) {
  return std::fma(a, b, c);
}
HWY_INLINE float exact_fma_lane(float a, float b, float c) {
  const double product = static_cast<double>(a) * static_cast<double>(b);
  const double addend = c;
  const double sum = product + addend;
  const bool swap = std::fabs(product) < std::fabs(addend);
  const double large = swap ? addend : product;
  const double small = swap ? product : addend;
  const double error = small - (sum - large);
  std::int64_t bits;
  std::memcpy(&bits, &sum, sizeof bits);
  if ((bits & 1) == 0 && (error < 0 || error > 0)) {
    bits += (error < 0) == (bits < 0) ? 1 : -1;
  }
  double odd;
  std::memcpy(&odd, &bits, sizeof odd);
  return static_cast<float>(odd);
}

template <class DF>
HWY_INLINE hn::Vec<DF> exact_fma(DF df, hn::Vec<DF> a, hn::Vec<DF> b,
                                 hn::Vec<DF> c) {
#if HWY_TARGET == HWY_SCALAR
  return hn::Set(
      df, exact_fma_lane(hn::GetLane(a), hn::GetLane(b), hn::GetLane(c)));
#else
  using T = hn::TFromD<DF>;
  HWY_ALIGN T la[hn::MaxLanes(DF())];
  HWY_ALIGN T lb[hn::MaxLanes(DF())];
  HWY_ALIGN T lc[hn::MaxLanes(DF())];
  hn::Store(a, df, la);
  hn::Store(b, df, lb);
  hn::Store(c, df, lc);
  for (std::size_t i = 0; i < hn::Lanes(df); ++i) {
    la[i] = exact_fma_lane(la[i], lb[i], lc[i]);
  }
  return hn::Load(df, la);
#endif
}

#else  // SSE4

template <class DD>
HWY_INLINE hn::Vec<DD> sum_to_odd(DD dd, hn::Vec<DD> product,
                                  hn::Vec<DD> addend) {
  const hn::RebindToSigned<DD> di;
  const auto sum = hn::Add(product, addend);
  const auto swap = hn::Lt(hn::Abs(product), hn::Abs(addend));
  const auto large = hn::IfThenElse(swap, addend, product);
  const auto small = hn::IfThenElse(swap, product, addend);
  const auto error = hn::Sub(small, hn::Sub(sum, large));
  const auto zero = hn::Zero(dd);
  const auto inexact = hn::BitCast(
      di,
      hn::VecFromMask(dd, hn::Or(hn::Lt(error, zero), hn::Gt(error, zero))));
  const auto bits = hn::BitCast(di, sum);
  const auto one = hn::Set(di, 1);
  const auto even = hn::AndNot(bits, one);
  // 1 if the error has the sign of the sum, else -1.
  const auto step =
      hn::Or(hn::BroadcastSignBit(hn::Xor(hn::BitCast(di, error), bits)), one);
  // All ones if the sum is even and inexact.
  const auto move = hn::And(inexact, hn::Neg(even));
  return hn::BitCast(dd, hn::Add(bits, hn::And(step, move)));
}

template <class DF>
HWY_INLINE hn::Vec<DF> exact_fma(DF df, hn::Vec<DF> a, hn::Vec<DF> b,
                                 hn::Vec<DF> c) {
  if constexpr (sizeof(hn::TFromD<DF>) == 8) {  // one after the other
    HWY_ALIGN double lanes[3][hn::MaxLanes(DF())];
    hn::Store(a, df, lanes[0]);
    hn::Store(b, df, lanes[1]);
    hn::Store(c, df, lanes[2]);
    for (std::size_t i = 0; i < hn::Lanes(df); ++i) {
      lanes[0][i] = std::fma(lanes[0][i], lanes[1][i], lanes[2][i]);
    }
    return hn::Load(df, lanes[0]);
  } else {
    const hn::Half<DF> dh;
    const hn::Rebind<double, decltype(dh)> dd;
    const auto half = [&](auto ha, auto hb, auto hc) HWY_ATTR {
      const auto product =
          hn::Mul(hn::PromoteTo(dd, ha), hn::PromoteTo(dd, hb));
      return hn::DemoteTo(dh, sum_to_odd(dd, product, hn::PromoteTo(dd, hc)));
    };
    return hn::Combine(
        df,
        half(hn::UpperHalf(dh, a), hn::UpperHalf(dh, b), hn::UpperHalf(dh, c)),
        half(hn::LowerHalf(dh, a), hn::LowerHalf(dh, b), hn::LowerHalf(dh, c)));
  }
}

#endif

}  // namespace swamp::slave::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // SWAMP_SLAVE_EXACT_FMA_INL_H_
