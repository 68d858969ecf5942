#include <cmath>

#include "slave/kernel_args.h"
#include "slave/reference.h"

namespace swamp::slave::reference {
namespace {

// No model weight beside the master weight.
struct None {
  using Element = void;
};

template <class Model>
void store_model(void* tile, std::size_t i, float weight) {
  static_cast<typename Model::Element*>(tile)[i] = Model::narrow(weight);
}
template <>
void store_model<None>(void*, std::size_t, float) {}

template <class Gradient, class Args>
float clipped_gradient(const Args& args, const void* tile, std::size_t i) {
  const float wide =
      Gradient::widen(static_cast<const typename Gradient::Element*>(tile)[i]);
  return wide * args.inv_scale * args.clip_coefficient;
}

template <class Gradient, class Model>
void sgd(const void* args_bytes, const Tile& tile, Result&) {
  const SgdArgs& args = *static_cast<const SgdArgs*>(args_bytes);
  auto* weights = static_cast<float*>(tile.operands[1]);
  for (std::size_t i = 0; i < tile.count; ++i) {
    float g = clipped_gradient<Gradient>(args, tile.operands[0], i);
    if (args.weight_decay != 0.0f) {
      g = std::fma(weights[i], args.weight_decay, g);
    }
    weights[i] = std::fma(g, -args.lr, weights[i]);
    store_model<Model>(tile.operands[2], i, weights[i]);
  }
}

template <class Gradient, class Model>
void sgd_momentum(const void* args_bytes, const Tile& tile, Result&) {
  const SgdArgs& args = *static_cast<const SgdArgs*>(args_bytes);
  auto* weights = static_cast<float*>(tile.operands[1]);
  auto* buffer = static_cast<float*>(tile.operands[2]);
  for (std::size_t i = 0; i < tile.count; ++i) {
    float g = clipped_gradient<Gradient>(args, tile.operands[0], i);
    if (args.weight_decay != 0.0f) {
      g = std::fma(weights[i], args.weight_decay, g);
    }
    buffer[i] = args.first_step != 0 ? g
                                     : std::fma(g, args.one_minus_dampening,
                                                buffer[i] * args.momentum);
    g = args.nesterov != 0 ? std::fma(buffer[i], args.momentum, g) : buffer[i];
    weights[i] = std::fma(g, -args.lr, weights[i]);
    store_model<Model>(tile.operands[3], i, weights[i]);
  }
}

// torch's lerp starts from the nearer end.
float lerp(float from, float to, float weight) {
  return std::fabs(weight) < 0.5f ? std::fma(weight, to - from, from)
                                  : std::fma(weight - 1.0f, to - from, to);
}

// torch's maximum: nan if one is, with all bits set; b if they are equal.
float maximum(float a, float b) {
  if (std::isnan(a) || std::isnan(b)) return float_from_bits(0xffffffff);
  return a > b ? a : b;
}

// Operand 4 is the maximum of AMSGrad, or, without it, the model's weight.
template <class Gradient, class Model, bool kAmsgrad>
void adam_step(const void* args_bytes, const Tile& tile) {
  const AdamArgs& args = *static_cast<const AdamArgs*>(args_bytes);
  auto* weights = static_cast<float*>(tile.operands[1]);
  auto* m = static_cast<float*>(tile.operands[2]);
  auto* v = static_cast<float*>(tile.operands[3]);
  for (std::size_t i = 0; i < tile.count; ++i) {
    float g = clipped_gradient<Gradient>(args, tile.operands[0], i);
    if (args.weight_decay != 0.0f) {
      g = std::fma(weights[i], args.weight_decay, g);
    }
    m[i] = lerp(m[i], g, args.one_minus_beta1);
    v[i] = std::fma(args.one_minus_beta2 * g, g, v[i] * args.beta2);
    float square = v[i];
    if (kAmsgrad) {
      float& largest = static_cast<float*>(tile.operands[4])[i];
      square = largest = maximum(largest, square);
    }
    const float denominator =
        std::sqrt(square) / args.bias_correction2_sqrt + args.eps;
    weights[i] = weights[i] * args.decay + -args.step_size * m[i] / denominator;
    store_model<Model>(tile.operands[kAmsgrad ? 5 : 4], i, weights[i]);
  }
}

template <class Gradient, class Model>
void adam(const void* args, const Tile& tile, Result&) {
  adam_step<Gradient, Model, false>(args, tile);
}

template <class Gradient, class Model>
void adam_amsgrad(const void* args, const Tile& tile, Result&) {
  adam_step<Gradient, Model, true>(args, tile);
}

}  // namespace

SWAMP_DEFINE_KERNEL(sgd_float16, sgd<Float16, None>)
SWAMP_DEFINE_KERNEL(sgd_float16_float16, sgd<Float16, Float16>)
SWAMP_DEFINE_KERNEL(sgd_float16_bfloat16, sgd<Float16, BFloat16>)
SWAMP_DEFINE_KERNEL(sgd_bfloat16, sgd<BFloat16, None>)
SWAMP_DEFINE_KERNEL(sgd_bfloat16_float16, sgd<BFloat16, Float16>)
SWAMP_DEFINE_KERNEL(sgd_bfloat16_bfloat16, sgd<BFloat16, BFloat16>)
SWAMP_DEFINE_KERNEL(sgd_float32, sgd<Float32, None>)
SWAMP_DEFINE_KERNEL(sgd_float32_float16, sgd<Float32, Float16>)
SWAMP_DEFINE_KERNEL(sgd_float32_bfloat16, sgd<Float32, BFloat16>)
SWAMP_DEFINE_KERNEL(sgd_momentum_float16, sgd_momentum<Float16, None>)
SWAMP_DEFINE_KERNEL(sgd_momentum_float16_float16,
                    sgd_momentum<Float16, Float16>)
SWAMP_DEFINE_KERNEL(sgd_momentum_float16_bfloat16,
                    sgd_momentum<Float16, BFloat16>)
SWAMP_DEFINE_KERNEL(sgd_momentum_bfloat16, sgd_momentum<BFloat16, None>)
SWAMP_DEFINE_KERNEL(sgd_momentum_bfloat16_float16,
                    sgd_momentum<BFloat16, Float16>)
SWAMP_DEFINE_KERNEL(sgd_momentum_bfloat16_bfloat16,
                    sgd_momentum<BFloat16, BFloat16>)
SWAMP_DEFINE_KERNEL(sgd_momentum_float32, sgd_momentum<Float32, None>)
SWAMP_DEFINE_KERNEL(sgd_momentum_float32_float16,
                    sgd_momentum<Float32, Float16>)
SWAMP_DEFINE_KERNEL(sgd_momentum_float32_bfloat16,
                    sgd_momentum<Float32, BFloat16>)
SWAMP_DEFINE_KERNEL(adam_float16, adam<Float16, None>)
SWAMP_DEFINE_KERNEL(adam_float16_float16, adam<Float16, Float16>)
SWAMP_DEFINE_KERNEL(adam_float16_bfloat16, adam<Float16, BFloat16>)
SWAMP_DEFINE_KERNEL(adam_bfloat16, adam<BFloat16, None>)
SWAMP_DEFINE_KERNEL(adam_bfloat16_float16, adam<BFloat16, Float16>)
SWAMP_DEFINE_KERNEL(adam_bfloat16_bfloat16, adam<BFloat16, BFloat16>)
SWAMP_DEFINE_KERNEL(adam_float32, adam<Float32, None>)
SWAMP_DEFINE_KERNEL(adam_float32_float16, adam<Float32, Float16>)
SWAMP_DEFINE_KERNEL(adam_float32_bfloat16, adam<Float32, BFloat16>)
SWAMP_DEFINE_KERNEL(adam_amsgrad_float16, adam_amsgrad<Float16, None>)
SWAMP_DEFINE_KERNEL(adam_amsgrad_float16_float16,
                    adam_amsgrad<Float16, Float16>)
SWAMP_DEFINE_KERNEL(adam_amsgrad_float16_bfloat16,
                    adam_amsgrad<Float16, BFloat16>)
SWAMP_DEFINE_KERNEL(adam_amsgrad_bfloat16, adam_amsgrad<BFloat16, None>)
SWAMP_DEFINE_KERNEL(adam_amsgrad_bfloat16_float16,
                    adam_amsgrad<BFloat16, Float16>)
SWAMP_DEFINE_KERNEL(adam_amsgrad_bfloat16_bfloat16,
                    adam_amsgrad<BFloat16, BFloat16>)
SWAMP_DEFINE_KERNEL(adam_amsgrad_float32, adam_amsgrad<Float32, None>)
SWAMP_DEFINE_KERNEL(adam_amsgrad_float32_float16,
                    adam_amsgrad<Float32, Float16>)
SWAMP_DEFINE_KERNEL(adam_amsgrad_float32_bfloat16,
                    adam_amsgrad<Float32, BFloat16>)

}  // namespace swamp::slave::reference
