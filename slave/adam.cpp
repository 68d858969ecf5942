// The kernels of Adam and AdamW, compiled once per target by Highway: the
// formula of adam-inl.h with float32 moments, as AMSGrad, and with moments and
// weights that are rounded stochastically or have a compensation.

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

// AdamStep takes a step on one vector of each operand. It computes AMSGrad if
// at_x is not null.
template <class Gradient, class... Model>
struct AdamStep : Adam<Gradient> {
  explicit HWY_INLINE AdamStep(const AdamArgs& args) : Adam<Gradient>(args) {}

  template <class NonTemporal>
  HWY_INLINE void operator()(NonTemporal non_temporal,
                             const typename Gradient::Element* at_gradient,
                             float* at_weight, float* at_m, float* at_v,
                             typename Model::Element*... model) const {
    update(non_temporal, at_gradient, at_weight, at_m, at_v, nullptr, model...);
  }

 protected:
  template <class NonTemporal>
  HWY_INLINE void update(NonTemporal non_temporal,
                         const typename Gradient::Element* at_gradient,
                         float* at_weight, float* at_m, float* at_v,
                         float* at_x, typename Model::Element*... model) const {
    VF weight = load(at_weight);
    VF m = load(at_m);
    VF v = load(at_v);
    this->moments(at_gradient, weight, m, v);
    store(m, at_m);
    store(v, at_v);
    if (at_x != nullptr) {
      v = maximum(load(at_x), v);
      store(v, at_x);
    }
    weight = this->stepped(weight, m, v);
    store(weight, at_weight);
    (store_as<Model>(DF(), weight, non_temporal, model), ...);
    (void)non_temporal;
  }
};

template <class Gradient, class... Model>
struct AmsgradStep : AdamStep<Gradient, Model...> {
  explicit HWY_INLINE AmsgradStep(const AdamArgs& args)
      : AdamStep<Gradient, Model...>(args) {}

  template <class NonTemporal>
  HWY_INLINE void operator()(NonTemporal non_temporal,
                             const typename Gradient::Element* at_gradient,
                             float* at_weight, float* at_m, float* at_v,
                             float* at_x,
                             typename Model::Element*... model) const {
    this->update(non_temporal, at_gradient, at_weight, at_m, at_v, at_x,
                 model...);
  }
};

// RoundedStep has moments that are rounded stochastically, and one of the
// weights of adam-inl.h.
template <class Gradient, class Weight, class Moment>
struct RoundedStep : Adam<Gradient> {
  RandomWords random;

  HWY_INLINE RoundedStep(const AdamArgs& args, const RoundingKey& key)
      : Adam<Gradient>(args), random(key) {}

  template <class NonTemporal, class... More>
  HWY_INLINE void operator()(NonTemporal non_temporal, std::uint32_t index,
                             const typename Gradient::Element* at_gradient,
                             typename Weight::Element* at_weight,
                             typename Moment::Element* at_m,
                             typename Moment::Element* at_v,
                             More*... more) const {
    VF weight = Weight::load(at_weight, more...);
    VF m = Moment::load(DF(), at_m);
    VF v = Moment::load(DF(), at_v);
    this->moments(at_gradient, weight, m, v);
    weight = this->stepped(weight, m, v);
    VU word = hn::Zero(DU());
    if constexpr (Weight::kRandom || Rounded<Moment>::kRandom) {
      word = random.first(index);
    }
    if constexpr (Rounded<Moment>::kRandom) {
      Rounded<Moment>::store(m, lower_half(word), at_m);
      Rounded<Moment>::store(v, upper_half(RandomWords::second(word)), at_v);
    } else {
      store(m, at_m);
      store(v, at_v);
    }
    Weight::store(weight, upper_half(word), non_temporal, at_weight, more...);
  }
};

template <class Gradient, class Model>
HWY_INLINE void adam(const void* args, const Tile& tile, Result&) {
  with_model<Model>([&](auto... model) HWY_ATTR {
    const AdamStep<Gradient, decltype(model)...> step(
        *static_cast<const AdamArgs*>(args));
    for_each_weight<decltype(model)...>(
        tile, step, Input<Gradient>(tile, 0), InOut<Float32>(tile, 1),
        InOut<Float32>(tile, 2), InOut<Float32>(tile, 3));
  });
}

template <class Gradient, class Model>
HWY_INLINE void adam_amsgrad(const void* args, const Tile& tile, Result&) {
  with_model<Model>([&](auto... model) HWY_ATTR {
    const AmsgradStep<Gradient, decltype(model)...> step(
        *static_cast<const AdamArgs*>(args));
    for_each_weight<decltype(model)...>(
        tile, step, Input<Gradient>(tile, 0), InOut<Float32>(tile, 1),
        InOut<Float32>(tile, 2), InOut<Float32>(tile, 3),
        InOut<Float32>(tile, 4));
  });
}

// With a model beside it, the weight is float32 and the model's rounded to
// nearest.
template <class Format, class Moment, class Model>
HWY_INLINE void adam_stochastic(const void* args, const Tile& tile, Result&) {
  const auto& numbers = *static_cast<const AdamArgs*>(args);
  const ElementIndex index(tile.first);
  const Input<Format> gradient(tile, 0);
  const InOut<Moment> m(tile, 2), v(tile, 3);
  if constexpr (std::is_same_v<Model, element::None>) {
    const RoundedStep<Format, RoundedWeight<Format>, Moment> step(
        numbers, *operand<RoundingKey>(tile, 4));
    for_each_vector(tile, step, index, gradient, InOut<Format>(tile, 1), m, v);
  } else {
    const RoundedStep<Format, MasterWeight<Format>, Moment> step(
        numbers, *operand<RoundingKey>(tile, 5));
    for_each_vector_out(tile, step, Output<Format>(tile, 4), index, gradient,
                        InOut<Float32>(tile, 1), m, v);
  }
}

template <class Format, class Moment>
HWY_INLINE void adam_kahan(const void* args, const Tile& tile, Result&) {
  const RoundedStep<Format, CompensatedWeight<Format>, Moment> step(
      *static_cast<const AdamArgs*>(args), *operand<RoundingKey>(tile, 5));
  for_each_vector(tile, step, ElementIndex(tile.first), Input<Format>(tile, 0),
                  InOut<Format>(tile, 1), InOut<Moment>(tile, 2),
                  InOut<Moment>(tile, 3), InOut<Format>(tile, 4));
}

}  // namespace

SWAMP_KERNELS(adam, kSteps, adam<A, B>)
SWAMP_KERNELS(adam_amsgrad, kSteps, adam_amsgrad<A, B>)
SWAMP_KERNELS(adam_stochastic, kStochasticSteps, adam_stochastic<A, C, D>)
SWAMP_KERNELS(adam_kahan, kKahanSteps, adam_kahan<A, B>)

}  // namespace swamp::slave::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
