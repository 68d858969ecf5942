// The kernels of Adam and AdamW, compiled once per target by Highway.
#include "slave/kernel.h"
#include "slave/kernel_args.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "slave/adam.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "slave/step-inl.h"

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

template <class Gradient, class... Model>
struct Adam {
  ClippedGradient<Gradient> gradient;
  VF lerp_factor, beta2, one_minus_beta2, minus_step_size;
  VF bias_correction2_sqrt, eps, weight_decay, decay;
  hn::Mask<DF> lerp_is_small;
  bool decays;

  explicit HWY_INLINE Adam(const AdamArgs& args)
      : gradient{set(args.inv_scale), set(args.clip_coefficient)},
        beta2(set(args.beta2)),
        one_minus_beta2(set(args.one_minus_beta2)),
        minus_step_size(set(-args.step_size)),
        bias_correction2_sqrt(set(args.bias_correction2_sqrt)),
        eps(set(args.eps)),
        weight_decay(set(args.weight_decay)),
        decay(set(args.decay)),
        lerp_is_small(hn::Lt(hn::Abs(set(args.one_minus_beta1)), set(0.5f))),
        decays(args.weight_decay != 0.0f) {
    // torch's lerp starts from the nearer end.
    const VF factor = set(args.one_minus_beta1);
    lerp_factor =
        hn::IfThenElse(lerp_is_small, factor, hn::Sub(factor, set(1.0f)));
  }

  template <class NonTemporal>
  HWY_INLINE void operator()(NonTemporal non_temporal,
                             const typename Gradient::Element* at_gradient,
                             float* at_weight, float* at_m, float* at_v,
                             typename Model::Element*... model) const {
    update(non_temporal, at_gradient, at_weight, at_m, at_v, nullptr, model...);
  }

 protected:
  // update() computes AMSGrad if at_x is not null.
  template <class NonTemporal>
  HWY_INLINE void update(NonTemporal non_temporal,
                         const typename Gradient::Element* at_gradient,
                         float* at_weight, float* at_m, float* at_v,
                         float* at_x, typename Model::Element*... model) const {
    VF weight = load(at_weight);
    VF g = gradient(at_gradient);
    if (decays) g = fma(weight, weight_decay, g);
    weight = hn::Mul(weight, decay);

    VF m = load(at_m);
    m = fma(lerp_factor, hn::Sub(g, m), hn::IfThenElse(lerp_is_small, m, g));
    store(m, at_m);
    VF v = fma(hn::Mul(one_minus_beta2, g), g, hn::Mul(load(at_v), beta2));
    store(v, at_v);
    if (at_x != nullptr) {
      v = maximum(load(at_x), v);
      store(v, at_x);
    }

    const VF denominator =
        hn::Add(hn::Div(hn::Sqrt(v), bias_correction2_sqrt), eps);
    weight = hn::Add(weight, hn::Div(hn::Mul(minus_step_size, m), denominator));
    store(weight, at_weight);
    (store_as<Model>(DF(), weight, non_temporal, model), ...);
    (void)non_temporal;
  }
};

template <class Gradient, class... Model>
struct AdamAmsgrad : Adam<Gradient, Model...> {
  explicit HWY_INLINE AdamAmsgrad(const AdamArgs& args)
      : Adam<Gradient, Model...>(args) {}

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

template <class Gradient, class... Model>
HWY_INLINE void adam(const void* args, const Tile& tile, Result&) {
  const Adam<Gradient, Model...> step(*static_cast<const AdamArgs*>(args));
  for_each_weight<Model...>(tile, step, Input<Gradient>(tile, 0),
                            InOut<Float32>(tile, 1), InOut<Float32>(tile, 2),
                            InOut<Float32>(tile, 3));
}

template <class Gradient, class... Model>
HWY_INLINE void adam_amsgrad(const void* args, const Tile& tile, Result&) {
  const AdamAmsgrad<Gradient, Model...> step(
      *static_cast<const AdamArgs*>(args));
  for_each_weight<Model...>(tile, step, Input<Gradient>(tile, 0),
                            InOut<Float32>(tile, 1), InOut<Float32>(tile, 2),
                            InOut<Float32>(tile, 3), InOut<Float32>(tile, 4));
}

}  // namespace

SWAMP_DEFINE_KERNEL(adam_float16, adam<Float16>)
SWAMP_DEFINE_KERNEL(adam_float16_float16, adam<Float16, Float16>)
SWAMP_DEFINE_KERNEL(adam_float16_bfloat16, adam<Float16, BFloat16>)
SWAMP_DEFINE_KERNEL(adam_bfloat16, adam<BFloat16>)
SWAMP_DEFINE_KERNEL(adam_bfloat16_float16, adam<BFloat16, Float16>)
SWAMP_DEFINE_KERNEL(adam_bfloat16_bfloat16, adam<BFloat16, BFloat16>)
SWAMP_DEFINE_KERNEL(adam_float32, adam<Float32>)
SWAMP_DEFINE_KERNEL(adam_float32_float16, adam<Float32, Float16>)
SWAMP_DEFINE_KERNEL(adam_float32_bfloat16, adam<Float32, BFloat16>)
SWAMP_DEFINE_KERNEL(adam_amsgrad_float16, adam_amsgrad<Float16>)
SWAMP_DEFINE_KERNEL(adam_amsgrad_float16_float16,
                    adam_amsgrad<Float16, Float16>)
SWAMP_DEFINE_KERNEL(adam_amsgrad_float16_bfloat16,
                    adam_amsgrad<Float16, BFloat16>)
SWAMP_DEFINE_KERNEL(adam_amsgrad_bfloat16, adam_amsgrad<BFloat16>)
SWAMP_DEFINE_KERNEL(adam_amsgrad_bfloat16_float16,
                    adam_amsgrad<BFloat16, Float16>)
SWAMP_DEFINE_KERNEL(adam_amsgrad_bfloat16_bfloat16,
                    adam_amsgrad<BFloat16, BFloat16>)
SWAMP_DEFINE_KERNEL(adam_amsgrad_float32, adam_amsgrad<Float32>)
SWAMP_DEFINE_KERNEL(adam_amsgrad_float32_float16,
                    adam_amsgrad<Float32, Float16>)
SWAMP_DEFINE_KERNEL(adam_amsgrad_float32_bfloat16,
                    adam_amsgrad<Float32, BFloat16>)

}  // namespace swamp::slave::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
