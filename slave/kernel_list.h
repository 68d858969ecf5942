// The list of kernels as constants, generated from kernels.inc.
#ifndef SWAMP_SLAVE_KERNEL_LIST_H_
#define SWAMP_SLAVE_KERNEL_LIST_H_

#include "slave/attention_args.h"
#include "slave/kernel.h"
#include "slave/kernel_args.h"
#include "slave/row_args.h"

namespace swamp {

// Kernels of one family compute the same with operands of different types.
enum class KernelFamily : std::uint8_t {
  unscale,
  check,
  scan,
  norm,
  count_zeros,
  cast,
  accumulate,
  lerp,
  zero,
  sgd,
  sgd_momentum,
  adam,
  adam_amsgrad,
  scaled_softmax,
  scaled_softmax_sum,
  scaled_softmax_map,
  scaled_masked_softmax,
  scaled_masked_softmax_sum,
  scaled_masked_softmax_map,
  softmax_backward,
  softmax_backward_sum,
  softmax_backward_map,
  cross_entropy,
  cross_entropy_parts,
  cross_entropy_sum,
  cross_entropy_backward,
  cross_entropy_backward_map,
  layer_norm_sum,
  rms_norm_sum,
  layer_norm,
  layer_norm_map,
  rms_norm,
  rms_norm_map,
  layer_norm_backward,
  layer_norm_backward_sum,
  layer_norm_backward_map,
  rms_norm_backward,
  rms_norm_backward_sum,
  rms_norm_backward_map,
  residual_add,
  attention_pack,
  attention,
  attention_output,
  attention_dot,
  attention_widen,
  attention_backward,
  attention_unpack,
  attention_round,
  moe_count,
  moe_position,
  moe_sum
};

namespace slave {

namespace kernel_id {
enum : KernelId {
#define SWAMP_KERNEL(name, ...) name,
#include "slave/kernels.inc"
#undef SWAMP_KERNEL
  count
};
}  // namespace kernel_id

// Indexed by KernelId.
inline constexpr KernelInfo kKernels[] = {
#define SWAMP_KERNEL(name, family, Args, ...)                     \
  kernel_info<Args>(#name, kernel_id::name, KernelFamily::family, \
                    {__VA_ARGS__}),
#include "slave/kernels.inc"
#undef SWAMP_KERNEL
};

// KernelGroup is the kernels of a family that have the same number of operands.
struct KernelGroup {
  static constexpr int kMaxKernels = 9;

  int operand_count = 0;
  int count = 0;
  KernelId ids[kMaxKernels] = {};
  // fits[s][type], bit i: operand s of kernel ids[i] is of `type`.
  std::uint32_t fits[kMaxOperands][kScalarTypeCount] = {};
  // The lowest bit of fits[0][type], or kNone.
  static constexpr std::uint8_t kNone = 0xff;
  std::uint8_t first_fit[kScalarTypeCount] = {kNone, kNone, kNone,
                                              kNone, kNone, kNone};
};

constexpr KernelGroup kernel_group(KernelFamily family, int operand_count) {
  KernelGroup group;
  group.operand_count = operand_count;
  for (const KernelInfo& kernel : kKernels) {
    if (kernel.family != family || kernel.operand_count != operand_count) {
      continue;
    }
    for (int s = 0; s < operand_count; ++s) {
      if (kernel.operands[s].type == kNoScalarType) continue;
      group.fits[s][kernel.operands[s].type] |= 1u << group.count;
    }
    std::uint8_t& first = group.first_fit[kernel.operands[0].type];
    if (first == KernelGroup::kNone) {
      first = static_cast<std::uint8_t>(group.count);
    }
    group.ids[group.count++] = kernel.id;
  }
  return group;
}

}  // namespace slave
}  // namespace swamp

#endif  // SWAMP_SLAVE_KERNEL_LIST_H_
