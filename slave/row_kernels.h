// The kernels of the row operators and the templates that compute them. A
// source of kernels and its reference, whose templates have the same names,
// both expand the list of their family.
#ifndef SWAMP_SLAVE_ROW_KERNELS_H_
#define SWAMP_SLAVE_ROW_KERNELS_H_

#include "slave/kernel.h"

// LIST(type, Format) for each type of x.
#define SWAMP_FOR_ROW_TYPES(LIST) \
  LIST(float16, Float16)          \
  LIST(bfloat16, BFloat16)        \
  LIST(float32, Float32)

// LIST(types, Format, Format of the weight or bias) for each pair of types.
#define SWAMP_FOR_ROW_AND_WEIGHT_TYPES(LIST) \
  LIST(float16, Float16, Float16)            \
  LIST(float16_float32, Float16, Float32)    \
  LIST(bfloat16, BFloat16, BFloat16)         \
  LIST(bfloat16_float32, BFloat16, Float32)  \
  LIST(float32, Float32, Float32)

#define SWAMP_SOFTMAX_KERNELS(type, Format)                                  \
  SWAMP_DEFINE_KERNEL(scaled_softmax_##type, softmax<Format, false>)         \
  SWAMP_DEFINE_KERNEL(scaled_softmax_sum_##type, softmax_sum<Format, false>) \
  SWAMP_DEFINE_KERNEL(scaled_softmax_map_##type, softmax_map<Format, false>) \
  SWAMP_DEFINE_KERNEL(scaled_masked_softmax_##type, softmax<Format, true>)   \
  SWAMP_DEFINE_KERNEL(scaled_masked_softmax_sum_##type,                      \
                      softmax_sum<Format, true>)                             \
  SWAMP_DEFINE_KERNEL(scaled_masked_softmax_map_##type,                      \
                      softmax_map<Format, true>)                             \
  SWAMP_DEFINE_KERNEL(softmax_backward_##type, backward<Format>)             \
  SWAMP_DEFINE_KERNEL(softmax_backward_sum_##type, backward_sum<Format>)     \
  SWAMP_DEFINE_KERNEL(softmax_backward_map_##type, backward_map<Format>)

#define SWAMP_CROSS_ENTROPY_KERNELS(type, Format)                              \
  SWAMP_DEFINE_KERNEL(cross_entropy_##type, cross_entropy<Format>)             \
  SWAMP_DEFINE_KERNEL(cross_entropy_parts_##type, cross_entropy_parts<Format>) \
  SWAMP_DEFINE_KERNEL(cross_entropy_sum_##type, cross_entropy_sum<Format>)     \
  SWAMP_DEFINE_KERNEL(cross_entropy_backward_##type, backward<Format>)         \
  SWAMP_DEFINE_KERNEL(cross_entropy_backward_map_##type, backward_map<Format>)

#define SWAMP_NORM_SUM_KERNELS(type, Format)                         \
  SWAMP_DEFINE_KERNEL(layer_norm_sum_##type, layer_norm_sum<Format>) \
  SWAMP_DEFINE_KERNEL(rms_norm_sum_##type, rms_norm_sum<Format>)

#define SWAMP_NORM_KERNELS(types, Format, Weight)                             \
  SWAMP_DEFINE_KERNEL(layer_norm_##types, layer_norm<Format, Weight>)         \
  SWAMP_DEFINE_KERNEL(layer_norm_map_##types, layer_norm_map<Format, Weight>) \
  SWAMP_DEFINE_KERNEL(rms_norm_##types, rms_norm<Format, Weight>)             \
  SWAMP_DEFINE_KERNEL(rms_norm_map_##types, rms_norm_map<Format, Weight>)

#define SWAMP_NORM_BACKWARD_KERNELS(types, Format, Weight) \
  SWAMP_DEFINE_KERNEL(layer_norm_backward_##types,         \
                      backward<Format, Weight, true>)      \
  SWAMP_DEFINE_KERNEL(layer_norm_backward_sum_##types,     \
                      backward_sum<Format, Weight, true>)  \
  SWAMP_DEFINE_KERNEL(layer_norm_backward_map_##types,     \
                      backward_map<Format, Weight, true>)  \
  SWAMP_DEFINE_KERNEL(rms_norm_backward_##types,           \
                      backward<Format, Weight, false>)     \
  SWAMP_DEFINE_KERNEL(rms_norm_backward_sum_##types,       \
                      backward_sum<Format, Weight, false>) \
  SWAMP_DEFINE_KERNEL(rms_norm_backward_map_##types,       \
                      backward_map<Format, Weight, false>)

#define SWAMP_RESIDUAL_ADD_KERNEL(types, Format, Bias) \
  SWAMP_DEFINE_KERNEL(residual_add_##types, residual_add<Format, Bias>)

#define SWAMP_ATTENTION_KERNELS(type, Format)              \
  SWAMP_DEFINE_KERNEL(attention_pack_##type, pack<Format>) \
  SWAMP_DEFINE_KERNEL(attention_##type, attention<Format>) \
  SWAMP_DEFINE_KERNEL(attention_output_##type, output<Format>)

#define SWAMP_ATTENTION_BACKWARD_KERNELS(type, Format)             \
  SWAMP_DEFINE_KERNEL(attention_dot_##type, dot_rows<Format>)      \
  SWAMP_DEFINE_KERNEL(attention_widen_##type, widen_rows<Format>)  \
  SWAMP_DEFINE_KERNEL(attention_backward_##type, backward<Format>) \
  SWAMP_DEFINE_KERNEL(attention_unpack_##type, unpack<Format>)     \
  SWAMP_DEFINE_KERNEL(attention_round_##type, round_rows<Format>)

#define SWAMP_MOE_INDEX_KERNELS(type, Index)          \
  SWAMP_DEFINE_KERNEL(moe_count_##type, count<Index>) \
  SWAMP_DEFINE_KERNEL(moe_position_##type, position<Index>)

#define SWAMP_MOE_KERNELS                                             \
  SWAMP_MOE_INDEX_KERNELS(int32, std::int32_t)                        \
  SWAMP_MOE_INDEX_KERNELS(int64, std::int64_t)                        \
  SWAMP_DEFINE_KERNEL(moe_count_map, count_map)                       \
  SWAMP_DEFINE_KERNEL(moe_position_map, position_map)                 \
  SWAMP_DEFINE_KERNEL(moe_sum_float16_float32, sum<Float16, Float32>) \
  SWAMP_DEFINE_KERNEL(moe_sum_bfloat16_float32, sum<BFloat16, Float32>)

#define SWAMP_MOE_SUM_KERNEL(type, Format) \
  SWAMP_DEFINE_KERNEL(moe_sum_##type, sum<Format, Format>)

#endif  // SWAMP_SLAVE_ROW_KERNELS_H_
