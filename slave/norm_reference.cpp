#include <cmath>

#include "slave/norm.h"
#include "slave/reference.h"
#include "slave/reference_formats.h"

namespace swamp::slave::reference {
namespace {

template <class Format>
void norm(const void* args, void* const* tiles, std::size_t count,
          std::size_t first, Result& result) {
  auto& partial = *static_cast<NormPartial*>(result.partial);
  const float inv_scale = static_cast<const NormArgs*>(args)->inv_scale;
  const auto* data = static_cast<const typename Format::Storage*>(tiles[0]);
  for (std::size_t i = 0; i < count; ++i) {
    const auto g = Format::load(data[i]);
    if (!std::isfinite(g)) result.flag(first + i, 1);
    // Rounded to float, but for float64.
    const decltype(g * inv_scale) unscaled = g * inv_scale;
    const double value = unscaled;
    partial.lanes[(first + i) % NormPartial::kLanes] += value * value;
  }
}

}  // namespace

#define SWAMP_NORM_REFERENCE(format, suffix)                                  \
  void norm_##suffix(const void* args, void* const* tiles, std::size_t count, \
                     std::size_t first, Result& result) {                     \
    norm<format>(args, tiles, count, first, result);                          \
  }
SWAMP_NORM_REFERENCE(Float16, float16)
SWAMP_NORM_REFERENCE(BFloat16, bfloat16)
SWAMP_NORM_REFERENCE(Float32, float32)
SWAMP_NORM_REFERENCE(Float64, float64)
#undef SWAMP_NORM_REFERENCE

}  // namespace swamp::slave::reference
