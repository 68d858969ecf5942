// Affine functions whose factors differ from row to row (BatchNorm, GroupNorm
// and their gradients), compiled once per target by Highway.
#include <algorithm>
#include <cstdint>
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
    const auto set = [](float value) HWY_ATTR { return hn::Set(DF(), value); };
    const RowFactors& of = factors[i];
    const Affine<Format> body{set(of.shift), set(of.x_factor), set(of.addend),
                              set(of.gradient_factor)};
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

// LoadedAffine is an Affine whose factors lie in memory.
template <class Format>
struct LoadedAffine {
  template <class NonTemporal, class... Elements>
  HWY_INLINE void operator()(NonTemporal non_temporal, const float* shift,
                             const float* x_factor, const float* addend,
                             const float* gradient_factor,
                             Elements... elements) const {
    const DF df;
    Affine<Format>{hn::LoadU(df, shift), hn::LoadU(df, x_factor),
                   hn::LoadU(df, addend),
                   hn::LoadU(df, gradient_factor)}(non_temporal, elements...);
  }
};

// The factors of at most args.block columns are read again for each line.
template <class Format>
HWY_INLINE void channel_affine(const void* arguments, const Tile& tile,
                               Result&) {
  using At = RowAffineOperand;
  using Element = typename Format::Element;
  const auto& args = *static_cast<const ChannelAffineArgs*>(arguments);
  const auto* const factors = operand<RowFactors>(tile, At::factors);
  auto* const scratch = static_cast<float*>(tile.scratch);
  const std::size_t steps =
      tile.layout[At::y].line_step |
      reinterpret_cast<std::uintptr_t>(operand<Element>(tile, At::y)) |
      args.block * sizeof(Element);
  const bool streams = kHasNonTemporalStores && tile.non_temporal &&
                       steps % (kLanes * sizeof(Element)) == 0;
  Tile part = tile;
  void* operands[At::count + 4] = {};  // and the factors
  part.operands = operands;
  for (std::size_t f = 0; f < 4; ++f) {
    operands[At::count + f] = scratch + f * args.block;
  }
  for (std::size_t i = 0; i < tile.count; i += args.block) {
    const std::size_t count = std::min<std::size_t>(args.block, tile.count - i);
    for (std::size_t k = 0; k < count; ++k) {
      const RowFactors& of = factors[i + k];
      const float all[] = {of.shift, of.x_factor, of.addend,
                           of.gradient_factor};
      for (std::size_t f = 0; f < 4; ++f) scratch[f * args.block + k] = all[f];
    }
    for (std::size_t line = 0; line < tile.layout[At::x].lines(); ++line) {
      for (const int s : {At::x, At::gradient, At::y}) {
        auto* const data = operand<Element>(tile, s);
        if (data == nullptr) continue;
        operands[s] =
            data + line * (tile.layout[s].line_step / sizeof(Element)) + i;
      }
      part.count = count;
      const auto run = [&](auto non_temporal) HWY_ATTR {
        const auto with_factors = [&](auto... elements) HWY_ATTR {
          for_each_vector_from(0, non_temporal, part, LoadedAffine<Format>(),
                               Input<Float32>(part, At::count),
                               Input<Float32>(part, At::count + 1),
                               Input<Float32>(part, At::count + 2),
                               Input<Float32>(part, At::count + 3), elements...,
                               Output<Format>(part, At::y));
        };
        const Input<Format> x(part, At::x), gradient(part, At::gradient);
        if (operands[At::gradient] == nullptr) {
          with_factors(x);
        } else {
          with_factors(x, gradient);
        }
      };
      if (streams) {
        run(std::true_type());
      } else {
        run(std::false_type());
      }
    }
  }
  if (streams) hwy::FlushStream();  // before the join
}

}  // namespace

SWAMP_KERNELS(channel_affine, kUpTo32, channel_affine<A>)
SWAMP_KERNELS(row_affine, kUpTo32, row_affine<A>)

}  // namespace swamp::slave::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
