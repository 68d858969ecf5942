#include <cmath>

#include "slave/kernel_args.h"
#include "slave/reference.h"

namespace swamp::slave::reference {
namespace {

template <class Format>
void check(const void*, const Tile& tile, Result& result) {
  const auto* data =
      static_cast<const typename Format::Element*>(tile.operands[0]);
  for (std::size_t i = 0; i < tile.count; ++i) {
    if (!std::isfinite(Format::widen(data[i]))) result.flag(tile.first + i, 1);
  }
}

template <class Format>
void unscale(const void* args, const Tile& tile, Result& result) {
  check<Format>(args, tile, result);
  const float inv_scale = static_cast<const UnscaleArgs*>(args)->inv_scale;
  auto* data = static_cast<typename Format::Element*>(tile.operands[0]);
  for (std::size_t i = 0; i < tile.count; ++i) {
    data[i] = Format::narrow(Format::widen(data[i]) * inv_scale);
  }
}

}  // namespace

SWAMP_DEFINE_KERNEL(unscale_float16, unscale<Float16>)
SWAMP_DEFINE_KERNEL(unscale_bfloat16, unscale<BFloat16>)
SWAMP_DEFINE_KERNEL(unscale_float32, unscale<Float32>)
SWAMP_DEFINE_KERNEL(unscale_float64, unscale<Float64>)
SWAMP_DEFINE_KERNEL(check_float16, check<Float16>)
SWAMP_DEFINE_KERNEL(check_bfloat16, check<BFloat16>)
SWAMP_DEFINE_KERNEL(check_float32, check<Float32>)
SWAMP_DEFINE_KERNEL(check_float64, check<Float64>)

}  // namespace swamp::slave::reference
