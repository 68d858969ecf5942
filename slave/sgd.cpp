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
template <class Gradient, class Weight, bool kMomentum>
struct SgdStep {
  ClippedGradient<Gradient> gradient;
  VF minus_lr, momentum, one_minus_dampening, weight_decay;
  bool decays, nesterov, first_step;

  explicit HWY_INLINE SgdStep(const SgdArgs& args)
      : gradient{set(args.inv_scale), set(args.clip_coefficient)},
        minus_lr(set(-args.lr)),
        momentum(set(args.momentum)),
        one_minus_dampening(set(args.one_minus_dampening)),
        weight_decay(set(args.weight_decay)),
        decays(args.weight_decay != 0.0f),
        nesterov(args.nesterov != 0),
        first_step(args.first_step != 0) {}

  template <class NonTemporal, class... More>
  HWY_INLINE void operator()(NonTemporal non_temporal,
                             const typename Gradient::Element* at_gradient,
                             float* at_weight, More*... more) const {
    if constexpr (kMomentum) {
      update(non_temporal, at_gradient, at_weight, more...);
    } else {
      update(non_temporal, at_gradient, at_weight, nullptr, more...);
    }
  }

 private:
  template <class NonTemporal, class... More>
  HWY_INLINE void update(NonTemporal non_temporal,
                         const typename Gradient::Element* at_gradient,
                         float* at_weight, float* at_buffer,
                         More*... more) const {
    const VF weight = Weight::load(at_weight, more...);
    VF g = gradient(at_gradient);
    if (decays) g = fma(weight, weight_decay, g);
    if constexpr (kMomentum) {
      VF b = g;
      if (!first_step) {
        b = fma(g, one_minus_dampening, hn::Mul(load(at_buffer), momentum));
      }
      store(b, at_buffer);
      g = nesterov ? fma(b, momentum, g) : b;
    }
    Weight::store(fma(g, minus_lr, weight), hn::Zero(DU()), non_temporal,
                  at_weight, more...);
  }
};

// `Buffer` is Float32 with a momentum.
template <class Gradient, class Weight, class... Buffer>
HWY_INLINE void sgd(const void* args, const Tile& tile, Result&) {
  constexpr bool kMomentum = sizeof...(Buffer) != 0;
  using At = SgdOperand<kMomentum>;
  const SgdStep<Gradient, Weight, kMomentum> step(
      *static_cast<const SgdArgs*>(args));
  Weight::for_each(tile, At::more, step, Input<Gradient>(tile, At::gradient),
                   InOut<Float32>(tile, At::weight),
                   InOut<Buffer>(tile, At::buffer)...);
}

}  // namespace

SWAMP_KERNELS(sgd, kSteps, sgd<A, WeightOf<Float32, B>>)
SWAMP_KERNELS(sgd_momentum, kSteps, sgd<A, WeightOf<Float32, B>, Float32>)

}  // namespace swamp::slave::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
