// The cast and accumulate kernels, compiled once per target by Highway.
#include "slave/cast.h"

#include <cstdint>

#include "swamp/kernel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "slave/cast.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "slave/streams-inl.h"

HWY_BEFORE_NAMESPACE();
namespace swamp::slave::HWY_NAMESPACE {
namespace {

using DF = hn::ScalableTag<float>;

template <class In, class Out, bool kDivide, bool kPast = false>
struct Cast {
  hn::Vec<DF> divisor;

  HWY_INLINE void operator()(const typename In::Element* in,
                             typename Out::Element* out) const {
    const DF df;
    auto value = In::load(df, in);
    if (kDivide) value = In::round(df, hn::Div(value, divisor));
    store_as<Out, kPast>(df, value, out);
  }
};

template <class In, class Out, bool kDivide>
HWY_INLINE void cast(const CastArgs& args, void* const* tiles,
                     std::size_t count) {
  const auto divisor = hn::Set(DF(), args.divisor);
  const InTile<In> in(tiles[0]);
  const OutTile<Out> out(tiles[1]);
  const Cast<In, Out, kDivide> compute{divisor};
  if (args.past_caches != 0) {
    for_each_vector_past(count, args.prefetch_bytes, compute,
                         Cast<In, Out, kDivide, true>{divisor}, out, in, out);
  } else {
    for_each_vector(count, args.prefetch_bytes, compute, in, out);
  }
}

template <class In, class Out>
HWY_INLINE void cast(const void* args, void* const* tiles, std::size_t count) {
  const CastArgs& numbers = *static_cast<const CastArgs*>(args);
  if (numbers.divisor == 1.0f) {
    cast<In, Out, false>(numbers, tiles, count);
  } else {
    cast<In, Out, true>(numbers, tiles, count);
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
HWY_INLINE void accumulate(const void* args, void* const* tiles,
                           std::size_t count) {
  const AccumulateArgs& accumulate = *static_cast<const AccumulateArgs*>(args);
  const auto divisor = hn::Set(DF(), accumulate.divisor);
  const InTile<In> in(tiles[0]);
  const InOutTile<Float32Stream> sum(tiles[1]);
  if (accumulate.divisor == 1.0f) {
    for_each_vector(count, accumulate.prefetch_bytes,
                    Accumulate<In, false>{divisor}, in, sum);
  } else {
    for_each_vector(count, accumulate.prefetch_bytes,
                    Accumulate<In, true>{divisor}, in, sum);
  }
}

}  // namespace

#define SWAMP_CAST_KERNEL(In, Out, suffix)                                    \
  void cast_##suffix(const void* args, void* const* tiles, std::size_t count, \
                     std::size_t, Result&) {                                  \
    cast<In##Stream, Out##Stream>(args, tiles, count);                        \
  }
SWAMP_CAST_KERNEL(Float16, Float32, float16_float32)
SWAMP_CAST_KERNEL(BFloat16, Float32, bfloat16_float32)
SWAMP_CAST_KERNEL(Float32, Float32, float32_float32)
SWAMP_CAST_KERNEL(Float32, Float16, float32_float16)
SWAMP_CAST_KERNEL(Float32, BFloat16, float32_bfloat16)
#undef SWAMP_CAST_KERNEL

#define SWAMP_ACCUMULATE_KERNEL(In, suffix)                           \
  void accumulate_##suffix(const void* args, void* const* tiles,      \
                           std::size_t count, std::size_t, Result&) { \
    accumulate<In##Stream>(args, tiles, count);                       \
  }
SWAMP_ACCUMULATE_KERNEL(Float16, float16)
SWAMP_ACCUMULATE_KERNEL(BFloat16, bfloat16)
SWAMP_ACCUMULATE_KERNEL(Float32, float32)
#undef SWAMP_ACCUMULATE_KERNEL

}  // namespace swamp::slave::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
