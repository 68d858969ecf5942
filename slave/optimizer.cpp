// The kernels of the optimizers' steps, compiled once per target by Highway.
#include "slave/optimizer.h"

#include "swamp/kernel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "slave/optimizer.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "slave/exact_fma-inl.h"
#include "slave/streams-inl.h"

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
template <bool kPast, class Gradient, class... Model>
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
    (store_as<Model, kPast>(DF(), weight, model), ...);
  }
};

template <bool kPast, class Gradient, class... Model>
struct SgdMomentum : Sgd<kPast, Gradient, Model...> {
  explicit HWY_INLINE SgdMomentum(const SgdArgs& args)
      : Sgd<kPast, Gradient, Model...>(args) {}
  HWY_INLINE void operator()(const typename Gradient::Element* at_gradient,
                             float* at_weight, float* at_buffer,
                             typename Model::Element*... model) const {
    this->buffer(at_gradient, at_weight, at_buffer, model...);
  }
};

template <bool kPast, class Gradient, class... Model>
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
    (store_as<Model, kPast>(DF(), weight, model), ...);
  }
};

// run_step() moves the weights of a tile; the model's are the last stream,
// where they are written at all.
template <template <bool, class, class...> class Step, class Gradient,
          class... Model, class Args, class... Tiles>
HWY_INLINE void run_step(const Args& args, std::size_t count,
                         void* const* model, Tiles... tiles) {
  const Step<false, Gradient, Model...> step(args);
  if constexpr (sizeof...(Model) == 0) {
    for_each_vector(count, args.prefetch_bytes, step, tiles...);
  } else if (args.past_caches != 0) {
    const Step<true, Gradient, Model...> past(args);
    for_each_vector_past(count, args.prefetch_bytes, step, past,
                         OutTile<Model>(*model)..., tiles...,
                         OutTile<Model>(*model)...);
  } else {
    for_each_vector(count, args.prefetch_bytes, step, tiles...,
                    OutTile<Model>(*model)...);
  }
}

template <class Gradient, class... Model>
HWY_INLINE void sgd(const void* args, void* const* tiles, std::size_t count) {
  run_step<Sgd, Gradient, Model...>(*static_cast<const SgdArgs*>(args), count,
                                    tiles + 2, InTile<Gradient>(tiles[0]),
                                    InOutTile<Float32Stream>(tiles[1]));
}

template <class Gradient, class... Model>
HWY_INLINE void sgd_momentum(const void* args, void* const* tiles,
                             std::size_t count) {
  run_step<SgdMomentum, Gradient, Model...>(
      *static_cast<const SgdArgs*>(args), count, tiles + 3,
      InTile<Gradient>(tiles[0]), InOutTile<Float32Stream>(tiles[1]),
      InOutTile<Float32Stream>(tiles[2]));
}

template <class Gradient, class... Model>
HWY_INLINE void adam(const void* args, void* const* tiles, std::size_t count) {
  run_step<Adam, Gradient, Model...>(
      *static_cast<const AdamArgs*>(args), count, tiles + 4,
      InTile<Gradient>(tiles[0]), InOutTile<Float32Stream>(tiles[1]),
      InOutTile<Float32Stream>(tiles[2]), InOutTile<Float32Stream>(tiles[3]));
}

}  // namespace

#define SWAMP_STEP(step, name, ...)                                           \
  void step##_##name(const void* args, void* const* tiles, std::size_t count, \
                     std::size_t, Result&) {                                  \
    step<__VA_ARGS__>(args, tiles, count);                                    \
  }
#define SWAMP_STEPS(step, gradient, Gradient)                           \
  SWAMP_STEP(step, gradient, Gradient##Stream)                          \
  SWAMP_STEP(step, gradient##_float16, Gradient##Stream, Float16Stream) \
  SWAMP_STEP(step, gradient##_bfloat16, Gradient##Stream, BFloat16Stream)
#define SWAMP_ALL_STEPS(gradient, Gradient)     \
  SWAMP_STEPS(sgd, gradient, Gradient)          \
  SWAMP_STEPS(sgd_momentum, gradient, Gradient) \
  SWAMP_STEPS(adam, gradient, Gradient)
SWAMP_ALL_STEPS(float16, Float16)
SWAMP_ALL_STEPS(bfloat16, BFloat16)
SWAMP_ALL_STEPS(float32, Float32)
#undef SWAMP_ALL_STEPS
#undef SWAMP_STEPS
#undef SWAMP_STEP

}  // namespace swamp::slave::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
