// The cast and accumulate kernels, compiled once per target by Highway.
#include <cstdint>

#include "slave/kernel.h"
#include "slave/kernel_args.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "slave/cast.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "slave/operands-inl.h"

HWY_BEFORE_NAMESPACE();
namespace swamp::slave::HWY_NAMESPACE {
namespace {

using DF = hn::ScalableTag<float>;

template <class In, class Out, bool kDivide, bool kNonTemporal = false>
struct Cast {
  hn::Vec<DF> divisor;

  HWY_INLINE void operator()(const typename In::Element* in,
                             typename Out::Element* out) const {
    const DF df;
    auto value = In::load(df, in);
    if (kDivide) value = In::round(df, hn::Div(value, divisor));
    store_as<Out, kNonTemporal>(df, value, out);
  }
};

template <class In, class Out, bool kDivide>
HWY_INLINE void cast(const CastArgs& args, const Tile& tile) {
  const auto divisor = hn::Set(DF(), args.divisor);
  const Input<In> in(tile.operands[0]);
  const Output<Out> out(tile.operands[1]);
  const Cast<In, Out, kDivide> compute{divisor};
  if (tile.non_temporal) {
    for_each_vector_non_temporal(
        tile, compute, Cast<In, Out, kDivide, true>{divisor}, out, in, out);
  } else {
    for_each_vector(tile, compute, in, out);
  }
}

template <class In, class Out>
HWY_INLINE void cast(const void* args, const Tile& tile, Result&) {
  const CastArgs& numbers = *static_cast<const CastArgs*>(args);
  if (numbers.divisor == 1.0f) {
    cast<In, Out, false>(numbers, tile);
  } else {
    cast<In, Out, true>(numbers, tile);
  }
}

template <class In, bool kDivide>
struct Accumulate {
  hn::Vec<DF> divisor;

  HWY_INLINE void operator()(const typename In::Element* in, float* sum) const {
    const DF df;
    auto value = hn::Add(hn::LoadU(df, sum), In::load(df, in));
    if (kDivide) value = hn::Div(value, divisor);
    hn::StoreU(value, df, sum);
  }
};

template <class In>
HWY_INLINE void accumulate(const void* args, const Tile& tile, Result&) {
  const float number = static_cast<const AccumulateArgs*>(args)->divisor;
  const auto divisor = hn::Set(DF(), number);
  const Input<In> in(tile.operands[0]);
  const InOut<Float32Stream> sum(tile.operands[1]);
  if (number == 1.0f) {
    for_each_vector(tile, Accumulate<In, false>{divisor}, in, sum);
  } else {
    for_each_vector(tile, Accumulate<In, true>{divisor}, in, sum);
  }
}

}  // namespace

SWAMP_DEFINE_KERNEL(cast_float16_float32, cast<Float16Stream, Float32Stream>)
SWAMP_DEFINE_KERNEL(cast_bfloat16_float32, cast<BFloat16Stream, Float32Stream>)
SWAMP_DEFINE_KERNEL(cast_float32_float32, cast<Float32Stream, Float32Stream>)
SWAMP_DEFINE_KERNEL(cast_float32_float16, cast<Float32Stream, Float16Stream>)
SWAMP_DEFINE_KERNEL(cast_float32_bfloat16, cast<Float32Stream, BFloat16Stream>)
SWAMP_DEFINE_KERNEL(accumulate_float16, accumulate<Float16Stream>)
SWAMP_DEFINE_KERNEL(accumulate_bfloat16, accumulate<BFloat16Stream>)
SWAMP_DEFINE_KERNEL(accumulate_float32, accumulate<Float32Stream>)

}  // namespace swamp::slave::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
