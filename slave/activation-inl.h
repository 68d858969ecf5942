// The activations, as formulas of any arithmetic: vectors of float or double
// per target, and plain numbers in the reference. Multiplications, divisions
// and fused multiply-adds in a fixed order, so that every ISA has the same
// bits. Included once per target, like Highway's own -inl.h.
#if defined(SWAMP_SLAVE_ACTIVATION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SWAMP_SLAVE_ACTIVATION_INL_H_
#undef SWAMP_SLAVE_ACTIVATION_INL_H_
#else
#define SWAMP_SLAVE_ACTIVATION_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "slave/exact_fma-inl.h"
#include "slave/row_args.h"

HWY_BEFORE_NAMESPACE();
namespace swamp::slave::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Coefficients of polynomials, the highest first, and the numbers of exp(). The
// polynomials are Chebyshev's, which are almost minimax:
// - kExp: (exp(r) - 1 - r) / r^2 for |r| <= ln2 / 2
// - kTail: Phi(-t) * exp(t^2 / 2) * (t + 4) for t in [0, 14.6], as a polynomial
//   of (t - 4) / (t + 4); Phi is the normal distribution
// - kLog: (atanh(s) / s - 1) / s^2 for s in [0, 1/3], as one of s^2
// double serves float32 elements: relative errors of 9e-16, 1e-15, 5e-18.
template <class T>
struct ActivationConstants;
// Constants rounded by the compiler, not in the caller's rounding mode.
template <class T>
struct ActivationNumbers {
  static constexpr T kLog2E = static_cast<T>(0x1.71547652b82fep0);
  static constexpr T kDensity = static_cast<T>(0x1.9884533d43651p-2);
  static constexpr T kGeluTanh = static_cast<T>(0x1.9884533d43651p0);
  static constexpr T kCubic = static_cast<T>(0.044715);
};
template <>
struct ActivationConstants<double> : ActivationNumbers<double> {
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
// float serves 16-bit elements: relative errors of 4e-8, 2e-7, 2e-8.
template <>
struct ActivationConstants<float> : ActivationNumbers<float> {
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
  // power() is the number whose exponent is the low bits of `rounded`.
  HWY_INLINE V power(V rounded) const {
    const hn::RebindToUnsigned<D> du;
    constexpr int kMantissa = sizeof(T) == 8 ? 52 : 23;
    return hn::BitCast(d, hn::ShiftLeft<kMantissa>(hn::BitCast(du, rounded)));
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

// Exp is exp(t) and exp(t) - 1, both with a small relative error. Of nan it is
// nan.
template <class N>
struct Exp {
  typename N::V exp, expm1;

  // Of t <= 0.
  HWY_INLINE Exp(const N& n, typename N::V value) {
    using C = ActivationConstants<typename N::T>;
    const auto lowest = n.set(C::kLowest);
    // Replaced before it is computed with: -inf - -inf is invalid.
    const auto t = n.less(value, lowest, lowest, value);
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

// Both holds a function's value and its derivative. Most kernels use only one.
template <class N>
struct Both {
  typename N::V value, derivative;
};

// OfResult is an activation at its result.
template <class Function>
struct OfResult {
  template <class N>
  static HWY_INLINE Both<N> of(const N& n, const ActivationArgs&,
                               typename N::V y) {
    return {y, Function::of_result(n, y)};
  }
};

// sigmoid_of() is 1 / (1 + exp(-z)) and its derivative: small values are not
// differences.
template <class N>
HWY_INLINE Both<N> sigmoid_of(const N& n, typename N::V z) {
  const auto one = n.set(1);
  const auto e = Exp<N>(n, n.neg(n.abs(z))).exp;
  const auto d = n.div(one, n.add(one, e)), ed = n.mul(e, d);
  return {n.less(z, n.set(0), ed, d), n.mul(ed, d)};
}

// Each activation has of(n, args, x), its value and its derivative at x. One
// whose backward reads the result also has of_result(n, y), the derivative.
struct Sigmoid {
  template <class N>
  static HWY_INLINE Both<N> of(const N& n, const ActivationArgs&,
                               typename N::V x) {
    return sigmoid_of(n, x);
  }
  template <class N>
  static HWY_INLINE typename N::V of_result(const N& n, typename N::V y) {
    return n.mul(n.sub(n.set(1), y), y);
  }
};

struct Silu {
  template <class N>
  static HWY_INLINE Both<N> of(const N& n, const ActivationArgs&,
                               typename N::V x) {
    const Both<N> s = sigmoid_of(n, x);
    return {n.mul(x, s.value), n.fma(x, s.derivative, s.value)};
  }
};

// x * Phi(x). The derivative is Phi(x) + x * exp(-x^2 / 2) / sqrt(2 * pi).
struct Gelu {
  template <class N>
  static HWY_INLINE Both<N> of(const N& n, const ActivationArgs&,
                               typename N::V x) {
    using C = ActivationConstants<typename N::T>;
    const auto one = n.set(1), most = n.set(14.5f), size = n.abs(x);
    const auto t = n.less(most, size, most, size);
    const auto e = Exp<N>(n, n.mul(n.mul(size, size), n.set(-0.5f))).exp;
    const auto w = n.div(one, n.add(t, n.set(4)));
    const auto u = n.sub(one, n.mul(n.set(8), w));
    const auto tail = n.mul(n.mul(e, w), polynomial(n, u, C::kTail));
    const auto phi = n.less(x, n.set(0), tail, n.sub(one, tail));
    return {n.mul(x, phi), n.fma(n.mul(x, n.set(C::kDensity)), e, phi)};
  }
};

// x * sigmoid(z) with z = 2 * sqrt(2 / pi) * (x + 0.044715 * x^3).
struct GeluTanh {
  template <class N>
  static HWY_INLINE Both<N> of(const N& n, const ActivationArgs&,
                               typename N::V x) {
    using C = ActivationConstants<typename N::T>;
    const auto factor = n.set(C::kGeluTanh);
    const auto square = n.mul(x, x);
    const auto cubic = n.mul(n.set(C::kCubic), square);
    const auto z = n.mul(n.mul(factor, x), n.add(cubic, n.set(1)));
    const Both<N> s = sigmoid_of(n, z);
    // Beyond 30 the sigmoid's derivative is 0, and this must not be inf.
    const auto inner =
        n.mul(n.mul(factor, x), n.fma(cubic, n.set(3), n.set(1)));
    const auto second =
        n.less(n.set(30), n.abs(x), n.set(0), n.mul(inner, s.derivative));
    return {n.mul(x, s.value), n.add(s.value, second)};
  }
};

struct Tanh {
  template <class N>
  static HWY_INLINE Both<N> of(const N& n, const ActivationArgs&,
                               typename N::V x) {
    const Exp<N> e(n, n.mul(n.abs(x), n.set(-2)));
    const auto two = n.set(2), sum = n.add(two, e.expm1);
    return {n.with_sign(n.div(n.abs(e.expm1), sum), x),
            n.div(n.mul(n.set(4), e.exp), n.mul(sum, sum))};
  }
  template <class N>
  static HWY_INLINE typename N::V of_result(const N& n, typename N::V y) {
    return n.mul(n.sub(n.set(1), y), n.add(n.set(1), y));
  }
};

struct Relu {
  template <class N>
  static HWY_INLINE Both<N> of(const N& n, const ActivationArgs&,
                               typename N::V x) {
    const auto zero = n.set(0);
    return {n.less(x, zero, zero, x), n.at_most(x, zero, zero, n.set(1))};
  }
};

struct ReluSquared {
  template <class N>
  static HWY_INLINE Both<N> of(const N& n, const ActivationArgs&,
                               typename N::V x) {
    const auto positive = n.less(x, n.set(0), n.set(0), x);
    return {n.mul(positive, positive), n.mul(n.set(2), positive)};
  }
};

// log(1 + exp(z)) / beta with z = beta * x; x above the threshold of z.
struct Softplus {
  template <class N>
  static HWY_INLINE Both<N> of(const N& n, const ActivationArgs& args,
                               typename N::V x) {
    using T = typename N::T;
    using C = ActivationConstants<T>;
    const auto zero = n.set(0), one = n.set(1), two = n.set(2);
    const auto beta = n.set(static_cast<T>(args.beta));
    const auto threshold = n.set(static_cast<T>(args.threshold));
    const auto z = n.mul(x, beta);
    const auto e = Exp<N>(n, n.neg(n.abs(z))).exp;
    // log(1 + e) is 2 * atanh(s).
    const auto s = n.div(e, n.add(two, e)), square = n.mul(s, s);
    const auto log =
        n.mul(n.fma(n.mul(polynomial(n, square, C::kLog), square), s, s), two);
    const auto sum = n.add(n.less(z, zero, zero, z), log);
    const auto d = n.div(one, n.add(one, e));
    return {n.less(threshold, z, x, n.div(sum, beta)),
            n.less(threshold, z, one, n.less(z, zero, n.mul(e, d), d))};
  }
};

struct Exponential {
  template <class N>
  static HWY_INLINE Both<N> of(const N& n, const ActivationArgs&,
                               typename N::V x) {
    const auto e = Exp<N>(n, n.neg(n.abs(x))).exp;
    const auto y = n.less(n.set(0), x, n.div(n.set(1), e), e);
    return {y, y};
  }
  template <class N>
  static HWY_INLINE typename N::V of_result(const N&, typename N::V y) {
    return y;
  }
};

// times_derivative() multiplies a gradient by the derivative at x. Where relu
// is 0 it gives 0, of any gradient.
template <class Function, class N>
HWY_INLINE typename N::V times_derivative(const N& n, typename N::V gradient,
                                          typename N::V x,
                                          typename N::V derivative) {
  const auto product = n.mul(gradient, derivative);
  if constexpr (std::is_same_v<Function, Relu> ||
                std::is_same_v<Function, ReluSquared>) {
    return n.at_most(x, n.set(0), n.set(0), product);
  } else {
    return product;
  }
}

// with_activation() calls body(function) with the activation of the arguments,
// or, with `of_result`, with its gradient at a result, if backward reads that.
template <class Body>
HWY_INLINE void with_activation(const ActivationArgs& args, bool of_result,
                                const Body& body) {
  using A = ActivationArgs;
  switch (args.function) {
    case A::silu:
      return body(Silu());
    case A::gelu:
      return body(Gelu());
    case A::gelu_tanh:
      return body(GeluTanh());
    case A::tanh:
      return of_result ? body(OfResult<Tanh>()) : body(Tanh());
    case A::sigmoid:
      return of_result ? body(OfResult<Sigmoid>()) : body(Sigmoid());
    case A::relu:
      return body(Relu());
    case A::relu_squared:
      return body(ReluSquared());
    case A::softplus:
      return body(Softplus());
    default:
      return of_result ? body(OfResult<Exponential>()) : body(Exponential());
  }
}

}  // namespace swamp::slave::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // SWAMP_SLAVE_ACTIVATION_INL_H_
