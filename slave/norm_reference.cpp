#include <cmath>

#include "slave/kernel_args.h"
#include "slave/reference.h"

namespace swamp::slave::reference {
namespace {

template <class Format>
void norm(const void* args, const Tile& tile, Result& result) {
  auto& partial = *static_cast<NormPartial*>(tile.partial);
  const float inv_scale = static_cast<const NormArgs*>(args)->inv_scale;
  const auto* data =
      static_cast<const typename Format::Element*>(tile.operands[0]);
  for (std::size_t i = 0; i < tile.count; ++i) {
    const auto g = Format::widen(data[i]);
    if (!std::isfinite(g)) result.flag(tile.first + i, 1);
    // Rounded to float, but for float64.
    const decltype(g * inv_scale) unscaled = g * inv_scale;
    const double value = unscaled;
    partial.lanes[(tile.first + i) % NormPartial::kLanes] += value * value;
  }
}

}  // namespace

SWAMP_DEFINE_KERNEL(norm_float16, norm<Float16>)
SWAMP_DEFINE_KERNEL(norm_bfloat16, norm<BFloat16>)
SWAMP_DEFINE_KERNEL(norm_float32, norm<Float32>)
SWAMP_DEFINE_KERNEL(norm_float64, norm<Float64>)

}  // namespace swamp::slave::reference
