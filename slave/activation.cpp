// The activation kernels, with and without a gate, compiled once per target by
// Highway.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "slave/kernel_table.h"
#include "slave/row_args.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "slave/activation.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "slave/activation-inl.h"
#include "slave/pairs-inl.h"
#include "slave/row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace swamp::slave::HWY_NAMESPACE {
namespace {

// narrow_double() rounds doubles to float. Highway's own DemoteTo turns inf
// into the largest finite float on targets without vectors.
template <class DF, class DD>
HWY_INLINE hn::Vec<DF> narrow_double(DF df, DD dd, hn::Vec<DD> value) {
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
  HWY_ALIGN double wide[hn::MaxLanes(DD())];
  HWY_ALIGN float narrow[hn::MaxLanes(DF())];
  hn::Store(value, dd, wide);
  for (std::size_t i = 0; i < hn::Lanes(dd); ++i) {
    narrow[i] = static_cast<float>(wide[i]);
  }
  return hn::Load(df, narrow);
#else
  (void)dd;
  return hn::DemoteTo(df, value);
#endif
}

// compute_half() is compute() of doubles, for one half of the lanes of `in`, or
// for all if there is one lane.
template <class DH, std::size_t kIn, std::size_t kOut, class Body>
HWY_INLINE void compute_half(DH dh, const hn::Vec<DH> (&in)[kIn],
                             hn::Vec<DH> (&out)[kOut], const Body& body) {
  const hn::Rebind<double, DH> dd;
  hn::Vec<decltype(dd)> wide[kIn], results[kOut];
  for (std::size_t i = 0; i < kIn; ++i) wide[i] = hn::PromoteTo(dd, in[i]);
  body(VectorNumbers<hn::Rebind<double, DH>>{dd}, wide, results);
  for (std::size_t i = 0; i < kOut; ++i) {
    out[i] = narrow_double(dh, dd, results[i]);
  }
}

// compute() calls body(numbers, in, out) with vectors of float or of double,
// which returns whether a result may be nan. That becomes one without payload.
template <bool kDouble, std::size_t kIn, std::size_t kOut, class Body>
HWY_INLINE void compute(const VF (&in)[kIn], VF (&out)[kOut],
                        const Body& body) {
  const DF df;
  if constexpr (!kDouble) {
    if (!body(VectorNumbers<DF>{df}, in, out)) return;
  } else {
#if HWY_TARGET == HWY_SCALAR
    compute_half(df, in, out, body);
#else
    const hn::Half<DF> dh;
    hn::Vec<decltype(dh)> low[kIn], high[kIn], low_out[kOut], high_out[kOut];
    for (std::size_t i = 0; i < kIn; ++i) {
      low[i] = hn::LowerHalf(dh, in[i]);
      high[i] = hn::UpperHalf(dh, in[i]);
    }
    compute_half(dh, low, low_out, body);
    compute_half(dh, high, high_out, body);
    for (std::size_t i = 0; i < kOut; ++i) {
      out[i] = hn::Combine(df, high_out[i], low_out[i]);
    }
#endif
  }
  const auto nan = hn::Set(df, std::numeric_limits<float>::quiet_NaN());
  for (VF& value : out) {
    value = hn::IfThenElse(hn::IsNaN(value), nan, value);
  }
}

// Value is y = f(x), times up if there is one.
template <class Function>
struct Value {
  using At = ActivationOperand;
  static constexpr int kIn = 2, kOut = 1;  // the operands; first the inputs
  static constexpr int kUp = At::up;
  static constexpr bool kDouble = kIsDouble<Function>;
  // Whether operand s exists.
  static constexpr bool has(int s, bool has_up) { return s != kUp || has_up; }
  template <class N>
  static HWY_INLINE bool compute(const N& n, const ActivationArgs& args,
                                 bool has_up, const typename N::V* in,
                                 typename N::V* out) {
    if constexpr (kHasUsual<Function> && sizeof(typename N::T) == 4) {
      if (HWY_LIKELY(!has_up && Function::all_usual(in[At::x]))) {
        out[0] = Function::usual(in[At::x]);
        return false;
      }
    }
    out[0] = Function::of(n, args, in[At::x]).value;
    if (has_up) out[0] = n.mul(out[0], in[At::up]);
    return true;
  }
};

// Gradient is dx and, with a gate, dup.
template <class Function>
struct Gradient {
  using At = ActivationBackwardOperand;
  static constexpr int kIn = 3, kOut = 2;
  static constexpr int kUp = At::up;
  static constexpr bool kDouble = kIsDouble<Function>;
  static constexpr bool has(int s, bool has_up) {
    return (s != kUp && s != At::dup) || has_up;
  }
  template <class N>
  static HWY_INLINE bool compute(const N& n, const ActivationArgs& args,
                                 bool has_up, const typename N::V* in,
                                 typename N::V* out) {
    const auto f = Function::of(n, args, in[At::x]);
    auto gradient = in[At::gradient];
    out[1] = gradient;
    if (has_up) {
      out[1] = n.mul(gradient, f.value);
      gradient = n.mul(gradient, in[At::up]);
    }
    out[0] = times_derivative<Function>(n, gradient, in[At::x], f.derivative);
    return true;
  }
};

// Batch is the elements that are computed at once. Whether there is a gate is
// known at run time, because most functions are never called with one.
template <class Format, class Formula>
struct Batch {
  using Element = typename Format::Element;
  static constexpr bool kIsWide =
      std::is_same_v<Format, Float32> || Formula::kDouble;
  static constexpr bool kIsPair =
      kInPairs && std::is_same_v<Format, BFloat16> && !kIsWide;
  static constexpr std::size_t kStep = kIsPair ? Pairs::kStep : kLanes;

  static HWY_INLINE void compute(const ActivationArgs& args, bool has_up,
                                 Element* const* at) {
    const DF df;
    const auto values = [&](const auto& in, auto& out) HWY_ATTR {
      HWY_NAMESPACE::compute<kIsWide>(
          in, out, [&](const auto& n, const auto& from, auto& to) HWY_ATTR {
            return Formula::compute(n, args, has_up, from, to);
          });
    };
    VF in[Formula::kIn], out[Formula::kOut];
    if constexpr (kIsPair) {
      VF odd_in[Formula::kIn], odd_out[Formula::kOut];
      for (int s = 0; s < Formula::kIn; ++s) {
        in[s] = odd_in[s] = hn::Zero(df);
        if (!Formula::has(s, has_up)) continue;
        const Pairs both = Pairs::load(at[s]);
        in[s] = both.even, odd_in[s] = both.odd;
      }
      values(in, out);
      values(odd_in, odd_out);
      for (int s = 0; s < Formula::kOut; ++s) {
        if (!Formula::has(Formula::kIn + s, has_up)) continue;
        Pairs{out[s], odd_out[s]}.template store<false, true>(
            at[Formula::kIn + s]);
      }
    } else {
      for (int s = 0; s < Formula::kIn; ++s) {
        in[s] = hn::Zero(df);
        if (Formula::has(s, has_up)) in[s] = Format::load(df, at[s]);
      }
      values(in, out);
      for (int s = 0; s < Formula::kOut; ++s) {
        if (!Formula::has(Formula::kIn + s, has_up)) continue;
        store_as<Format>(df, out[s], std::false_type(), at[Formula::kIn + s]);
      }
    }
  }
};

// compute_row() computes `count` elements. There is one copy of the formula:
// the last elements, fewer than a batch, are computed in copies, whose other
// elements hold the first of them again.
template <class Format, class Formula>
HWY_INLINE void compute_row(const ActivationArgs& args, bool has_up,
                            typename Format::Element* const* operands,
                            std::size_t count, const Tile& tile) {
  using Element = typename Format::Element;
  using Here = Batch<Format, Formula>;
  constexpr int kIn = Formula::kIn, kOperands = kIn + Formula::kOut;
  constexpr std::size_t kStep = Here::kStep;
  HWY_ALIGN Element copies[kOperands][kStep];
  Element* at[kOperands] = {};
  for (std::size_t i = 0; i < count; i += kStep) {
    const std::size_t here = count - i < kStep ? count - i : kStep;
    for (int s = 0; s < kOperands; ++s) {
      if (!Formula::has(s, has_up)) continue;
      at[s] = operands[s] + i;
      if (s < kIn) prefetch(at[s], kStep, tile.prefetch_bytes);
      if (HWY_UNLIKELY(here < kStep)) {
        if (s < kIn) {
          std::fill_n(copies[s], kStep, at[s][0]);
          std::memcpy(copies[s], at[s], here * sizeof(Element));
        }
        at[s] = copies[s];
      }
    }
    Here::compute(args, has_up, at);
    if (HWY_UNLIKELY(here < kStep)) {
      for (int s = kIn; s < kOperands; ++s) {
        if (!Formula::has(s, has_up)) continue;
        std::memcpy(operands[s] + i, copies[s], here * sizeof(Element));
      }
    }
  }
}

// compute_tile() computes the rows of a tile, all at once if they follow each
// other.
template <class Format, class Formula>
HWY_INLINE void compute_tile(const ActivationArgs& args, const Tile& tile) {
  using Element = typename Format::Element;
  constexpr int kOperands = Formula::kIn + Formula::kOut;
  const bool has_up = tile.operands[Formula::kUp] != nullptr;
  RowPart part = part_of_rows(tile, args.columns);
  bool is_dense = true;
  for (int s = 0; s < kOperands && part.rows > 1; ++s) {
    is_dense =
        is_dense && (tile.operands[s] == nullptr ||
                     tile.layout[s].unit_step == tile.layout[s].unit_bytes);
  }
  if (is_dense) {
    part.columns *= part.rows;
    part.rows = 1;
  }
  for (std::size_t i = 0; i < part.rows; ++i) {
    Element* operands[kOperands];
    for (int s = 0; s < kOperands; ++s) {
      operands[s] = operand<Element>(tile, s);
      if (operands[s] != nullptr && i != 0) {
        operands[s] += i * tile.layout[s].unit_step / sizeof(Element);
      }
    }
    compute_row<Format, Formula>(args, has_up, operands, part.columns, tile);
  }
}

template <class Format>
HWY_INLINE void activation(const void* arguments, const Tile& tile, Result&) {
  const auto& args = *static_cast<const ActivationArgs*>(arguments);
  with_activation(args, false, [&](auto function) HWY_ATTR {
    compute_tile<Format, Value<decltype(function)>>(args, tile);
  });
}

template <class Format>
HWY_INLINE void backward(const void* arguments, const Tile& tile, Result&) {
  const auto& args = *static_cast<const ActivationArgs*>(arguments);
  const bool of_result =
      tile.operands[ActivationBackwardOperand::up] == nullptr;
  with_activation(args, of_result, [&](auto function) HWY_ATTR {
    compute_tile<Format, Gradient<decltype(function)>>(args, tile);
  });
}

}  // namespace

SWAMP_KERNELS(activation, kUpTo32, activation<A>)
SWAMP_KERNELS(activation_backward, kUpTo32, backward<A>)

}  // namespace swamp::slave::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
