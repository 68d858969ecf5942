#include <cmath>

#include "slave/optimizer.h"
#include "slave/reference.h"
#include "slave/reference_formats.h"

namespace swamp::slave::reference {
namespace {

// No model weight beside the master weight.
struct None {
  using Storage = void;
};

template <class Model>
void store_model(void* tile, std::size_t i, float weight) {
  static_cast<typename Model::Storage*>(tile)[i] = Model::store(weight);
}
template <>
void store_model<None>(void*, std::size_t, float) {}

template <class Gradient, class Args>
float clipped_gradient(const Args& args, const void* tile, std::size_t i) {
  const float wide =
      Gradient::load(static_cast<const typename Gradient::Storage*>(tile)[i]);
  return wide * args.inv_scale * args.clip_coefficient;
}

template <class Gradient, class Model>
void sgd(const void* args_bytes, void* const* tiles, std::size_t count) {
  const SgdArgs& args = *static_cast<const SgdArgs*>(args_bytes);
  auto* weights = static_cast<float*>(tiles[1]);
  for (std::size_t i = 0; i < count; ++i) {
    float g = clipped_gradient<Gradient>(args, tiles[0], i);
    if (args.weight_decay != 0.0f) {
      g = std::fma(weights[i], args.weight_decay, g);
    }
    weights[i] = std::fma(g, -args.lr, weights[i]);
    store_model<Model>(tiles[2], i, weights[i]);
  }
}

template <class Gradient, class Model>
void sgd_momentum(const void* args_bytes, void* const* tiles,
                  std::size_t count) {
  const SgdArgs& args = *static_cast<const SgdArgs*>(args_bytes);
  auto* weights = static_cast<float*>(tiles[1]);
  auto* buffer = static_cast<float*>(tiles[2]);
  for (std::size_t i = 0; i < count; ++i) {
    float g = clipped_gradient<Gradient>(args, tiles[0], i);
    if (args.weight_decay != 0.0f) {
      g = std::fma(weights[i], args.weight_decay, g);
    }
    buffer[i] = args.first_step != 0 ? g
                                     : std::fma(g, args.one_minus_dampening,
                                                buffer[i] * args.momentum);
    g = args.nesterov != 0 ? std::fma(buffer[i], args.momentum, g) : buffer[i];
    weights[i] = std::fma(g, -args.lr, weights[i]);
    store_model<Model>(tiles[3], i, weights[i]);
  }
}

// torch's lerp starts from the nearer end.
float lerp(float from, float to, float weight) {
  return std::fabs(weight) < 0.5f ? std::fma(weight, to - from, from)
                                  : std::fma(weight - 1.0f, to - from, to);
}

template <class Gradient, class Model>
void adam(const void* args_bytes, void* const* tiles, std::size_t count) {
  const AdamArgs& args = *static_cast<const AdamArgs*>(args_bytes);
  auto* weights = static_cast<float*>(tiles[1]);
  auto* m = static_cast<float*>(tiles[2]);
  auto* v = static_cast<float*>(tiles[3]);
  for (std::size_t i = 0; i < count; ++i) {
    float g = clipped_gradient<Gradient>(args, tiles[0], i);
    if (args.weight_decay != 0.0f) {
      g = std::fma(weights[i], args.weight_decay, g);
    }
    m[i] = lerp(m[i], g, args.one_minus_beta1);
    v[i] = std::fma(args.one_minus_beta2 * g, g, v[i] * args.beta2);
    const float denominator =
        std::sqrt(v[i]) / args.bias_correction2_sqrt + args.eps;
    weights[i] = weights[i] * args.decay + -args.step_size * m[i] / denominator;
    store_model<Model>(tiles[4], i, weights[i]);
  }
}

}  // namespace

#define SWAMP_STEP(step, name, Gradient, Model)                               \
  void step##_##name(const void* args, void* const* tiles, std::size_t count, \
                     std::size_t, Result&) {                                  \
    step<Gradient, Model>(args, tiles, count);                                \
  }
#define SWAMP_STEPS(step, gradient, Gradient)             \
  SWAMP_STEP(step, gradient, Gradient, None)              \
  SWAMP_STEP(step, gradient##_float16, Gradient, Float16) \
  SWAMP_STEP(step, gradient##_bfloat16, Gradient, BFloat16)
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

}  // namespace swamp::slave::reference
