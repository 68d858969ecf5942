// The cast and accumulate kernels, compiled once per target by Highway.
#include <cstdint>

#include "slave/kernel.h"
#include "slave/kernel_args.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "slave/cast.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "slave/batch-inl.h"

HWY_BEFORE_NAMESPACE();
namespace swamp::slave::HWY_NAMESPACE {
namespace {

using DF = hn::ScalableTag<float>;

template <class In, class Out, bool kDivide>
struct Cast {
  hn::Vec<DF> divisor;

  template <class NonTemporal>
  HWY_INLINE void operator()(NonTemporal non_temporal,
                             const typename In::Element* in,
                             typename Out::Element* out) const {
    const DF df;
    auto value = In::load(df, in);
    if (kDivide) value = In::round(df, hn::Div(value, divisor));
    store_as<Out>(df, value, non_temporal, out);
  }
};

template <class In, class Out>
HWY_INLINE void cast(const void* args, const Tile& tile, Result&) {
  const float number = static_cast<const CastArgs*>(args)->divisor;
  const auto divisor = hn::Set(DF(), number);
  const Input<In> in(tile, 0);
  const Output<Out> out(tile, 1);
  if (number == 1.0f) {
    for_each_vector_out(tile, Cast<In, Out, false>{divisor}, out, in);
  } else {
    for_each_vector_out(tile, Cast<In, Out, true>{divisor}, out, in);
  }
}

template <class In, bool kDivide>
struct Accumulate {
  hn::Vec<DF> divisor;

  template <class NonTemporal>
  HWY_INLINE void operator()(NonTemporal, const typename In::Element* in,
                             float* sum) const {
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
  const Input<In> in(tile, 0);
  const InOut<Float32> sum(tile, 1);
  if (number == 1.0f) {
    for_each_vector(tile, Accumulate<In, false>{divisor}, in, sum);
  } else {
    for_each_vector(tile, Accumulate<In, true>{divisor}, in, sum);
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

}  // namespace swamp::slave::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
