#include "slave/kernel_args.h"
#include "slave/reference.h"
#include "swamp/float_formats.h"

namespace swamp::slave::reference {
namespace {

// divides() compares bits: clang assumes x / 1 == x and would always divide,
// which differs under flush-to-zero.
bool divides(float divisor) {
  return float_to_bits(divisor) != float_to_bits(1.0f);
}

template <class In, class Out>
void cast(const void* args, const Tile& tile, Result&) {
  const float divisor = static_cast<const CastArgs*>(args)->divisor;
  const auto* in = static_cast<const typename In::Element*>(tile.operands[0]);
  auto* out = static_cast<typename Out::Element*>(tile.operands[1]);
  for (std::size_t i = 0; i < tile.count; ++i) {
    float value = In::widen(in[i]);
    if (divides(divisor)) value = In::widen(In::narrow(value / divisor));
    out[i] = Out::narrow(value);
  }
}

template <class In>
void accumulate(const void* args, const Tile& tile, Result&) {
  const float divisor = static_cast<const AccumulateArgs*>(args)->divisor;
  const auto* in = static_cast<const typename In::Element*>(tile.operands[0]);
  auto* sum = static_cast<float*>(tile.operands[1]);
  for (std::size_t i = 0; i < tile.count; ++i) {
    sum[i] += In::widen(in[i]);
    if (divides(divisor)) sum[i] /= divisor;
  }
}

}  // namespace

SWAMP_DEFINE_KERNEL(cast_float16_float32, cast<Float16, Float32>)
SWAMP_DEFINE_KERNEL(cast_bfloat16_float32, cast<BFloat16, Float32>)
SWAMP_DEFINE_KERNEL(cast_float32_float32, cast<Float32, Float32>)
SWAMP_DEFINE_KERNEL(cast_float32_float16, cast<Float32, Float16>)
SWAMP_DEFINE_KERNEL(cast_float32_bfloat16, cast<Float32, BFloat16>)
SWAMP_DEFINE_KERNEL(accumulate_float16, accumulate<Float16>)
SWAMP_DEFINE_KERNEL(accumulate_bfloat16, accumulate<BFloat16>)
SWAMP_DEFINE_KERNEL(accumulate_float32, accumulate<Float32>)

}  // namespace swamp::slave::reference
