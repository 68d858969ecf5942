#include <cmath>

#include "slave/reference.h"
#include "slave/reference_formats.h"
#include "slave/unscale.h"

namespace swamp::slave::reference {
namespace {

template <class Format>
void check(void* const* tiles, std::size_t count, std::size_t first,
           Result& result) {
  const auto* data = static_cast<const typename Format::Storage*>(tiles[0]);
  for (std::size_t i = 0; i < count; ++i) {
    if (!std::isfinite(Format::load(data[i]))) result.flag(first + i, 1);
  }
}

template <class Format>
void unscale(const void* args, void* const* tiles, std::size_t count,
             std::size_t first, Result& result) {
  check<Format>(tiles, count, first, result);
  const float inv_scale = static_cast<const UnscaleArgs*>(args)->inv_scale;
  auto* data = static_cast<typename Format::Storage*>(tiles[0]);
  for (std::size_t i = 0; i < count; ++i) {
    data[i] = Format::store(Format::load(data[i]) * inv_scale);
  }
}

}  // namespace

#define SWAMP_UNSCALE_REFERENCE(format, suffix)                           \
  void unscale_##suffix(const void* args, void* const* tiles,             \
                        std::size_t count, std::size_t first,             \
                        Result& result) {                                 \
    unscale<format>(args, tiles, count, first, result);                   \
  }                                                                       \
  void check_##suffix(const void*, void* const* tiles, std::size_t count, \
                      std::size_t first, Result& result) {                \
    check<format>(tiles, count, first, result);                           \
  }
SWAMP_UNSCALE_REFERENCE(Float16, float16)
SWAMP_UNSCALE_REFERENCE(BFloat16, bfloat16)
SWAMP_UNSCALE_REFERENCE(Float32, float32)
SWAMP_UNSCALE_REFERENCE(Float64, float64)
#undef SWAMP_UNSCALE_REFERENCE

}  // namespace swamp::slave::reference
