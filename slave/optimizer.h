// The kernels of the optimizers' steps: a gradient is read, float32 master
// weights and moments are moved, and the model's weight is written where it is
// 16-bit. Before everything else the gradient is unscaled and clipped:
// g = f32(f32(widened g * inv_scale) * clip_coefficient).
#ifndef SWAMP_SLAVE_OPTIMIZER_H_
#define SWAMP_SLAVE_OPTIMIZER_H_

#include <cstdint>

namespace swamp::slave {

// torch.optim.SGD, its for-loop form on CPUs. add(x, alpha) there is one fused
// multiply-add:
//   g = fma(p, weight_decay, g)                            if weight_decay != 0
//   b = first_step ? g : fma(g, 1 - dampening, b * momentum)    with a momentum
//   g = nesterov ? fma(b, momentum, g) : b
//   p = fma(g, -lr, p)
struct SgdArgs {
  float inv_scale;
  float clip_coefficient;
  float lr;
  float momentum;
  float one_minus_dampening;
  float weight_decay;
  std::uint32_t nesterov;    // 0 or 1
  std::uint32_t first_step;  // 0 or 1
};

// torch's fused CPU Adam and AdamW, the vector body (FusedAdamKernel.cpp):
//   Adam: g = g + p * weight_decay; AdamW: p = p * decay    if weight_decay !=
//   0 m = lerp(m, g, 1 - beta1) v = fma(one_minus_beta2 * g, g, v * beta2) p =
//   p + (-step_size * m) / (sqrt(v) / bias_correction2_sqrt + eps)
struct AdamArgs {
  float inv_scale;
  float clip_coefficient;
  float one_minus_beta1;
  float beta2;
  float one_minus_beta2;
  float step_size;              // lr / (1 - beta1^step)
  float bias_correction2_sqrt;  // sqrt(1 - beta2^step)
  float eps;
  float weight_decay;  // Adam's; 0: none
  float decay;         // AdamW's 1 - lr * weight_decay; 1: none
};

}  // namespace swamp::slave

#endif  // SWAMP_SLAVE_OPTIMIZER_H_
