// The kernels of Adam and AdamW, compiled once per target by Highway: one step
// by the formula of adam-inl.h, for each storage of the weight and the moments.

#include "slave/kernel_args.h"
#include "slave/kernel_table.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "slave/adam.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "slave/adam-inl.h"

HWY_BEFORE_NAMESPACE();
namespace swamp::slave::HWY_NAMESPACE {
namespace {

// maximum() is torch's: nan if one is, with all bits set; b if they are equal.
// With Gt instead of Le, clang uses an instruction that flushes subnormals if
// the program does.
HWY_INLINE VF maximum(VF a, VF b) {
  const auto nan = hn::Or(hn::IsNaN(a), hn::IsNaN(b));
  return hn::Or(hn::IfThenElse(hn::Le(a, b), b, a), hn::VecFromMask(DF(), nan));
}

// AdamStep takes a step on one vector of each operand. The weight is one of
// step-inl.h; moments are rounded stochastically if they are of 16 bits. With
// kAmsgrad, the largest second moments follow the second.
template <class Gradient, class Weight, class Moment, bool kAmsgrad>
struct AdamStep : Adam<Gradient> {
  static constexpr bool kRandom = Weight::kRandom || Rounded<Moment>::kRandom;

  RandomWords random;

  HWY_INLINE AdamStep(const AdamArgs& args, const RoundingKey& key)
      : Adam<Gradient>(args), random(key) {}

  template <class NonTemporal, class... More>
  HWY_INLINE void operator()(NonTemporal non_temporal, std::uint32_t index,
                             const typename Gradient::Element* at_gradient,
                             typename Weight::Element* at_weight,
                             typename Moment::Element* at_m,
                             typename Moment::Element* at_v,
                             More*... more) const {
    if constexpr (kAmsgrad) {
      update(non_temporal, index, at_gradient, at_weight, at_m, at_v, more...);
    } else {
      update(non_temporal, index, at_gradient, at_weight, at_m, at_v, nullptr,
             more...);
    }
  }

 private:
  template <class NonTemporal, class... More>
  HWY_INLINE void update(NonTemporal non_temporal, std::uint32_t index,
                         const typename Gradient::Element* at_gradient,
                         typename Weight::Element* at_weight,
                         typename Moment::Element* at_m,
                         typename Moment::Element* at_v, float* at_max,
                         More*... more) const {
    VF weight = Weight::load(at_weight, more...);
    VF m = Moment::load(DF(), at_m);
    VF v = Moment::load(DF(), at_v);
    this->moments(at_gradient, weight, m, v);
    VU word = hn::Zero(DU());
    if constexpr (kRandom) word = random.first(index);
    Rounded<Moment>::store(m, lower_half(word), at_m);
    Rounded<Moment>::store(v, upper_half(RandomWords::second(word)), at_v);
    if constexpr (kAmsgrad) {
      v = maximum(load(at_max), v);
      store(v, at_max);
    }
    weight = this->stepped(weight, m, v);
    Weight::store(weight, upper_half(word), non_temporal, at_weight, more...);
  }
};

// `Max` is Float32 with AMSGrad.
template <class At, class Gradient, class Weight, class Moment, class... Max>
HWY_INLINE void adam(const void* args, const Tile& tile, Result&) {
  using Step = AdamStep<Gradient, Weight, Moment, sizeof...(Max) != 0>;
  RoundingKey key{};
  if constexpr (Step::kRandom) key = *operand<RoundingKey>(tile, At::key);
  const Step step(*static_cast<const AdamArgs*>(args), key);
  Weight::for_each(tile, At::more, step, ElementIndex(tile.first),
                   Input<Gradient>(tile, At::gradient),
                   OperandData<Weight, Access::inout>(tile, At::weight),
                   InOut<Moment>(tile, At::m), InOut<Moment>(tile, At::v),
                   InOut<Max>(tile, At::max)...);
}

template <class Model>
using RoundedAt = AdamRoundedOperand<!std::is_same_v<Model, element::None>>;

}  // namespace

SWAMP_KERNELS(adam, kSteps,
              adam<AdamOperand<false>, A, WeightOf<Float32, B>, Float32>)
SWAMP_KERNELS(
    adam_amsgrad, kSteps,
    adam<AdamOperand<true>, A, WeightOf<Float32, B>, Float32, Float32>)
SWAMP_KERNELS(adam_stochastic, kStochasticSteps,
              adam<RoundedAt<D>, A, WeightOf<A, D>, C>)
SWAMP_KERNELS(adam_kahan, kKahanSteps,
              adam<AdamRoundedOperand<true>, A, CompensatedWeight<A>, B>)

}  // namespace swamp::slave::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
