// The residual-add kernels, compiled once per target by Highway.
#include <cstdint>
#include <type_traits>

#include "slave/kernel_table.h"
#include "slave/row_args.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "slave/residual_add.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "slave/row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace swamp::slave::HWY_NAMESPACE {
namespace {

template <class Format>
struct Add {
  HWY_INLINE void operator()(std::false_type, const typename Format::Element* x,
                             float* residual) const {
    const DF df;
    hn::StoreU(hn::Add(hn::LoadU(df, residual), Format::load(df, x)), df,
               residual);
  }
};

template <class Format, class Bias>
struct AddBiased {
  HWY_INLINE void operator()(std::false_type, const typename Format::Element* x,
                             const typename Bias::Element* bias,
                             float* residual) const {
    const DF df;
    const auto sum = hn::Add(Format::load(df, x), Bias::load(df, bias));
    hn::StoreU(hn::Add(hn::LoadU(df, residual), sum), df, residual);
  }
};

template <class Format, class Bias>
HWY_INLINE void residual_add(const void* arguments, const Tile& tile, Result&) {
  const std::size_t columns =
      static_cast<const ResidualAddArgs*>(arguments)->columns;
  Tile part = tile;
  if (tile.operands[1] == nullptr) {  // one long row
    part.count = tile.count * columns;
    for_each_vector(part, Add<Format>(), Input<Format>(tile, 0),
                    InOut<Float32>(tile, 2));
    return;
  }
  auto* x = operand<typename Format::Element>(tile, 0);
  auto* residual = operand<float>(tile, 2);
  part.count = columns;
  for (std::size_t i = 0; i < tile.count; ++i) {
    void* const operands[] = {x + i * columns, tile.operands[1],
                              residual + i * columns};
    part.operands = operands;
    for_each_vector(part, AddBiased<Format, Bias>(), Input<Format>(part, 0),
                    Input<Bias>(part, 1), InOut<Float32>(part, 2));
  }
}

}  // namespace

SWAMP_KERNELS(residual_add, kSameOrWide, residual_add<A, B>)

}  // namespace swamp::slave::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
