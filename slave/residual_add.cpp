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
  using At = ResidualAddOperand;
  const auto& args = *static_cast<const ResidualAddArgs*>(arguments);
  const RowPart rows = part_of_rows(tile, args.columns);
  Tile part = tile;
  if (tile.operands[At::bias] == nullptr) {  // one long row
    part.count = rows.rows * rows.columns;
    for_each_vector(part, Add<Format>(), Input<Format>(tile, At::x),
                    InOut<Float32>(tile, At::residual));
    return;
  }
  auto* x = operand<typename Format::Element>(tile, At::x);
  auto* residual = operand<float>(tile, At::residual);
  part.count = rows.columns;
  for (std::size_t i = 0; i < rows.rows; ++i) {
    void* const operands[] = {x + i * rows.columns, tile.operands[At::bias],
                              residual + i * rows.columns};
    part.operands = operands;
    for_each_vector(part, AddBiased<Format, Bias>(), Input<Format>(part, At::x),
                    Input<Bias>(part, At::bias),
                    InOut<Float32>(part, At::residual));
  }
}

}  // namespace

SWAMP_KERNELS(residual_add, kSameOrWide, residual_add<A, B>)

}  // namespace swamp::slave::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
