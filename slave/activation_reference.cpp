// The scalar references of the activations: the formulas of
// slave/activation-inl.h on one number at a time. Their errors are tested
// against a C library's.
#include <cmath>
#include <cstring>
#include <limits>

#include "slave/activation-inl.h"
#include "slave/reference.h"
#include "slave/row_args.h"

// The formulas are inlined only into functions of their target.
HWY_BEFORE_NAMESPACE();
namespace swamp::slave::reference {
namespace {

using HWY_NAMESPACE::ElementaryConstants;
using HWY_NAMESPACE::kIsDouble;
using HWY_NAMESPACE::times_derivative;
using HWY_NAMESPACE::with_activation;

// ScalarNumbers is the arithmetic of one number.
template <class Number>
struct ScalarNumbers {
  using T = Number;
  using V = Number;

  V set(T x) const { return x; }
  V add(V a, V b) const { return a + b; }
  V sub(V a, V b) const { return a - b; }
  V mul(V a, V b) const { return a * b; }
  V div(V a, V b) const { return a / b; }
  V fma(V a, V b, V c) const { return std::fma(a, b, c); }
  V neg(V a) const { return -a; }
  V abs(V a) const { return std::fabs(a); }
  V with_sign(V size, V sign) const { return std::copysign(size, sign); }
  V less(V a, V b, V yes, V no) const { return a < b ? yes : no; }
  V at_most(V a, V b, V yes, V no) const { return a <= b ? yes : no; }
  V equal(V a, V b, V yes, V no) const { return a == b ? yes : no; }
  V sqrt(V a) const { return std::sqrt(a); }
  V power(V rounded) const { return number(bits(rounded) << C::kMantissa); }
  V split(V x, V& k) const {
    const Bits all = bits(x) + (C::kOne - C::kRootHalf);
    k = number(all >> C::kMantissa | C::kInteger) -
        (C::kIntegerNumber + T{C::kExponentBias});
    return number((all & ((Bits{1} << C::kMantissa) - 1)) + C::kRootHalf);
  }

 private:
  using C = ElementaryConstants<T>;
  using Bits = typename C::Bits;
  static Bits bits(T x) {
    Bits result;
    std::memcpy(&result, &x, sizeof result);
    return result;
  }
  static T number(Bits bits) {
    T result;
    std::memcpy(&result, &bits, sizeof result);
    return result;
  }
};

// NumberOf is what a function's elements of a format are computed in.
template <class Format, class Function>
using NumberOf =
    std::conditional_t<std::is_same_v<Format, Float32> || kIsDouble<Function>,
                       double, float>;

template <class Format, class T>
typename Format::Element narrow(T value) {
  const auto rounded = static_cast<float>(value);
  return Format::narrow(
      std::isnan(rounded) ? std::numeric_limits<float>::quiet_NaN() : rounded);
}

// in() and out() return operand s of a tile; null if it is absent.
template <class Format>
const typename Format::Element* in(const Tile& tile, int s) {
  return static_cast<const typename Format::Element*>(tile.operands[s]);
}
template <class Format>
typename Format::Element* out(const Tile& tile, int s) {
  return static_cast<typename Format::Element*>(tile.operands[s]);
}

template <class Format>
void activation(const void* arguments, const Tile& tile, Result&) {
  using At = ActivationOperand;
  const auto& args = *static_cast<const ActivationArgs*>(arguments);
  const auto* const x = in<Format>(tile, At::x);
  const auto* const up = in<Format>(tile, At::up);
  auto* const y = out<Format>(tile, At::y);
  with_activation(args, false, [&](auto function) {
    using T = NumberOf<Format, decltype(function)>;
    const ScalarNumbers<T> n;
    for (std::size_t i = 0; i < tile.count * args.columns; ++i) {
      T value = function.of(n, args, T{Format::widen(x[i])}).value;
      if (up != nullptr) value *= T{Format::widen(up[i])};
      y[i] = narrow<Format>(value);
    }
  });
}

template <class Format>
void backward(const void* arguments, const Tile& tile, Result&) {
  using At = ActivationBackwardOperand;
  const auto& args = *static_cast<const ActivationArgs*>(arguments);
  const auto* const gradient = in<Format>(tile, At::gradient);
  const auto* const x = in<Format>(tile, At::x);
  const auto* const up = in<Format>(tile, At::up);
  auto* const dx = out<Format>(tile, At::dx);
  auto* const dup = out<Format>(tile, At::dup);
  with_activation(args, up == nullptr, [&](auto function) {
    using T = NumberOf<Format, decltype(function)>;
    const ScalarNumbers<T> n;
    for (std::size_t i = 0; i < tile.count * args.columns; ++i) {
      const auto f = function.of(n, args, T{Format::widen(x[i])});
      const T g{Format::widen(gradient[i])};
      const T factor = up == nullptr ? T{1} : T{Format::widen(up[i])};
      dx[i] = narrow<Format>(times_derivative<decltype(function)>(
          n, g * factor, T{Format::widen(x[i])}, f.derivative));
      if (dup != nullptr) dup[i] = narrow<Format>(g * f.value);
    }
  });
}

}  // namespace

SWAMP_KERNELS(activation, kUpTo32, activation<A>)
SWAMP_KERNELS(activation_backward, kUpTo32, backward<A>)

}  // namespace swamp::slave::reference
HWY_AFTER_NAMESPACE();
