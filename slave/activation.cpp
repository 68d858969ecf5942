// The activation kernels, with and without a gate, compiled once per target by
// Highway.
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

// compute() calls body(numbers, in, out) with vectors of float or of double.
template <bool kDouble, std::size_t kIn, std::size_t kOut, class Body>
HWY_INLINE void compute(const VF (&in)[kIn], VF (&out)[kOut],
                        const Body& body) {
  const DF df;
  if constexpr (!kDouble) {
    body(VectorNumbers<DF>{df}, in, out);
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

// Value is y = f(x) * up; without a gate, up is 1.
template <class Function>
struct Value {
  using At = ActivationOperand;
  static constexpr int kIn = 2, kOut = 1;  // the operands; first the inputs
  static constexpr bool kDouble = kIsDouble<Function>;
  template <class N>
  static HWY_INLINE void compute(const N& n, const ActivationArgs& args,
                                 const typename N::V* in, typename N::V* out) {
    out[0] = n.mul(Function::of(n, args, in[At::x]).value, in[At::up]);
  }
};

// Gradient is dx and, with a gate, dup.
template <class Function>
struct Gradient {
  using At = ActivationBackwardOperand;
  static constexpr int kIn = 3, kOut = 2;
  static constexpr bool kDouble = kIsDouble<Function>;
  template <class N>
  static HWY_INLINE void compute(const N& n, const ActivationArgs& args,
                                 const typename N::V* in, typename N::V* out) {
    const auto f = Function::of(n, args, in[At::x]);
    out[0] = times_derivative<Function>(n, n.mul(in[At::gradient], in[At::up]),
                                        in[At::x], f.derivative);
    out[1] = n.mul(in[At::gradient], f.value);
  }
};

// compute_row() computes `count` elements. There is one copy of the formula:
// the last elements, fewer than a vector, are computed in copies, whose other
// lanes hold the first of them again.
template <class Format, class Formula>
HWY_INLINE void compute_row(const ActivationArgs& args,
                            typename Format::Element* const* operands,
                            std::size_t count, const Tile& tile) {
  using Element = typename Format::Element;
  constexpr int kIn = Formula::kIn, kOperands = kIn + Formula::kOut;
  const DF df;
  const std::size_t lanes = hn::Lanes(df);
  HWY_ALIGN Element copies[kOperands][kLanes];
  Element* at[kOperands] = {};
  for (std::size_t i = 0; i < count; i += lanes) {
    const std::size_t here = count - i < lanes ? count - i : lanes;
    for (int s = 0; s < kOperands; ++s) {
      if (operands[s] == nullptr) continue;
      at[s] = operands[s] + i;
      if (s < kIn) prefetch(at[s], lanes, tile.prefetch_bytes);
      if (HWY_UNLIKELY(here < lanes)) {
        if (s < kIn) copy_tail(at[s], here, copies[s]);
        at[s] = copies[s];
      }
    }
    VF in[kIn], out[Formula::kOut];
    for (int s = 0; s < kIn; ++s) {
      in[s] =
          operands[s] == nullptr ? hn::Set(df, 1.0f) : Format::load(df, at[s]);
    }
    compute<std::is_same_v<Format, Float32> || Formula::kDouble>(
        in, out, [&](const auto& n, const auto& from, auto& to) HWY_ATTR {
          Formula::compute(n, args, from, to);
        });
    for (int s = kIn; s < kOperands; ++s) {
      if (at[s] == nullptr) continue;
      store_as<Format>(df, out[s - kIn], std::false_type(), at[s]);
      if (HWY_UNLIKELY(here < lanes)) {
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
    compute_row<Format, Formula>(args, operands, part.columns, tile);
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
  using At = ActivationBackwardOperand;
  const auto& args = *static_cast<const ActivationArgs*>(arguments);
  const bool of_result = tile.operands[At::up] == nullptr;
  with_activation(args, of_result, [&](auto function) HWY_ATTR {
    compute_tile<Format, Gradient<decltype(function)>>(args, tile);
  });
}

}  // namespace

SWAMP_KERNELS(activation, kUpTo32, activation<A>)
SWAMP_KERNELS(activation_backward, kUpTo32, backward<A>)

}  // namespace swamp::slave::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
