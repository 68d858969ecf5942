// The kernels of the optimizers' steps, compiled once per target by Highway.
#include "slave/kernel.h"
#include "slave/kernel_args.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "slave/optimizer.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "slave/exact_fma-inl.h"
#include "slave/operands-inl.h"

HWY_BEFORE_NAMESPACE();
namespace swamp::slave::HWY_NAMESPACE {
namespace {

using DF = hn::ScalableTag<float>;
using VF = hn::Vec<DF>;

HWY_INLINE VF set(float value) { return hn::Set(DF(), value); }
HWY_INLINE VF load(const float* at) { return hn::LoadU(DF(), at); }
HWY_INLINE void store(VF value, float* at) { hn::StoreU(value, DF(), at); }
HWY_INLINE VF fma(VF a, VF b, VF c) { return exact_fma(DF(), a, b, c); }

// ClippedGradient is what every step begins with.
template <class Gradient>
struct ClippedGradient {
  VF inv_scale, clip_coefficient;

  HWY_INLINE VF operator()(const typename Gradient::Element* at) const {
    return hn::Mul(hn::Mul(Gradient::load(DF(), at), inv_scale),
                   clip_coefficient);
  }
};

// What the arguments say of all elements alike is asked once a vector: such
// branches cost nothing beside the memory, and blends would change bits.
template <bool kNonTemporal, class Gradient, class... Model>
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

  // Without a momentum.
  HWY_INLINE void operator()(const typename Gradient::Element* at_gradient,
                             float* at_weight,
                             typename Model::Element*... model) const {
    const VF weight = load(at_weight);
    move(decayed(at_gradient, weight), weight, at_weight, model...);
  }

  // buffer() is the step with a momentum.
  HWY_INLINE void buffer(const typename Gradient::Element* at_gradient,
                         float* at_weight, float* at_buffer,
                         typename Model::Element*... model) const {
    const VF weight = load(at_weight);
    VF g = decayed(at_gradient, weight);
    VF b = g;
    if (!first_step) {
      b = fma(g, one_minus_dampening, hn::Mul(load(at_buffer), momentum));
    }
    store(b, at_buffer);
    g = nesterov ? fma(b, momentum, g) : b;
    move(g, weight, at_weight, model...);
  }

 private:
  HWY_INLINE VF decayed(const typename Gradient::Element* at, VF weight) const {
    const VF g = gradient(at);
    return decays ? fma(weight, weight_decay, g) : g;
  }
  HWY_INLINE void move(VF g, VF weight, float* at_weight,
                       typename Model::Element*... model) const {
    weight = fma(g, minus_lr, weight);
    store(weight, at_weight);
    (store_as<Model, kNonTemporal>(DF(), weight, model), ...);
  }
};

template <bool kNonTemporal, class Gradient, class... Model>
struct SgdMomentum : Sgd<kNonTemporal, Gradient, Model...> {
  explicit HWY_INLINE SgdMomentum(const SgdArgs& args)
      : Sgd<kNonTemporal, Gradient, Model...>(args) {}
  HWY_INLINE void operator()(const typename Gradient::Element* at_gradient,
                             float* at_weight, float* at_buffer,
                             typename Model::Element*... model) const {
    this->buffer(at_gradient, at_weight, at_buffer, model...);
  }
};

template <bool kNonTemporal, class Gradient, class... Model>
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

  HWY_INLINE void operator()(const typename Gradient::Element* at_gradient,
                             float* at_weight, float* at_m, float* at_v,
                             typename Model::Element*... model) const {
    VF weight = load(at_weight);
    VF g = gradient(at_gradient);
    if (decays) g = fma(weight, weight_decay, g);
    weight = hn::Mul(weight, decay);

    VF m = load(at_m);
    m = fma(lerp_factor, hn::Sub(g, m), hn::IfThenElse(lerp_is_small, m, g));
    store(m, at_m);
    const VF v =
        fma(hn::Mul(one_minus_beta2, g), g, hn::Mul(load(at_v), beta2));
    store(v, at_v);

    const VF denominator =
        hn::Add(hn::Div(hn::Sqrt(v), bias_correction2_sqrt), eps);
    weight = hn::Add(weight, hn::Div(hn::Mul(minus_step_size, m), denominator));
    store(weight, at_weight);
    (store_as<Model, kNonTemporal>(DF(), weight, model), ...);
  }
};

// run_step() moves the weights of a tile. The model's weights, if they are
// written at all, are the last operand, at `model`.
template <template <bool, class, class...> class Step, class Gradient,
          class... Model, class Args, class... Data>
HWY_INLINE void run_step(const Args& args, const Tile& tile, void* const* model,
                         Data... operands) {
  const Step<false, Gradient, Model...> step(args);
  if constexpr (sizeof...(Model) == 0) {
    for_each_vector(tile, step, operands...);
  } else if (tile.non_temporal) {
    const Step<true, Gradient, Model...> non_temporal(args);
    for_each_vector_non_temporal(tile, step, non_temporal,
                                 Output<Model>(*model)..., operands...,
                                 Output<Model>(*model)...);
  } else {
    for_each_vector(tile, step, operands..., Output<Model>(*model)...);
  }
}

template <class Gradient, class... Model>
HWY_INLINE void sgd(const void* args, const Tile& tile, Result&) {
  run_step<Sgd, Gradient, Model...>(*static_cast<const SgdArgs*>(args), tile,
                                    tile.operands + 2,
                                    Input<Gradient>(tile.operands[0]),
                                    InOut<Float32Stream>(tile.operands[1]));
}

template <class Gradient, class... Model>
HWY_INLINE void sgd_momentum(const void* args, const Tile& tile, Result&) {
  run_step<SgdMomentum, Gradient, Model...>(
      *static_cast<const SgdArgs*>(args), tile, tile.operands + 3,
      Input<Gradient>(tile.operands[0]), InOut<Float32Stream>(tile.operands[1]),
      InOut<Float32Stream>(tile.operands[2]));
}

template <class Gradient, class... Model>
HWY_INLINE void adam(const void* args, const Tile& tile, Result&) {
  run_step<Adam, Gradient, Model...>(
      *static_cast<const AdamArgs*>(args), tile, tile.operands + 4,
      Input<Gradient>(tile.operands[0]), InOut<Float32Stream>(tile.operands[1]),
      InOut<Float32Stream>(tile.operands[2]),
      InOut<Float32Stream>(tile.operands[3]));
}

}  // namespace

SWAMP_DEFINE_KERNEL(sgd_float16, sgd<Float16Stream>)
SWAMP_DEFINE_KERNEL(sgd_float16_float16, sgd<Float16Stream, Float16Stream>)
SWAMP_DEFINE_KERNEL(sgd_float16_bfloat16, sgd<Float16Stream, BFloat16Stream>)
SWAMP_DEFINE_KERNEL(sgd_bfloat16, sgd<BFloat16Stream>)
SWAMP_DEFINE_KERNEL(sgd_bfloat16_float16, sgd<BFloat16Stream, Float16Stream>)
SWAMP_DEFINE_KERNEL(sgd_bfloat16_bfloat16, sgd<BFloat16Stream, BFloat16Stream>)
SWAMP_DEFINE_KERNEL(sgd_float32, sgd<Float32Stream>)
SWAMP_DEFINE_KERNEL(sgd_float32_float16, sgd<Float32Stream, Float16Stream>)
SWAMP_DEFINE_KERNEL(sgd_float32_bfloat16, sgd<Float32Stream, BFloat16Stream>)
SWAMP_DEFINE_KERNEL(sgd_momentum_float16, sgd_momentum<Float16Stream>)
SWAMP_DEFINE_KERNEL(sgd_momentum_float16_float16,
                    sgd_momentum<Float16Stream, Float16Stream>)
SWAMP_DEFINE_KERNEL(sgd_momentum_float16_bfloat16,
                    sgd_momentum<Float16Stream, BFloat16Stream>)
SWAMP_DEFINE_KERNEL(sgd_momentum_bfloat16, sgd_momentum<BFloat16Stream>)
SWAMP_DEFINE_KERNEL(sgd_momentum_bfloat16_float16,
                    sgd_momentum<BFloat16Stream, Float16Stream>)
SWAMP_DEFINE_KERNEL(sgd_momentum_bfloat16_bfloat16,
                    sgd_momentum<BFloat16Stream, BFloat16Stream>)
SWAMP_DEFINE_KERNEL(sgd_momentum_float32, sgd_momentum<Float32Stream>)
SWAMP_DEFINE_KERNEL(sgd_momentum_float32_float16,
                    sgd_momentum<Float32Stream, Float16Stream>)
SWAMP_DEFINE_KERNEL(sgd_momentum_float32_bfloat16,
                    sgd_momentum<Float32Stream, BFloat16Stream>)
SWAMP_DEFINE_KERNEL(adam_float16, adam<Float16Stream>)
SWAMP_DEFINE_KERNEL(adam_float16_float16, adam<Float16Stream, Float16Stream>)
SWAMP_DEFINE_KERNEL(adam_float16_bfloat16, adam<Float16Stream, BFloat16Stream>)
SWAMP_DEFINE_KERNEL(adam_bfloat16, adam<BFloat16Stream>)
SWAMP_DEFINE_KERNEL(adam_bfloat16_float16, adam<BFloat16Stream, Float16Stream>)
SWAMP_DEFINE_KERNEL(adam_bfloat16_bfloat16,
                    adam<BFloat16Stream, BFloat16Stream>)
SWAMP_DEFINE_KERNEL(adam_float32, adam<Float32Stream>)
SWAMP_DEFINE_KERNEL(adam_float32_float16, adam<Float32Stream, Float16Stream>)
SWAMP_DEFINE_KERNEL(adam_float32_bfloat16, adam<Float32Stream, BFloat16Stream>)

}  // namespace swamp::slave::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
