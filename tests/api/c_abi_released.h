/* The C ABI of the last release: whatever is in these rows may be added to, but
   not changed, or this does not compile. Each release adds rows for what is
   new. Included as C99 and as C++; every supported machine has 64-bit pointers.
 */
#ifndef SWAMP_TESTS_API_C_ABI_RELEASED_H_
#define SWAMP_TESTS_API_C_ABI_RELEASED_H_

#include <stddef.h>
#include <stdint.h>

#include "swamp/c_api.h"

#define ASSERT(condition) ((void)sizeof(char[(condition) ? 1 : -1]))
#define VALUE(name, value) ASSERT((name) == (value))
/* The size of the struct that `s` points to; SIZE_AT_LEAST() if it has
   struct_size and may get more members at its end. */
#define SIZE(bytes) ASSERT(sizeof *s == (bytes))
#define SIZE_AT_LEAST(bytes) ASSERT(sizeof *s >= (bytes))
#define FIELD(offset, type, name)                       \
  do {                                                  \
    type* pointer = &s->name;                           \
    (void)pointer;                                      \
    ASSERT(offsetof(__typeof__(*s), name) == (offset)); \
  } while (0)
#define FUNCTION(result, name, arguments) \
  do {                                    \
    result(*volatile f) arguments = name; \
    (void)f;                              \
  } while (0)

static inline void released_values(void) {
  ASSERT(sizeof(swamp_status) == 4);
  VALUE(SWAMP_OK, 0);
  VALUE(SWAMP_INVALID_ARGUMENT, 1);
  VALUE(SWAMP_UNSUPPORTED, 2);
  VALUE(SWAMP_OUT_OF_MEMORY, 3);
  VALUE(SWAMP_INTERNAL, 4);
  ASSERT(sizeof(swamp_dtype) == 4);
  VALUE(SWAMP_FLOAT16, 0);
  VALUE(SWAMP_BFLOAT16, 1);
  VALUE(SWAMP_FLOAT32, 2);
  VALUE(SWAMP_FLOAT64, 3);
  VALUE(SWAMP_FLOAT8_E4M3FN, 4);
  VALUE(SWAMP_FLOAT8_E5M2, 5);
  VALUE(SWAMP_FLOAT8_E4M3FNUZ, 6);
  VALUE(SWAMP_FLOAT8_E5M2FNUZ, 7);
  VALUE(SWAMP_FLOAT6_E3M2FN, 8);
  VALUE(SWAMP_FLOAT6_E2M3FN, 9);
  VALUE(SWAMP_FLOAT4_E2M1FN_X2, 10);
  VALUE(SWAMP_HIFLOAT8, 11);
  VALUE(SWAMP_FLOAT8_E8M0FNU, 12);
  VALUE(SWAMP_MXINT8, 13);
  ASSERT(sizeof(swamp_optimizer) == 4);
  VALUE(SWAMP_ADAM, 0);
  VALUE(SWAMP_SGD, 1);
  ASSERT(sizeof(swamp_rounding) == 4);
  VALUE(SWAMP_NEAREST_EVEN, 0);
  VALUE(SWAMP_NEAREST_AWAY, 1);
  VALUE(SWAMP_STOCHASTIC, 2);
  VALUE(SWAMP_ROUND_UP, 3);
  VALUE(SWAMP_ROUND_DOWN, 4);
  ASSERT(sizeof(swamp_cast_policy) == 4);
  VALUE(SWAMP_CAST_SATURATE, 0);
  VALUE(SWAMP_CAST_OVERFLOW, 1);
  VALUE(SWAMP_CAST_CUDA_SATURATE, 2);
  VALUE(SWAMP_CAST_CUDA, 3);
  VALUE(SWAMP_CAST_TORCH, 4);
  VALUE(SWAMP_CAST_ML_DTYPES, 5);
  ASSERT(sizeof(swamp_block_scaling) == 4);
  VALUE(SWAMP_BLOCK_MX_FLOOR, 0);
  VALUE(SWAMP_BLOCK_MX_CEIL, 1);
  VALUE(SWAMP_BLOCK_MX_EVEN, 2);
  VALUE(SWAMP_BLOCK_MX_RCEIL, 3);
  VALUE(SWAMP_BLOCK_TE_MXFP8, 4);
  VALUE(SWAMP_BLOCK_MICROXCALING, 5);
  VALUE(SWAMP_BLOCK_TE_NVFP4, 6);
  VALUE(SWAMP_BLOCK_TORCHAO_NVFP4, 7);
  VALUE(SWAMP_BLOCK_TE, 8);
  VALUE(SWAMP_BLOCK_TE_POWER_OF_2, 9);
  VALUE(SWAMP_BLOCK_TORCHAO, 10);
  VALUE(SWAMP_BLOCK_TORCHAO_POWER_OF_2, 11);
}

static inline void released_tensor(swamp_tensor* s) {
  SIZE(24);
  FIELD(0, void*, data);
  FIELD(8, size_t, count);
  FIELD(16, swamp_dtype, dtype);
}

static inline void released_config(swamp_config* s) {
  SIZE_AT_LEAST(64);
  FIELD(0, uint32_t, struct_size);
  FIELD(8, const char*, machine);
  FIELD(16, const char*, backend);
  FIELD(24, const char*, transfer);
  FIELD(32, uint32_t, core_groups);
  FIELD(36, uint32_t, slaves_per_group);
  FIELD(40, size_t, ldm_bytes);
  FIELD(48, const char*, isa);
  FIELD(56, const char*, bind);
}

static inline void released_unscale_report(swamp_unscale_report* s) {
  SIZE_AT_LEAST(40);
  FIELD(0, uint32_t, struct_size);
  FIELD(8, uint64_t, tensor);
  FIELD(16, uint64_t, index);
  FIELD(24, uint64_t, tensor_count);
  FIELD(32, uint64_t, element_count);
}

static inline void released_block_moments(swamp_block_moments* s) {
  SIZE(24);
  FIELD(0, uint8_t*, exp_avg);
  FIELD(8, uint8_t*, exp_avg_sq);
  FIELD(16, float*, absmax);
}

static inline void released_mixed_precision_step_options(
    swamp_mixed_precision_step_options* s) {
  SIZE_AT_LEAST(128);
  FIELD(0, uint32_t, struct_size);
  FIELD(4, float, inv_scale);
  FIELD(8, double, max_norm);
  FIELD(16, double, lr);
  FIELD(24, double, beta1);
  FIELD(32, double, beta2);
  FIELD(40, double, eps);
  FIELD(48, double, weight_decay);
  FIELD(56, int64_t, step);
  FIELD(64, int32_t, decoupled);
  FIELD(68, float, clip_coefficient);
  FIELD(72, int32_t, optimizer);
  FIELD(76, int32_t, nesterov);
  FIELD(80, double, momentum);
  FIELD(88, double, dampening);
  FIELD(96, int32_t, amsgrad);
  FIELD(100, int32_t, maximize);
  FIELD(104, const swamp_tensor*, max_exp_avg_sqs);
  FIELD(112, const swamp_block_moments*, block_moments);
  FIELD(120, int32_t, float8_moments);
  FIELD(124, int32_t, reserved);
}

static inline void released_matrix(swamp_matrix* s) {
  SIZE(32);
  FIELD(0, void*, data);
  FIELD(8, size_t, rows);
  FIELD(16, size_t, columns);
  FIELD(24, swamp_dtype, dtype);
}

static inline void released_row_vector(swamp_row_vector* s) {
  SIZE(16);
  FIELD(0, const void*, data);
  FIELD(8, swamp_dtype, dtype);
}

static inline void released_softmax_options(swamp_softmax_options* s) {
  SIZE_AT_LEAST(56);
  FIELD(0, uint32_t, struct_size);
  FIELD(4, float, scale);
  FIELD(8, int32_t, round_scale);
  FIELD(12, int32_t, uniform_if_masked);
  FIELD(16, size_t, causal_rows);
  FIELD(24, const uint8_t*, mask);
  FIELD(32, size_t, mask_batches);
  FIELD(40, size_t, mask_heads);
  FIELD(48, size_t, mask_query_rows);
}

static inline void released_cross_entropy_options(
    swamp_cross_entropy_options* s) {
  SIZE_AT_LEAST(48);
  FIELD(0, uint32_t, struct_size);
  FIELD(8, int64_t, ignore_index);
  FIELD(16, double, label_smoothing);
  FIELD(24, double, z_loss);
  FIELD(32, const float*, class_weights);
  FIELD(40, float*, lse_low);
}

static inline void released_norm_options(swamp_norm_options* s) {
  SIZE_AT_LEAST(16);
  FIELD(0, uint32_t, struct_size);
  FIELD(4, int32_t, zero_centered_weight);
  FIELD(8, double, eps);
}

static inline void released_matrices(swamp_matrices* s) {
  SIZE(64);
  FIELD(0, void*, data);
  FIELD(8, size_t, batch);
  FIELD(16, size_t, rows);
  FIELD(24, size_t, columns);
  FIELD(32, size_t, batch_step);
  FIELD(40, size_t, row_step);
  FIELD(48, size_t, column_step);
  FIELD(56, swamp_dtype, dtype);
}

static inline void released_runs(swamp_runs* s) {
  SIZE(16);
  FIELD(0, const size_t*, begins);
  FIELD(8, size_t, length);
}

static inline void released_gather(swamp_gather* s) {
  SIZE(32);
  FIELD(0, swamp_runs, rows);
  FIELD(16, swamp_runs, columns);
}

static inline void released_product_scales(swamp_product_scales* s) {
  SIZE(24);
  FIELD(0, const float*, a);
  FIELD(8, const float*, b);
  FIELD(16, size_t, terms);
}

static inline void released_product_options(swamp_product_options* s) {
  SIZE_AT_LEAST(40);
  FIELD(0, uint32_t, struct_size);
  FIELD(4, float, alpha);
  FIELD(8, float, beta);
  FIELD(16, const swamp_matrices*, self);
  FIELD(24, const swamp_gather*, gather);
  FIELD(32, const swamp_product_scales*, scales);
}

static inline void released_quantize_options(swamp_quantize_options* s) {
  SIZE_AT_LEAST(32);
  FIELD(0, uint32_t, struct_size);
  FIELD(4, float, scale);
  FIELD(8, swamp_rounding, rounding);
  FIELD(12, swamp_cast_policy, policy);
  FIELD(16, uint64_t, seed);
  FIELD(24, const uint8_t*, random);
}

static inline void released_quantize_report(swamp_quantize_report* s) {
  SIZE_AT_LEAST(32);
  FIELD(0, uint32_t, struct_size);
  FIELD(4, float, amax);
  FIELD(8, uint64_t, saturated);
  FIELD(16, uint64_t, flushed);
  FIELD(24, uint64_t, nan_count);
}

static inline void released_block_options(swamp_block_options* s) {
  SIZE_AT_LEAST(56);
  FIELD(0, uint32_t, struct_size);
  FIELD(4, swamp_block_scaling, scaling);
  FIELD(8, size_t, block);
  FIELD(16, int32_t, square);
  FIELD(20, float, tensor_amax);
  FIELD(24, swamp_rounding, rounding);
  FIELD(28, swamp_cast_policy, policy);
  FIELD(32, int32_t, hadamard);
  FIELD(40, uint64_t, seed);
  FIELD(48, const uint8_t*, random);
}

static inline void released_block_codes(swamp_block_codes* s) {
  SIZE(48);
  FIELD(0, swamp_tensor, codes);
  FIELD(24, swamp_tensor, scales);
}

static inline void released_scaled_matrix(swamp_scaled_matrix* s) {
  SIZE_AT_LEAST(88);
  FIELD(0, uint32_t, struct_size);
  FIELD(8, swamp_tensor, codes);
  FIELD(32, swamp_tensor, scales);
  FIELD(56, size_t, rows);
  FIELD(64, size_t, columns);
  FIELD(72, size_t, block);
  FIELD(80, int32_t, square);
  FIELD(84, float, tensor_amax);
}

static inline void released_scaler_step(swamp_scaler_step* s) {
  SIZE_AT_LEAST(24);
  FIELD(0, uint32_t, struct_size);
  FIELD(4, uint8_t, found_inf);
  FIELD(5, uint8_t, skipped);
  FIELD(6, uint8_t, warned);
  FIELD(8, double, old_scale);
  FIELD(16, double, new_scale);
}

static inline void released_block_scale(swamp_block_scale* s) {
  SIZE_AT_LEAST(16);
  FIELD(0, uint32_t, struct_size);
  FIELD(4, uint8_t, code);
  FIELD(8, float, scale);
  FIELD(12, float, scale_inv);
}

static inline void released_callback(void* user, const char* text) {
  (void)user;
  (void)text;
}

/* Called, so that the library must have the functions, too. */
static inline void released_functions(void) {
  swamp_check_callback callback = released_callback;
  (void)callback;
  FUNCTION(swamp_status, swamp_machine_create,
           (const swamp_config*, swamp_machine**));
  FUNCTION(void, swamp_machine_destroy, (swamp_machine*));
  FUNCTION(swamp_status, swamp_amp_foreach_non_finite_check_and_unscale,
           (swamp_machine*, const swamp_tensor*, size_t, float*, const float*));
  FUNCTION(swamp_status, swamp_amp_foreach_non_finite_check_and_unscale_report,
           (swamp_machine*, const swamp_tensor*, size_t, float*, const float*,
            swamp_unscale_report*));
  FUNCTION(swamp_status, swamp_amp_update_scale,
           (float*, int32_t*, const float*, double, double, int64_t));
  FUNCTION(swamp_status, swamp_foreach_norm,
           (swamp_machine*, const swamp_tensor*, size_t, const float*, float*,
            double*));
  FUNCTION(swamp_status, swamp_foreach_cast,
           (swamp_machine*, size_t, const swamp_tensor*, const swamp_tensor*,
            float));
  FUNCTION(swamp_status, swamp_mixed_precision_step,
           (swamp_machine*, const swamp_mixed_precision_step_options*, size_t,
            const swamp_tensor*, const swamp_tensor*, const swamp_tensor*,
            const swamp_tensor*, const swamp_tensor*, float*, double*));
  FUNCTION(swamp_status, swamp_scaled_softmax,
           (swamp_machine*, const swamp_matrix*, const swamp_matrix*,
            const swamp_softmax_options*));
  FUNCTION(swamp_status, swamp_scaled_softmax_backward,
           (swamp_machine*, const swamp_matrix*, const swamp_matrix*,
            const swamp_matrix*, const swamp_softmax_options*));
  FUNCTION(swamp_status, swamp_cross_entropy,
           (swamp_machine*, const swamp_matrix*, const int64_t*, float*, float*,
            const swamp_cross_entropy_options*, double*));
  FUNCTION(
      swamp_status, swamp_cross_entropy_backward,
      (swamp_machine*, const swamp_matrix*, const int64_t*, const float*,
       const float*, const swamp_matrix*, const swamp_cross_entropy_options*));
  FUNCTION(swamp_status, swamp_log_softmax,
           (swamp_machine*, const swamp_matrix*, const swamp_matrix*));
  FUNCTION(swamp_status, swamp_layer_norm,
           (swamp_machine*, const swamp_matrix*, const swamp_row_vector*,
            const swamp_row_vector*, const swamp_matrix*, float*, float*,
            const swamp_norm_options*));
  FUNCTION(swamp_status, swamp_layer_norm_backward,
           (swamp_machine*, const swamp_matrix*, const swamp_matrix*,
            const float*, const float*, const swamp_row_vector*,
            const swamp_matrix*, float*, float*, const swamp_norm_options*));
  FUNCTION(swamp_status, swamp_rms_norm,
           (swamp_machine*, const swamp_matrix*, const swamp_row_vector*,
            const swamp_matrix*, float*, const swamp_norm_options*));
  FUNCTION(swamp_status, swamp_rms_norm_backward,
           (swamp_machine*, const swamp_matrix*, const swamp_matrix*,
            const float*, const swamp_row_vector*, const swamp_matrix*, float*,
            const swamp_norm_options*));
  FUNCTION(swamp_status, swamp_residual_add,
           (swamp_machine*, const swamp_matrix*, const swamp_matrix*,
            const swamp_row_vector*));
  FUNCTION(swamp_status, swamp_product,
           (swamp_machine*, const swamp_matrices*, const swamp_matrices*,
            const swamp_matrices*, const swamp_product_options*));
  FUNCTION(swamp_status, swamp_quantize,
           (swamp_machine*, const swamp_tensor*, const swamp_tensor*,
            const swamp_quantize_options*, swamp_quantize_report*));
  FUNCTION(swamp_status, swamp_dequantize,
           (swamp_machine*, const swamp_tensor*, const swamp_tensor*, float));
  FUNCTION(swamp_status, swamp_quantize_blocks,
           (swamp_machine*, const swamp_matrix*, const swamp_block_codes*,
            const swamp_block_codes*, const swamp_block_options*));
  FUNCTION(swamp_status, swamp_dequantize_blocks,
           (swamp_machine*, const swamp_block_codes*, const swamp_matrix*,
            const swamp_block_options*));
  FUNCTION(swamp_status, swamp_amax,
           (swamp_machine*, const swamp_tensor*, int32_t, float*));
  FUNCTION(swamp_status, swamp_hadamard_transform,
           (swamp_machine*, const swamp_matrix*, const swamp_matrix*));
  FUNCTION(swamp_status, swamp_scaled_product,
           (swamp_machine*, const swamp_matrix*, const swamp_scaled_matrix*,
            const swamp_scaled_matrix*));
  FUNCTION(swamp_status, swamp_scaler_create,
           (const char*, const char*, swamp_scaler**));
  FUNCTION(void, swamp_scaler_destroy, (swamp_scaler*));
  FUNCTION(swamp_status, swamp_scaler_scale, (const swamp_scaler*, double*));
  FUNCTION(swamp_status, swamp_scaler_inv_scale, (const swamp_scaler*, float*));
  FUNCTION(swamp_status, swamp_scaler_update,
           (swamp_scaler*, float, swamp_scaler_step*));
  FUNCTION(swamp_status, swamp_scaler_state_dict,
           (swamp_scaler*, const char**));
  FUNCTION(swamp_status, swamp_scaler_load_state_dict,
           (swamp_scaler*, const char*));
  FUNCTION(swamp_status, swamp_scale_manager_create,
           (const char*, size_t, size_t, const char*, swamp_scale_manager**));
  FUNCTION(void, swamp_scale_manager_destroy, (swamp_scale_manager*));
  FUNCTION(swamp_status, swamp_scale_manager_observe_all,
           (swamp_scale_manager*, const float*, size_t));
  FUNCTION(swamp_status, swamp_scale_manager_observe,
           (swamp_scale_manager*, size_t, float));
  FUNCTION(swamp_status, swamp_scale_manager_amax,
           (const swamp_scale_manager*, float*, size_t));
  FUNCTION(swamp_status, swamp_scale_manager_update, (swamp_scale_manager*));
  FUNCTION(swamp_status, swamp_scale_manager_scale,
           (const swamp_scale_manager*, size_t, float*, float*));
  FUNCTION(swamp_status, swamp_scale_manager_block_scale,
           (const swamp_scale_manager*, size_t, float, swamp_block_scale*));
  FUNCTION(swamp_status, swamp_scale_manager_state_dict,
           (swamp_scale_manager*, const char**));
  FUNCTION(swamp_status, swamp_scale_manager_load_state_dict,
           (swamp_scale_manager*, const char*));
  FUNCTION(size_t, swamp_check_report_count, (void));
  FUNCTION(void, swamp_check_set_callback, (swamp_check_callback, void*));
  FUNCTION(const char*, swamp_last_error, (void));
  FUNCTION(const char*, swamp_version, (void));
}

#undef ASSERT
#undef VALUE
#undef SIZE
#undef SIZE_AT_LEAST
#undef FIELD
#undef FUNCTION

#endif /* SWAMP_TESTS_API_C_ABI_RELEASED_H_ */
