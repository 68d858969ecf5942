// Affine functions whose factors differ from row to row (BatchNorm, GroupNorm
// and their gradients), compiled once per target by Highway.
#include <type_traits>

#include "slave/kernel_table.h"
#include "slave/row_args.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "slave/row_affine.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "slave/row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace swamp::slave::HWY_NAMESPACE {
namespace {

template <class Format>
struct Affine {
  using Element = typename Format::Element;
  VF shift, x_factor, addend, gradient_factor;

  HWY_INLINE explicit Affine(const RowFactors& factors)
      : shift(hn::Set(DF(), factors.shift)),
        x_factor(hn::Set(DF(), factors.x_factor)),
        addend(hn::Set(DF(), factors.addend)),
        gradient_factor(hn::Set(DF(), factors.gradient_factor)) {}

  HWY_INLINE VF of(const Element* x) const {
    const VF d = hn::Sub(Format::load(DF(), x), shift);
    return hn::Add(hn::Mul(d, x_factor), addend);
  }
  template <class NonTemporal>
  HWY_INLINE void operator()(NonTemporal non_temporal, const Element* x,
                             Element* y) const {
    store_as<Format>(DF(), of(x), non_temporal, y);
  }
  template <class NonTemporal>
  HWY_INLINE void operator()(NonTemporal non_temporal, const Element* x,
                             const Element* gradient, Element* y) const {
    const VF product = hn::Mul(Format::load(DF(), gradient), gradient_factor);
    store_as<Format>(DF(), hn::Add(product, of(x)), non_temporal, y);
  }
};

template <class Format>
HWY_INLINE void row_affine(const void* arguments, const Tile& tile, Result&) {
  using At = RowAffineOperand;
  using Element = typename Format::Element;
  const auto& args = *static_cast<const RowAffineArgs*>(arguments);
  const RowPart rows = part_of_rows(tile, args.columns);
  const auto* const factors = operand<RowFactors>(tile, At::factors);
  Tile row = tile;
  row.count = rows.columns;
  void* operands[At::count];
  row.operands = operands;
  for (std::size_t i = 0; i < rows.rows; ++i) {
    const auto at = [&](int s) -> void* {
      auto* const data = operand<Element>(tile, s);
      return data == nullptr ? nullptr : data + i * rows.columns;
    };
    operands[At::x] = at(At::x);
    operands[At::gradient] = at(At::gradient);
    operands[At::y] = at(At::y);
    const Affine<Format> body(factors[i]);
    if (operands[At::gradient] == nullptr) {
      for_each_vector_out(row, body, Output<Format>(row, At::y),
                          Input<Format>(row, At::x));
    } else {
      for_each_vector_out(row, body, Output<Format>(row, At::y),
                          Input<Format>(row, At::x),
                          Input<Format>(row, At::gradient));
    }
  }
}

}  // namespace

SWAMP_KERNELS(row_affine, kUpTo32, row_affine<A>)

}  // namespace swamp::slave::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
