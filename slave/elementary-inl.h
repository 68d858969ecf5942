// exp, log and powers, as formulas of any arithmetic: vectors of float or
// double per target, and plain numbers in the reference. Multiplications,
// divisions and fused multiply-adds in a fixed order, so that every ISA has the
// same bits. Included once per target, like Highway's own -inl.h.
#if defined(SWAMP_SLAVE_ELEMENTARY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SWAMP_SLAVE_ELEMENTARY_INL_H_
#undef SWAMP_SLAVE_ELEMENTARY_INL_H_
#else
#define SWAMP_SLAVE_ELEMENTARY_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <limits>

#include "slave/exact_fma-inl.h"

HWY_BEFORE_NAMESPACE();
namespace swamp::slave::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Coefficients of polynomials, the highest first, and the numbers of exp(). The
// polynomials are Chebyshev's, which are almost minimax:
// - kExp: (exp(r) - 1 - r) / r^2 for |r| <= ln2 / 2
// - kTail: Phi(-t) * exp(t^2 / 2) * (t + 4) for t in [0, 14.6], as a polynomial
//   of (t - 4) / (t + 4); Phi is the normal distribution
// - kLog: (atanh(s) / s - 1) / s^2 for s in [0, 1/3], as one of s^2
// - kShortExp, kShortLog (of float alone, minimax): (exp(r) - 1 - r) / r^2 as
//   above, and (log(1 + f) - f) / f^2 for f in [sqrt(1/2) - 1, sqrt(2) - 1]
// double serves float32 elements: relative errors of 9e-16, 1e-15, 5e-18.
template <class T>
struct ElementaryConstants;
// Constants rounded by the compiler, not in the caller's rounding mode.
template <class T>
struct ElementaryNumbers {
  static constexpr T kLog2E = static_cast<T>(0x1.71547652b82fep0);
  static constexpr T kDensity = static_cast<T>(0x1.9884533d43651p-2);
  static constexpr T kGeluTanh = static_cast<T>(0x1.9884533d43651p0);
  static constexpr T kCubic = static_cast<T>(0.044715);
};
template <>
struct ElementaryConstants<double> : ElementaryNumbers<double> {
  using Bits = std::uint64_t;
  static constexpr int kMantissa = 52;  // bits
  static constexpr Bits kOne = 0x3ff0000000000000, kExponentBias = 1023;
  // The bits of sqrt(1/2), and of 2^52, whose last bit counts ones.
  static constexpr Bits kRootHalf = 0x3fe6a09e667f3bcd,
                        kInteger = 0x4330000000000000;
  static constexpr double kIntegerNumber = 0x1p52;
  // Below, exp is 0; float32 is 0 far above.
  static constexpr double kLowest = -200;
  // Adding it rounds to an integer n; the low bits of the sum are then n +
  // 1023, the exponent of 2^n.
  static constexpr double kRound = 0x1.8p52 + 1023;
  static constexpr double kScale = 1;
  static constexpr double kLn2High = 0x1.62e42feep-1;
  static constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
  static constexpr double kExp[] = {
      0x1.2880411bad1aap-22, 0x1.72c72ca338dfp-19,  0x1.a019c9a5652d3p-16,
      0x1.a019ada3609f3p-13, 0x1.6c16c1738ff55p-10, 0x1.1111111c478ebp-7,
      0x1.5555555554cb7p-5,  0x1.5555555553b78p-3,  0x1p-1};
  static constexpr double kTail[] = {
      -0x1.ac074eb6a2b2ep-26, -0x1.a6e1b2ea3a8bcp-25, 0x1.28026f248270ap-22,
      0x1.ea5da8b2816fp-21,   -0x1.7036521fd5f15p-21, -0x1.8a67f064303p-18,
      0x1.956c9b7cec4d6p-21,  0x1.26c23fcc1afe4p-15,  -0x1.01bc785503757p-19,
      -0x1.e4a43e08a8b73p-13, 0x1.17a5c548b3c75p-13,  0x1.ab8262dedcca5p-10,
      -0x1.c8171b709fa13p-9,  -0x1.ee27611abd6ffp-8,  0x1.eec4cc3f7e86p-5,
      -0x1.7dff2bff614acp-3,  0x1.8c6dbf2cfb77fp-2,   -0x1.373e3a893c2d2p-1,
      0x1.82b4bb8c94dd2p-1};
  static constexpr double kLog[] = {0x1.4b0ed4be611b2p-4, 0x1.687604d0c86a1p-5,
                                    0x1.eb913ba3ef69ep-5, 0x1.10ac6a3d3e5f6p-4,
                                    0x1.3b18b34a260a3p-4, 0x1.745cf0aa6a011p-4,
                                    0x1.c71c727164156p-4, 0x1.24924923d422cp-3,
                                    0x1.999999999a3dfp-3, 0x1.5555555555555p-2};
};
// float serves 16-bit elements: relative errors of 4e-8, 2e-7, 2e-8, 1e-7 and
// 3e-8.
template <>
struct ElementaryConstants<float> : ElementaryNumbers<float> {
  using Bits = std::uint32_t;
  static constexpr int kMantissa = 23;
  static constexpr Bits kOne = 0x3f800000, kExponentBias = 127;
  static constexpr Bits kRootHalf = 0x3f3504f3, kInteger = 0x4b000000;
  static constexpr float kIntegerNumber = 0x1p23f;
  static constexpr float kLowest = -103.9f;  // below, bfloat16 is 0
  // The low bits of the sum are n + 64 + 127, so that 2^(n + 64) is normal.
  static constexpr float kRound = 0x1.8p23f + 127 + 64;
  static constexpr float kScale = 0x1p-64f;
  static constexpr float kLn2High = 0x1.63p-1f;
  static constexpr float kLn2Low = -0x1.bd0106p-13f;
  static constexpr float kExp[] = {0x1.6d110ap-10f, 0x1.120b6ep-7f,
                                   0x1.55551ap-5f, 0x1.5554dcp-3f, 0x1p-1f};
  static constexpr float kTail[] = {
      0x1.ce2322p-12f, 0x1.a7d24ap-10f, -0x1.e209f8p-9f,
      -0x1.f15b5ep-8f, 0x1.ef1a92p-5f,  -0x1.7df914p-3f,
      0x1.8c6cfep-2f,  -0x1.373e4ep-1f, 0x1.82b4bcp-1f};
  static constexpr float kLog[] = {0x1.12f6fap-3f, 0x1.21246ap-3f,
                                   0x1.99ad6ep-3f, 0x1.55554cp-2f};
  static constexpr float kShortExp[] = {0x1.10627ep-7f, 0x1.572a08p-5f,
                                        0x1.5557aep-3f, 0x1.fffdfcp-2f, 1, 1};
  static constexpr float kShortLog[] = {
      0x1.65c68p-4f,  -0x1.25046ap-3f, 0x1.31853ap-3f, -0x1.535d38p-3f,
      0x1.98d2bep-3f, -0x1.00049ap-2f, 0x1.5556f4p-2f, -0x1.fffffap-2f};
};

// VectorNumbers is the arithmetic of vectors of D.
template <class D>
struct VectorNumbers {
  using T = hn::TFromD<D>;
  using V = hn::Vec<D>;
  D d;

  HWY_INLINE V set(T x) const { return hn::Set(d, x); }
  HWY_INLINE V add(V a, V b) const { return hn::Add(a, b); }
  HWY_INLINE V sub(V a, V b) const { return hn::Sub(a, b); }
  HWY_INLINE V mul(V a, V b) const { return hn::Mul(a, b); }
  HWY_INLINE V div(V a, V b) const { return hn::Div(a, b); }
  // fma() returns a * b + c, rounded once.
  HWY_INLINE V fma(V a, V b, V c) const { return exact_fma(d, a, b, c); }
  HWY_INLINE V neg(V a) const { return hn::Neg(a); }
  HWY_INLINE V abs(V a) const { return hn::Abs(a); }
  HWY_INLINE V with_sign(V size, V sign) const {
    return hn::CopySignToAbs(size, sign);
  }
  // less() returns a < b ? yes : no.
  HWY_INLINE V less(V a, V b, V yes, V no) const {
    return hn::IfThenElse(hn::Lt(a, b), yes, no);
  }
  HWY_INLINE V at_most(V a, V b, V yes, V no) const {
    return hn::IfThenElse(hn::Le(a, b), yes, no);
  }
  HWY_INLINE V equal(V a, V b, V yes, V no) const {
    return hn::IfThenElse(hn::Eq(a, b), yes, no);
  }
  HWY_INLINE V sqrt(V a) const { return hn::Sqrt(a); }
  // power() is the number whose exponent is the low bits of `rounded`.
  HWY_INLINE V power(V rounded) const {
    const hn::RebindToUnsigned<D> du;
    constexpr int kMantissa = sizeof(T) == 8 ? 52 : 23;
    return hn::BitCast(d, hn::ShiftLeft<kMantissa>(hn::BitCast(du, rounded)));
  }
  // Splits x = 2^k * m, with m in [sqrt(1/2), sqrt(2)). x must be normal and
  // positive; any other gives some finite numbers.
  HWY_INLINE V split(V x, V& k) const {
    using C = ElementaryConstants<T>;
    const hn::RebindToUnsigned<D> du;
    const auto bits =
        hn::Add(hn::BitCast(du, x), hn::Set(du, C::kOne - C::kRootHalf));
    const auto exponent =
        hn::Or(hn::ShiftRight<C::kMantissa>(bits), hn::Set(du, C::kInteger));
    k = hn::Sub(hn::BitCast(d, exponent),
                hn::Set(d, C::kIntegerNumber + T{C::kExponentBias}));
    const auto mantissa =
        hn::And(bits, hn::Set(du, (typename C::Bits{1} << C::kMantissa) - 1));
    return hn::BitCast(d, hn::Add(mantissa, hn::Set(du, C::kRootHalf)));
  }
};

// polynomial_part() is the polynomial of coefficients [kFirst, kFirst +
// kCount). Its halves do not depend on each other (Estrin's scheme): the CPU
// computes them at the same time.
template <std::size_t kFirst, std::size_t kCount, class N, std::size_t kAll>
HWY_INLINE typename N::V polynomial_part(const N& n,
                                         const typename N::V* powers,
                                         const typename N::T (&c)[kAll]) {
  if constexpr (kCount == 1) {
    return n.set(c[kFirst]);
  } else {
    // The lower half has as many coefficients as the largest power of two.
    constexpr int kPower = kCount > 16  ? 4
                           : kCount > 8 ? 3
                           : kCount > 4 ? 2
                           : kCount > 2 ? 1
                                        : 0;
    constexpr std::size_t kLow = std::size_t{1} << kPower;
    return n.fma(polynomial_part<kFirst, kCount - kLow>(n, powers, c),
                 powers[kPower],
                 polynomial_part<kFirst + kCount - kLow, kLow>(n, powers, c));
  }
}
template <class N, std::size_t kCount>
HWY_INLINE typename N::V polynomial(const N& n, typename N::V x,
                                    const typename N::T (&c)[kCount]) {
  const auto x2 = n.mul(x, x), x4 = n.mul(x2, x2), x8 = n.mul(x4, x4);
  const typename N::V powers[] = {x, x2, x4, x8, n.mul(x8, x8)};
  return polynomial_part<0, kCount>(n, powers, c);
}

// exp(kFar) - 1 is -1.
inline constexpr float kFar = -50;

// Exp is exp(t) and exp(t) - 1, both with a small relative error. Of nan it is
// nan.
template <class N>
struct Exp {
  typename N::V exp, expm1;

  // Of t <= 0.
  HWY_INLINE Exp(const N& n, typename N::V value) {
    using C = ElementaryConstants<typename N::T>;
    const auto lowest = n.set(C::kLowest);
    // Replaced before it is computed with: -inf - -inf is invalid, and CPUs take
    // ten times as long for a product that underflows.
    const auto t = n.less(value, lowest, n.set(kFar), value);
    const auto round = n.set(C::kRound);
    const auto rounded = n.fma(t, n.set(C::kLog2E), round);
    const auto k = n.sub(rounded, round);
    const auto r =
        n.fma(k, n.set(-C::kLn2Low), n.fma(k, n.set(-C::kLn2High), t));
    const auto q = n.fma(polynomial(n, r, C::kExp), n.mul(r, r), r);
    const auto power = n.power(rounded), scale = n.set(C::kScale);
    const auto one = n.set(1);
    exp = n.mul(n.mul(n.add(q, one), power), scale);
    exp = n.less(value, lowest, n.set(0), exp);
    const auto two_k = n.mul(power, scale);
    expm1 = n.fma(q, two_k, n.sub(two_k, one));
  }
};

// chain() is a polynomial in the fewest operations, one after another (Horner's
// scheme): those of the next vectors fill the time.
template <class N, std::size_t kCount>
HWY_INLINE typename N::V chain(const N& n, typename N::V x,
                               const typename N::T (&c)[kCount]) {
  auto sum = n.set(c[0]);
  for (std::size_t i = 1; i < kCount; ++i) sum = n.fma(sum, x, n.set(c[i]));
  return sum;
}

// ShortExp is 2^k * value = exp(t), with |k| up to 150, in float. Of nan the
// value is nan.
template <class N>
struct ShortExp {
  // Adding it rounds to an integer n; the low bits of the sum are then n + 127.
  static constexpr float kRound = 0x1.8p23f + 127;
  typename N::V value, rounded;

  HWY_INLINE ShortExp(const N& n, typename N::V t) {
    using C = ElementaryConstants<float>;
    rounded = n.fma(t, n.set(C::kLog2E), n.set(kRound));
    const auto k = n.sub(rounded, n.set(kRound));
    const auto r =
        n.fma(k, n.set(-C::kLn2Low), n.fma(k, n.set(-C::kLn2High), t));
    value = chain(n, r, C::kShortExp);
  }
};

// short_exp() is exp(t) of any t, short_exp_of_small() of |t| below kMostSmall,
// with the same bits.
inline constexpr float kMostSmall = 87;
template <class N>
HWY_INLINE typename N::V short_exp_of_small(const N& n, typename N::V t) {
  const ShortExp<N> e(n, t);
  return n.mul(e.value, n.power(e.rounded));
}
template <class N>
HWY_INLINE typename N::V short_exp(const N& n, typename N::V t) {
  // Below the least number it is 0, but not by a slow product that underflows;
  // of the limit it is inf.
  const auto least = n.set(-104), most = n.set(89), given = t;
  t = n.less(t, least, n.set(kFar), t);
  t = n.less(most, t, most, t);
  const ShortExp<N> e(n, t);
  // Two factors, as 2^k may be no float.
  const auto round = n.set(ShortExp<N>::kRound);
  const auto k = n.sub(e.rounded, round);
  const auto half = n.fma(k, n.set(0.5f), round);
  const auto rest = n.add(n.sub(k, n.sub(half, round)), round);
  const auto y = n.mul(n.mul(e.value, n.power(half)), n.power(rest));
  return n.less(given, least, n.set(0), y);
}

// short_log() is log(x) in float, short_log_of_normal() that of a normal
// positive x / 2^lift.
template <class N>
HWY_INLINE typename N::V short_log_of_normal(const N& n, typename N::V x,
                                             typename N::V lift) {
  using C = ElementaryConstants<float>;
  typename N::V k;
  const auto f = n.sub(n.split(x, k), n.set(1));
  k = n.sub(k, lift);
  const auto sum = n.fma(chain(n, f, C::kShortLog), n.mul(f, f), f);
  return n.fma(k, n.set(C::kLn2High), n.fma(k, n.set(C::kLn2Low), sum));
}
template <class N>
HWY_INLINE typename N::V short_log(const N& n, typename N::V x) {
  using Limits = std::numeric_limits<float>;
  const auto zero = n.set(0), least = n.set(Limits::min()),
             inf = n.set(Limits::infinity());
  auto y = short_log_of_normal(n, n.less(x, least, n.mul(x, n.set(0x1p24f)), x),
                               n.less(x, least, n.set(24), zero));
  y = n.equal(x, zero, n.neg(inf), y);
  y = n.less(x, zero, n.set(Limits::quiet_NaN()), y);
  return n.less(x, inf, y, x);  // inf and nan
}

// Return exp(t) and exp(t) - 1 of any t.
template <class N>
HWY_INLINE typename N::V exp_of(const N& n, typename N::V t) {
  const auto e = Exp<N>(n, n.neg(n.abs(t))).exp;
  return n.less(n.set(0), t, n.div(n.set(1), e), e);
}
template <class N>
HWY_INLINE typename N::V expm1_of(const N& n, typename N::V t) {
  const Exp<N> e(n, n.neg(n.abs(t)));
  return n.less(n.set(0), t, n.div(n.neg(e.expm1), e.exp),
                n.with_sign(n.abs(e.expm1), t));
}

// Returns log((b + a) / (b - a)), which is 2 * atanh(a / b). a / b must be in
// [-1/3, 1/3].
template <class N>
HWY_INLINE typename N::V log_of_ratio(const N& n, typename N::V a,
                                      typename N::V b) {
  using C = ElementaryConstants<typename N::T>;
  const auto s = n.div(a, b), square = n.mul(s, s);
  return n.mul(n.fma(n.mul(polynomial(n, square, C::kLog), square), s, s),
               n.set(2));
}

// Returns log(x), or, if kPlusOne, log(1 + x), with a small relative error.
// Raises nothing invalid, even if x has no log.
template <bool kPlusOne, class N>
HWY_INLINE typename N::V log_of(const N& n, typename N::V x) {
  using T = typename N::T;
  using C = ElementaryConstants<T>;
  using Limits = std::numeric_limits<T>;
  const auto zero = n.set(0), one = n.set(1), inf = n.set(Limits::infinity());
  const auto sum = kPlusOne ? n.add(x, one) : x;
  static_assert(sizeof(T) == 8 || kPlusOne, "see short_log()");
  typename N::V k;
  const auto m = n.split(sum, k);
  auto a = n.sub(m, one), b = n.add(m, one);
  if constexpr (kPlusOne) {
    // The sum loses bits of an x that is small, but its log is that of a ratio.
    const auto small = n.set(0.5f), size = n.abs(x);
    a = n.at_most(size, small, x, a);
    b = n.at_most(size, small, n.add(x, n.set(2)), b);
    k = n.at_most(size, small, zero, k);
  }
  auto y = n.fma(k, n.set(C::kLn2High),
                 n.fma(k, n.set(C::kLn2Low), log_of_ratio(n, a, b)));
  if constexpr (kPlusOne) y = n.equal(x, zero, x, y);
  y = n.equal(sum, zero, n.neg(inf), y);
  y = n.less(sum, zero, n.set(Limits::quiet_NaN()), y);
  // inf and nan
  return n.less(sum, inf, y, sum);
}

// Returns x^y, with C's special values. N must be of double, because the
// exponent's error is one of the result.
template <class N>
HWY_INLINE typename N::V power_of(const N& n, typename N::V x,
                                  typename N::V y) {
  using Limits = std::numeric_limits<double>;
  const auto zero = n.set(0), one = n.set(1), inf = n.set(Limits::infinity());
  const auto size = n.abs(x), exponent_size = n.abs(y);
  auto result = exp_of(n, n.mul(y, log_of<false>(n, size)));
  result =
      n.equal(size, one, n.at_most(exponent_size, inf, one, result), result);
  // Adding it rounds to an integer. A float32 above 2^50 is even.
  const auto round = n.set(0x1.8p52);
  const auto number = n.less(exponent_size, n.set(0x1p50), y, zero);
  const auto half = n.mul(number, n.set(0.5));
  const auto integer = n.sub(n.add(number, round), round);
  const auto half_integer = n.sub(n.add(half, round), round);
  // Only an odd power has the sign of x, and only zeros and inf of negative
  // numbers have other powers than those of integers.
  const auto of_negative =
      n.less(n.neg(inf), x, n.set(Limits::quiet_NaN()), result);
  const auto of_others = n.less(x, zero, of_negative, result);
  const auto of_odd =
      n.equal(number, integer, n.with_sign(result, x), of_others);
  result = n.equal(half, half_integer, result, of_odd);
  return n.equal(y, zero, one, n.equal(x, one, one, result));
}

}  // namespace swamp::slave::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // SWAMP_SLAVE_ELEMENTARY_INL_H_
