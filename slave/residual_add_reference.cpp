#include "slave/row_reference.h"

namespace swamp::slave::reference {
namespace {

template <class Format, class Bias>
void residual_add(const void* args, const Tile& tile, Result&) {
  const std::size_t columns =
      static_cast<const ResidualAddArgs*>(args)->columns;
  const auto* x = static_cast<typename Format::Element*>(tile.operands[0]);
  const auto* bias = static_cast<typename Bias::Element*>(tile.operands[1]);
  auto* residual = static_cast<float*>(tile.operands[2]);
  for (std::size_t i = 0; i < tile.count * columns; ++i) {
    float sum = Format::widen(x[i]);
    if (bias != nullptr) sum = sum + Bias::widen(bias[i % columns]);
    residual[i] = residual[i] + sum;
  }
}

}  // namespace

SWAMP_DEFINE_KERNEL(residual_add_float16, residual_add<Float16, Float16>)
SWAMP_DEFINE_KERNEL(residual_add_float16_float32,
                    residual_add<Float16, Float32>)
SWAMP_DEFINE_KERNEL(residual_add_bfloat16, residual_add<BFloat16, BFloat16>)
SWAMP_DEFINE_KERNEL(residual_add_bfloat16_float32,
                    residual_add<BFloat16, Float32>)
SWAMP_DEFINE_KERNEL(residual_add_float32, residual_add<Float32, Float32>)

}  // namespace swamp::slave::reference
