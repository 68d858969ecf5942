// The kernels of SGD, compiled once per target by Highway.

#include "slave/kernel_args.h"
#include "slave/kernel_table.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "slave/sgd.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "slave/step-inl.h"

HWY_BEFORE_NAMESPACE();
namespace swamp::slave::HWY_NAMESPACE {
namespace {

// Options that are the same for all elements are branches in the loop: they
// cost nothing compared with the memory accesses, and a blend would change
// bits.
template <class Gradient, class... Model>
struct Sgd {
  ClippedGradient<Gradient> gradient;
  VF minus_lr, momentum, one_minus_dampening, weight_decay;
  bool decays, nesterov, first_step;

  explicit HWY_INLINE Sgd(const SgdArgs& args)
      : gradient{set(args.inv_scale), set(args.clip_coefficient)},
        minus_lr(set(-args.lr)),
        momentum(set(args.momentum)),
        one_minus_dampening(set(args.one_minus_dampening)),
        weight_decay(set(args.weight_decay)),
        decays(args.weight_decay != 0.0f),
        nesterov(args.nesterov != 0),
        first_step(args.first_step != 0) {}

  template <class NonTemporal>
  HWY_INLINE void operator()(NonTemporal non_temporal,
                             const typename Gradient::Element* at_gradient,
                             float* at_weight,
                             typename Model::Element*... model) const {
    const VF weight = load(at_weight);
    move(decayed(at_gradient, weight), weight, non_temporal, at_weight,
         model...);
  }

 protected:
  HWY_INLINE VF decayed(const typename Gradient::Element* at, VF weight) const {
    const VF g = gradient(at);
    return decays ? fma(weight, weight_decay, g) : g;
  }
  template <class NonTemporal>
  HWY_INLINE void move(VF g, VF weight, NonTemporal non_temporal,
                       float* at_weight,
                       typename Model::Element*... model) const {
    weight = fma(g, minus_lr, weight);
    store(weight, at_weight);
    (store_as<Model>(DF(), weight, non_temporal, model), ...);
    (void)non_temporal;
  }
};

template <class Gradient, class... Model>
struct SgdMomentum : Sgd<Gradient, Model...> {
  explicit HWY_INLINE SgdMomentum(const SgdArgs& args)
      : Sgd<Gradient, Model...>(args) {}

  template <class NonTemporal>
  HWY_INLINE void operator()(NonTemporal non_temporal,
                             const typename Gradient::Element* at_gradient,
                             float* at_weight, float* at_buffer,
                             typename Model::Element*... model) const {
    const VF weight = load(at_weight);
    VF g = this->decayed(at_gradient, weight);
    VF b = g;
    if (!this->first_step) {
      b = fma(g, this->one_minus_dampening,
              hn::Mul(load(at_buffer), this->momentum));
    }
    store(b, at_buffer);
    g = this->nesterov ? fma(b, this->momentum, g) : b;
    this->move(g, weight, non_temporal, at_weight, model...);
  }
};

template <class Gradient, class Model>
HWY_INLINE void sgd(const void* args, const Tile& tile, Result&) {
  with_model<Model>([&](auto... model) HWY_ATTR {
    const Sgd<Gradient, decltype(model)...> step(
        *static_cast<const SgdArgs*>(args));
    for_each_weight<decltype(model)...>(tile, step, Input<Gradient>(tile, 0),
                                        InOut<Float32>(tile, 1));
  });
}

template <class Gradient, class Model>
HWY_INLINE void sgd_momentum(const void* args, const Tile& tile, Result&) {
  with_model<Model>([&](auto... model) HWY_ATTR {
    const SgdMomentum<Gradient, decltype(model)...> step(
        *static_cast<const SgdArgs*>(args));
    for_each_weight<decltype(model)...>(tile, step, Input<Gradient>(tile, 0),
                                        InOut<Float32>(tile, 1),
                                        InOut<Float32>(tile, 2));
  });
}

}  // namespace

SWAMP_KERNELS(sgd, kSteps, sgd<A, B>)
SWAMP_KERNELS(sgd_momentum, kSteps, sgd_momentum<A, B>)

}  // namespace swamp::slave::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
