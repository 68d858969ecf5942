// The cast, accumulate, lerp and zero kernels, compiled once per target by
// Highway.
#include <cstdint>

#include "slave/kernel_args.h"
#include "slave/kernel_table.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "slave/cast.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "slave/batch-inl.h"
#include "slave/exact_fma-inl.h"

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
  const Input<In> in(tile, CastOperand::in);
  const Output<Out> out(tile, CastOperand::out);
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
  const Input<In> in(tile, AccumulateOperand::in);
  const InOut<Float32> sum(tile, AccumulateOperand::sum);
  if (number == 1.0f) {
    for_each_vector(tile, Accumulate<In, false>{divisor}, in, sum);
  } else {
    for_each_vector(tile, Accumulate<In, true>{divisor}, in, sum);
  }
}

template <class In, class Out, bool kFromIn>
struct Lerp {
  hn::Vec<DF> coefficient;

  template <class NonTemporal>
  HWY_INLINE void operator()(NonTemporal non_temporal,
                             const typename In::Element* at_in,
                             typename Out::Element* at_out) const {
    const DF df;
    const auto in = In::load(df, at_in);
    const auto out = Out::load(df, at_out);
    store_as<Out>(
        df, exact_fma(df, coefficient, hn::Sub(in, out), kFromIn ? in : out),
        non_temporal, at_out);
  }
};

template <class In, class Out>
HWY_INLINE void lerp(const void* args, const Tile& tile, Result&) {
  const auto& numbers = *static_cast<const LerpArgs*>(args);
  const auto coefficient = hn::Set(DF(), numbers.coefficient);
  const Input<In> in(tile, LerpOperand::in);
  const InOut<Out> out(tile, LerpOperand::out);
  if (numbers.from_in == 0) {
    for_each_vector(tile, Lerp<In, Out, false>{coefficient}, in, out);
  } else {
    for_each_vector(tile, Lerp<In, Out, true>{coefficient}, in, out);
  }
}

template <class Out>
struct Zero {
  template <class NonTemporal>
  HWY_INLINE void operator()(NonTemporal non_temporal,
                             typename Out::Element* out) const {
    store_as<Out>(DF(), hn::Zero(DF()), non_temporal, out);
  }
};

template <class Out>
HWY_INLINE void zero(const void*, const Tile& tile, Result&) {
  for_each_vector_out(tile, Zero<Out>(), Output<Out>(tile, 0));
}

}  // namespace

SWAMP_KERNELS(cast, kCasts, cast<A, B>)
SWAMP_KERNELS(accumulate, kUpTo32, accumulate<A>)
SWAMP_KERNELS(lerp, kSameOrWide, lerp<A, B>)
SWAMP_KERNELS(zero, kUpTo32, zero<A>)

}  // namespace swamp::slave::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
