// The activations, as formulas of any arithmetic: see slave/elementary-inl.h.
// Included once per target, like Highway's own -inl.h.
#if defined(SWAMP_SLAVE_ACTIVATION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SWAMP_SLAVE_ACTIVATION_INL_H_
#undef SWAMP_SLAVE_ACTIVATION_INL_H_
#else
#define SWAMP_SLAVE_ACTIVATION_INL_H_
#endif

#include <hwy/highway.h>

#include <limits>
#include <type_traits>

#include "slave/elementary-inl.h"
#include "slave/row_args.h"

HWY_BEFORE_NAMESPACE();
namespace swamp::slave::HWY_NAMESPACE {

using DF = hn::ScalableTag<float>;
using VF = hn::Vec<DF>;

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
    using C = ElementaryConstants<typename N::T>;
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
    using C = ElementaryConstants<typename N::T>;
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
    const auto zero = n.set(0), one = n.set(1);
    const auto beta = n.set(static_cast<T>(args.beta));
    const auto threshold = n.set(static_cast<T>(args.threshold));
    const auto z = n.mul(x, beta);
    const auto e = Exp<N>(n, n.neg(n.abs(z))).exp;
    const auto log = log_of_ratio(n, e, n.add(n.set(2), e));  // of 1 + e
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
    typename N::V y;
    if constexpr (sizeof(typename N::T) == 4) {
      y = short_exp(n, x);
    } else {
      y = exp_of(n, x);
    }
    return {y, y};
  }
  template <class N>
  static HWY_INLINE typename N::V of_result(const N&, typename N::V y) {
    return y;
  }
  // usual() computes of() in fewer operations, with the same bits, for vectors
  // that pass all_usual().
  static HWY_INLINE bool all_usual(VF x) {
    const DF df;
    return hn::AllTrue(df, hn::Lt(hn::Abs(x), hn::Set(df, kMostSmall)));
  }
  static HWY_INLINE VF usual(VF x) {
    return short_exp_of_small(VectorNumbers<DF>{}, x);
  }
};

struct Log {
  template <class N>
  static HWY_INLINE Both<N> of(const N& n, const ActivationArgs&,
                               typename N::V x) {
    typename N::V y;
    if constexpr (sizeof(typename N::T) == 4) {
      y = short_log(n, x);
    } else {
      y = log_of<false>(n, x);
    }
    return {y, n.div(n.set(1), x)};
  }
  static HWY_INLINE bool all_usual(VF x) {
    const hn::RebindToUnsigned<DF> du;
    const auto above = hn::Sub(hn::BitCast(du, x), hn::Set(du, 0x800000u));
    return hn::AllTrue(du, hn::Lt(above, hn::Set(du, 0x7f000000u)));
  }
  static HWY_INLINE VF usual(VF x) {
    return short_log_of_normal(VectorNumbers<DF>{}, x, hn::Zero(DF()));
  }
};

struct Log1p {
  template <class N>
  static HWY_INLINE Both<N> of(const N& n, const ActivationArgs&,
                               typename N::V x) {
    return {log_of<true>(n, x), n.div(n.set(1), n.add(n.set(1), x))};
  }
};

struct Expm1 {
  template <class N>
  static HWY_INLINE Both<N> of(const N& n, const ActivationArgs&,
                               typename N::V x) {
    return {expm1_of(n, x), exp_of(n, x)};
  }
  template <class N>
  static HWY_INLINE typename N::V of_result(const N& n, typename N::V y) {
    return n.add(y, n.set(1));
  }
};

// 1 / sqrt(x)
struct Rsqrt {
  template <class N>
  static HWY_INLINE Both<N> of(const N& n, const ActivationArgs&,
                               typename N::V x) {
    using Limits = std::numeric_limits<typename N::T>;
    const auto zero = n.set(0), one = n.set(1);
    const auto root = n.sqrt(n.less(x, zero, one, x));
    const auto y =
        n.less(x, zero, n.set(Limits::quiet_NaN()), n.div(one, root));
    return {y, of_result(n, y)};
  }
  template <class N>
  static HWY_INLINE typename N::V of_result(const N& n, typename N::V y) {
    return n.mul(n.mul(n.mul(n.set(-0.5f), y), y), y);
  }
};

// x * tanh(log(1 + exp(x))). With e = exp(x) the tanh is a / (a + 2), a = e *
// (e + 2), and its derivative is 4 * e * (e + 1) / (a + 2)^2. If x is positive,
// the fractions are reduced by e^2 and e^4.
struct Mish {
  template <class N>
  static HWY_INLINE Both<N> of(const N& n, const ActivationArgs&,
                               typename N::V x) {
    const auto zero = n.set(0), one = n.set(1), two = n.set(2);
    const auto e = Exp<N>(n, n.neg(n.abs(x))).exp, square = n.mul(e, e);
    const auto a = n.less(zero, x, n.fma(two, e, one), n.fma(two, e, square));
    const auto d = n.div(one, n.fma(two, n.less(zero, x, square, one), a));
    const auto tanh = n.mul(a, d);
    const auto b = n.mul(n.less(zero, x, square, e), n.add(one, e));
    const auto slope = n.mul(n.mul(n.mul(n.set(4), b), d), d);
    return {n.mul(x, tanh), n.fma(x, slope, tanh)};
  }
};

// scale * x, or of x <= 0 scale * alpha * (exp(beta * x) - 1)
struct Elu {
  template <class N>
  static HWY_INLINE Both<N> of(const N& n, const ActivationArgs& args,
                               typename N::V x) {
    using T = typename N::T;
    const auto zero = n.set(0), scale = n.set(static_cast<T>(args.scale));
    const auto beta = n.set(static_cast<T>(args.beta));
    const auto factor = n.mul(n.set(static_cast<T>(args.alpha)), scale);
    const auto t = n.mul(x, beta);
    return {
        n.at_most(x, zero, n.mul(factor, expm1_of(n, t)), n.mul(scale, x)),
        n.less(zero, x, scale, n.mul(n.mul(factor, beta), exp_of(n, t)))};
  }
};

// x^k by products
template <int k>
struct WholePower {
  template <class N>
  static HWY_INLINE Both<N> of(const N& n, const ActivationArgs&,
                               typename N::V x) {
    static_assert(k == 2 || k == 3 || k == -1 || k == -2);
    // x * x of a negative power might overflow.
    const auto factor = k > 0 ? x : n.div(n.set(1), x);
    const auto square = n.mul(factor, factor);
    if constexpr (k == 2) return {square, n.add(x, x)};
    if constexpr (k == 3) return {n.mul(square, x), n.mul(n.set(3), square)};
    if constexpr (k == -1) return {factor, n.neg(square)};
    return {square, n.mul(n.mul(n.set(-2), square), factor)};
  }
};

// x^beta
struct Power {
  template <class N>
  static HWY_INLINE Both<N> of(const N& n, const ActivationArgs& args,
                               typename N::V x) {
    const auto zero = n.set(0), exponent = n.set(double{args.beta});
    const auto lower = power_of(n, x, n.sub(exponent, n.set(1)));
    return {power_of(n, x, exponent),
            n.equal(exponent, zero, zero, n.mul(exponent, lower))};
  }
};

// beta^x. The derivative is 0 where 0^x is constant.
struct BasePower {
  template <class N>
  static HWY_INLINE Both<N> of(const N& n, const ActivationArgs& args,
                               typename N::V x) {
    const auto zero = n.set(0), base = n.set(double{args.beta});
    const auto y = power_of(n, base, x);
    const auto derivative = n.mul(y, log_of<false>(n, base));
    return {y, n.equal(base, zero, n.at_most(zero, x, zero, derivative),
                       derivative)};
  }
};

// Tells whether a function has usual().
template <class Function>
inline constexpr bool kHasUsual =
    std::is_same_v<Function, Exponential> || std::is_same_v<Function, Log>;

// Tells whether a function of 16-bit elements is computed in double, too.
template <class Function>
inline constexpr bool kIsDouble =
    std::is_same_v<Function, Power> || std::is_same_v<Function, BasePower>;

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
    case A::exp:
      return of_result ? body(OfResult<Exponential>()) : body(Exponential());
    case A::log:
      return body(Log());
    case A::log1p:
      return body(Log1p());
    case A::expm1:
      return of_result ? body(OfResult<Expm1>()) : body(Expm1());
    case A::rsqrt:
      return of_result ? body(OfResult<Rsqrt>()) : body(Rsqrt());
    case A::mish:
      return body(Mish());
    case A::elu:
      return body(Elu());
    case A::pow:
      if (args.beta == 2) return body(WholePower<2>());
      if (args.beta == 3) return body(WholePower<3>());
      if (args.beta == -1) return body(WholePower<-1>());
      if (args.beta == -2) return body(WholePower<-2>());
      return body(Power());
    default:
      return body(BasePower());
  }
}

}  // namespace swamp::slave::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // SWAMP_SLAVE_ACTIVATION_INL_H_
