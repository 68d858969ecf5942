#include "slave/cast.h"
#include "slave/reference.h"
#include "slave/reference_formats.h"
#include "swamp/float_formats.h"

namespace swamp::slave::reference {
namespace {

// divides() compares bits: clang takes x / 1 for x, and then divides always,
// though under flush-to-zero that is not the same.
bool divides(float divisor) {
  return float_to_bits(divisor) != float_to_bits(1.0f);
}

template <class In, class Out>
void cast(const void* args, void* const* tiles, std::size_t count) {
  const float divisor = static_cast<const CastArgs*>(args)->divisor;
  const auto* in = static_cast<const typename In::Storage*>(tiles[0]);
  auto* out = static_cast<typename Out::Storage*>(tiles[1]);
  for (std::size_t i = 0; i < count; ++i) {
    float value = In::load(in[i]);
    if (divides(divisor)) value = In::load(In::store(value / divisor));
    out[i] = Out::store(value);
  }
}

template <class In>
void accumulate(const void* args, void* const* tiles, std::size_t count) {
  const float divisor = static_cast<const AccumulateArgs*>(args)->divisor;
  const auto* in = static_cast<const typename In::Storage*>(tiles[0]);
  auto* sum = static_cast<float*>(tiles[1]);
  for (std::size_t i = 0; i < count; ++i) {
    sum[i] += In::load(in[i]);
    if (divides(divisor)) sum[i] /= divisor;
  }
}

}  // namespace

#define SWAMP_CAST_REFERENCE(In, Out, suffix)                                 \
  void cast_##suffix(const void* args, void* const* tiles, std::size_t count, \
                     std::size_t, Result&) {                                  \
    cast<In, Out>(args, tiles, count);                                        \
  }
SWAMP_CAST_REFERENCE(Float16, Float32, float16_float32)
SWAMP_CAST_REFERENCE(BFloat16, Float32, bfloat16_float32)
SWAMP_CAST_REFERENCE(Float32, Float32, float32_float32)
SWAMP_CAST_REFERENCE(Float32, Float16, float32_float16)
SWAMP_CAST_REFERENCE(Float32, BFloat16, float32_bfloat16)
#undef SWAMP_CAST_REFERENCE

#define SWAMP_ACCUMULATE_REFERENCE(In, suffix)                        \
  void accumulate_##suffix(const void* args, void* const* tiles,      \
                           std::size_t count, std::size_t, Result&) { \
    accumulate<In>(args, tiles, count);                               \
  }
SWAMP_ACCUMULATE_REFERENCE(Float16, float16)
SWAMP_ACCUMULATE_REFERENCE(BFloat16, bfloat16)
SWAMP_ACCUMULATE_REFERENCE(Float32, float32)
#undef SWAMP_ACCUMULATE_REFERENCE

}  // namespace swamp::slave::reference
