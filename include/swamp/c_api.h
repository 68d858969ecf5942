/**
 * @file
 * The C ABI of swamp: stable, C99, no exception passes through it.
 *
 * Any thread may call every function, also several at once on one machine. The
 * library never aborts, prints or exits (libgomp does, if the system refuses it
 * threads; the backends serial and threads do not use libgomp). A call that
 * fails has written nothing, and swamp_last_error() returns its text. The
 * caller owns the memory that it passes in; the library keeps no pointer to it
 * after the call. */
#ifndef SWAMP_C_API_H_
#define SWAMP_C_API_H_

#include <stddef.h>
#include <stdint.h>

#include "swamp/export.h"

/** The version of these headers; swamp_version() has the library's. */
#define SWAMP_VERSION_MAJOR 0
#define SWAMP_VERSION_MINOR 2 /**< see SWAMP_VERSION_MAJOR */
#define SWAMP_VERSION_PATCH 0 /**< see SWAMP_VERSION_MAJOR */
/** A version as a number, for `#if SWAMP_VERSION >= SWAMP_MAKE_VERSION(0, 3,
 * 0)`. */
#define SWAMP_MAKE_VERSION(major, minor, patch) \
  ((major)*1000000 + (minor)*1000 + (patch))
/** The version of these headers, as SWAMP_MAKE_VERSION has it. */
#define SWAMP_VERSION                                          \
  SWAMP_MAKE_VERSION(SWAMP_VERSION_MAJOR, SWAMP_VERSION_MINOR, \
                     SWAMP_VERSION_PATCH)

#ifdef __cplusplus
extern "C" {
#endif

/**
 * @defgroup c_basics C: results, dtypes, tensors
 * The same in C++: tensor.h, error.h.
 * @{ */

/** The result of a call. */
typedef enum {
  SWAMP_OK = 0,
  SWAMP_INVALID_ARGUMENT = 1, /**< a wrong argument, named in the text */
  SWAMP_UNSUPPORTED = 2,      /**< this build, CPU or LDM is not enough */
  SWAMP_OUT_OF_MEMORY = 3,    /**< nothing was written */
  SWAMP_INTERNAL = 4          /**< a bug of swamp: please report it */
} swamp_status;

/** The element types of a tensor: ATen's Half, BFloat16, Float, Double,
 * Float8_e4m3fn, Float8_e5m2; only conversions and products of codes take the
 * others. Later versions may add types. An operator that does not accept
 * one of them returns SWAMP_UNSUPPORTED. */
typedef enum {
  SWAMP_FLOAT16 = 0,         /**< IEEE binary16, 2 bytes */
  SWAMP_BFLOAT16 = 1,        /**< upper half of a binary32, 2 bytes */
  SWAMP_FLOAT32 = 2,         /**< IEEE binary32, 4 bytes */
  SWAMP_FLOAT64 = 3,         /**< IEEE binary64, 8 bytes */
  SWAMP_FLOAT8_E4M3FN = 4,   /**< 1 byte; no inf, nan is 0x7f and 0xff */
  SWAMP_FLOAT8_E5M2 = 5,     /**< upper half of a binary16, 1 byte */
  SWAMP_FLOAT8_E4M3FNUZ = 6, /**< 1 byte; no inf and no -0, nan is 0x80 */
  SWAMP_FLOAT8_E5M2FNUZ = 7, /**< 1 byte; no inf and no -0, nan is 0x80 */
  SWAMP_FLOAT6_E3M2FN = 8,   /**< OCP FP6 E3M2 in the low bits of a byte */
  SWAMP_FLOAT6_E2M3FN = 9,   /**< OCP FP6 E2M3 in the low bits of a byte */
  /** OCP FP4 E2M1: an element of the array is a byte with two of them, the
   * first in the low half, as in ATen's Float4_e2m1fn_x2. */
  SWAMP_FLOAT4_E2M1FN_X2 = 10,
  SWAMP_HIFLOAT8 = 11, /**< Huawei's HiFloat8, 1 byte */
  /** A power of two, 1 byte: the biased exponent of a binary32; 0xff is nan.
   * Not for elements of blocks, but for their scales. */
  SWAMP_FLOAT8_E8M0FNU = 12,
  SWAMP_MXINT8 = 13 /**< OCP MXINT8: two's complement, in 1/64, 1 byte */
} swamp_dtype;

/** swamp_tensor describes one contiguous array, whatever its shape. The caller
 * owns the memory. */
typedef struct {
  /** Aligned to the element (1, 2, 4 or 8 bytes); NULL only if count is 0. */
  void* data;
  size_t count;      /**< elements, not bytes */
  swamp_dtype dtype; /**< of every element */
} swamp_tensor;

/** swamp_config selects the machine that swamp_machine_create() makes. A field
 * that is 0 or NULL takes the value of its environment variable (SWAMP_MACHINE,
 * SWAMP_BACKEND, SWAMP_TRANSFER, SWAMP_CORE_GROUPS, SWAMP_SLAVES_PER_GROUP,
 * SWAMP_LDM_BYTES, SWAMP_ISA, SWAMP_BIND), or the default if that is unset or
 * empty. The strings are copied. */
typedef struct {
  uint32_t struct_size;      /**< sizeof(swamp_config) */
  const char* machine;       /**< "host", "sw26010", "sw26010pro" */
  const char* backend;       /**< "openmp", "serial", "threads", "athread" */
  const char* transfer;      /**< "view", "copy", "check" */
  uint32_t core_groups;      /**< 1..4096 */
  uint32_t slaves_per_group; /**< 1..4096 */
  size_t ldm_bytes;          /**< scratchpad of one slave, 1 KiB..1 GiB */
  const char* isa;           /**< "scalar", "sse4", "avx2", "avx512", "neon" */
  const char* bind;          /**< "none", "core" */
} swamp_config;

/** @} */

/**
 * @defgroup c_machine C: machines
 * The same in C++: machine.h.
 * @{ */

/** swamp_machine is a set of core groups of slaves. NULL means the process's
 * default machine, which is made from the environment at its first use. */
typedef struct swamp_machine swamp_machine;

/** swamp_unscale_report is the position of an overflow. Indices are 0-based. If
 * element_count is 0, the other fields are 0. */
typedef struct {
  uint32_t struct_size;   /**< in: sizeof(swamp_unscale_report) */
  uint64_t tensor;        /**< first tensor of the list with inf/nan */
  uint64_t index;         /**< flat index of its first inf/nan */
  uint64_t tensor_count;  /**< tensors with at least one inf/nan */
  uint64_t element_count; /**< inf/nan elements in the whole list */
} swamp_unscale_report;

/** swamp_machine_create makes a machine.
 *
 * @param config NULL: all from the environment and the defaults
 * @param[out] out the machine; the caller owns it (swamp_machine_destroy())
 * @return SWAMP_INVALID_ARGUMENT (unknown value, size out of range, wrong
 *   struct_size, NULL out; the text lists the valid values), SWAMP_UNSUPPORTED
 *   (this build or CPU does not have it; the text lists what it has) or
 *   SWAMP_OUT_OF_MEMORY */
SWAMP_API swamp_status swamp_machine_create(const swamp_config* config,
                                            swamp_machine** out);

/** swamp_machine_destroy frees a machine. No call may be running on it.
 *
 * @param machine from swamp_machine_create(); NULL does nothing */
SWAMP_API void swamp_machine_destroy(swamp_machine* machine);

/** @} */

/**
 * @defgroup c_amp C: operators of GradScaler and passes over lists
 * The same in C++: amp.h, foreach.h.
 * @{ */

/** swamp_amp_foreach_non_finite_check_and_unscale multiplies every element of
 * every tensor by *inv_scale, in place, and sets *found_inf to 1.0f if any
 * incoming element is inf or nan. Equivalent, bit for bit (except the payload
 * of a 16-bit nan), to PyTorch's CPU operator
 * _amp_foreach_non_finite_check_and_unscale_ (AmpGradScalerKernels.cpp):
 *
 *     for each tensor t, for each element x of t:
 *       if (!isfinite(x)) *found_inf = 1.0f;   // before the multiply
 *       if (*inv_scale != 1.0f)
 *         x = round_to_dtype(opmath(x) * *inv_scale);
 *
 * opmath is float for float16, bfloat16 and float32, double for float64.
 * If *inv_scale == 1.0f, the tensors are only read. Unlike in PyTorch, all
 * arguments are validated before the first write: a call that fails changes
 * nothing.
 *
 * @param machine where to run; NULL: the default machine
 * @param[in,out] tensors the list; dtypes may be mixed, the arrays must not
 *   overlap each other (an error in transfer mode check); may be NULL if
 *   tensor_count is 0
 * @param tensor_count tensors in the list; may be 0
 * @param[in,out] found_inf one float, set to 1.0f or left unchanged; the caller
 *   clears it
 * @param inv_scale one float, usually 1 / loss scale; its value is not checked
 * @return SWAMP_INVALID_ARGUMENT for a NULL found_inf or inv_scale, a NULL list
 *   with tensor_count > 0, and, naming the tensor's index, for an unknown
 *   dtype, NULL data with count > 0, a count whose bytes overflow, misaligned
 *   data; SWAMP_UNSUPPORTED for an 8-bit dtype but float8_e4m3fn and
 *   float8_e5m2; if the default machine cannot be made, as
 *   swamp_machine_create() */
SWAMP_API swamp_status swamp_amp_foreach_non_finite_check_and_unscale(
    swamp_machine* machine, const swamp_tensor* tensors, size_t tensor_count,
    float* found_inf, const float* inv_scale);

/** The same, and reports where the overflow was. Without an overflow the report
 * costs nothing.
 *
 * @param machine where to run; NULL: the default machine
 * @param[in,out] tensors the list
 * @param tensor_count tensors in the list
 * @param[in,out] found_inf one float, set to 1.0f or left unchanged
 * @param inv_scale one float
 * @param[in,out] report filled, if not NULL; its struct_size must be set
 * @return as without a report; also SWAMP_INVALID_ARGUMENT for a wrong
 *   report->struct_size */
SWAMP_API swamp_status swamp_amp_foreach_non_finite_check_and_unscale_report(
    swamp_machine* machine, const swamp_tensor* tensors, size_t tensor_count,
    float* found_inf, const float* inv_scale, swamp_unscale_report* report);

/** swamp_amp_update_scale updates the loss scale as PyTorch's CPU operator
 * _amp_update_scale_:
 *
 *     if (*found_inf != 0) {                       // nan counts as found
 *       *scale = (float)(*scale * backoff_factor); // product in double
 *       *growth_tracker = 0;
 *     } else if (++*growth_tracker == growth_interval) {
 *       new = (float)(*scale * growth_factor);
 *       if (isfinite(new)) *scale = new;
 *       *growth_tracker = 0;
 *     }
 *
 * Like PyTorch's operator, it does not validate the factors.
 *
 * @param[in,out] scale the loss scale, one float
 * @param[in,out] growth_tracker clean calls in a row, one int32
 * @param found_inf one float, as set by the unscale
 * @param growth_factor usually above 1
 * @param backoff_factor usually between 0 and 1
 * @param growth_interval in calls; 0 or less: it never grows
 * @return SWAMP_INVALID_ARGUMENT if a pointer is NULL */
SWAMP_API swamp_status swamp_amp_update_scale(
    float* scale, int32_t* growth_tracker, const float* found_inf,
    double growth_factor, double backoff_factor, int64_t growth_interval);

/** swamp_foreach_norm computes the 2-norm of the unscaled gradients and finds
 * inf and nan in the same pass, which only reads. The result has the same bits
 * on every machine; see foreach_norm() in foreach.h.
 *
 * @param machine where to run; NULL: the default machine
 * @param tensors float16, bfloat16, float32, float64, float8_e4m3fn or
 *   float8_e5m2; may be NULL if tensor_count is 0
 * @param tensor_count tensors in the list
 * @param inv_scale one float, usually 1 / loss scale
 * @param[in,out] found_inf one float, set to 1.0f if an incoming element is inf
 *   or nan, else left unchanged; may be NULL
 * @param[out] norm one double; not finite if an unscaled element is not
 * @return as swamp_amp_foreach_non_finite_check_and_unscale(); also
 *   SWAMP_INVALID_ARGUMENT for a NULL norm */
SWAMP_API swamp_status swamp_foreach_norm(swamp_machine* machine,
                                          const swamp_tensor* tensors,
                                          size_t tensor_count,
                                          const float* inv_scale,
                                          float* found_inf, double* norm);

/** swamp_foreach_cast sets out = cast(in / divisor); see foreach_cast_() in
 * foreach.h.
 *
 * @param machine where to run; NULL: the default machine
 * @param tensor_count tensors in each list; tensors i of both lists have the
 *   same number of elements; the arrays must not overlap
 * @param[out] out float32 for 16-bit tensors of in; float16, bfloat16 or
 *   float32 for float32 ones; may be NULL if tensor_count is 0
 * @param in float16, bfloat16 or float32; only read
 * @param divisor 1: no division
 * @return as swamp_amp_foreach_non_finite_check_and_unscale(); also
 *   SWAMP_INVALID_ARGUMENT for lists that do not agree */
SWAMP_API swamp_status swamp_foreach_cast(swamp_machine* machine,
                                          size_t tensor_count,
                                          const swamp_tensor* out,
                                          const swamp_tensor* in,
                                          float divisor);

/** @} */

/**
 * @defgroup c_optimizer C: the mixed-precision step
 * The same in C++: mixed_precision.h.
 * @{ */

/** swamp_optimizer names the rule of a step. */
typedef enum {
  SWAMP_ADAM = 0, /**< Adam, or AdamW if `decoupled` is 1 */
  SWAMP_SGD = 1   /**< torch.optim.SGD */
} swamp_optimizer;

/** swamp_block_moments are the moments of one parameter in 8 bits: a code for
 * each element, and two floats for each block of 256 elements; the last block
 * may be shorter. Codes of the dynamic map are bitsandbytes', signed and
 * unsigned (functional.create_dynamic_map): a moment is the code's value times
 * absmax. Codes of float8_e4m3fn are those of torchao.optim.AdamWFp8: a moment
 * is the code's value times max(absmax, 1e-12) / 448. */
typedef struct {
  uint8_t* exp_avg;    /**< first moments; 0 is 127, of float8 0 */
  uint8_t* exp_avg_sq; /**< second moments; 0 is 0 */
  /** Of each block, the largest absolute value of the first moments and that of
   * the second; 0 before the first step. */
  float* absmax;
} swamp_block_moments;

/** swamp_mixed_precision_step_options are the numbers of one step. Those of the
 * other optimizer are ignored. */
typedef struct {
  /** sizeof(swamp_mixed_precision_step_options), or the size of an older
   * version: the first ended before `optimizer`, the second before `amsgrad`,
   * the third before `block_moments` */
  uint32_t struct_size;
  float inv_scale;     /**< of the gradients, usually 1 / loss scale */
  double max_norm;     /**< of all gradients together; 0: no clipping */
  double lr;           /**< at least 0 */
  double beta1;        /**< Adam, in [0, 1) */
  double beta2;        /**< Adam, in [0, 1) */
  double eps;          /**< Adam, at least 0 */
  double weight_decay; /**< at least 0 */
  int64_t step;        /**< of this step: 1 for the first, below 2^53 */
  int32_t decoupled;   /**< Adam, 1: AdamW's weight decay; 0: Adam's */
  /** 0: the call makes both passes. Above 0: the caller already made the first
   * one with swamp_foreach_norm(), for example because ranks had to agree, and
   * this is the factor of the unscaled gradients:
   * (float)(max_norm / (norm + 1e-6)) if that is below 1, else 1. found_inf,
   * grad_norm and max_norm are then not used. */
  float clip_coefficient;
  int32_t optimizer; /**< a swamp_optimizer; 0: Adam, AdamW */
  int32_t nesterov;  /**< SGD, 0 or 1; 1 needs momentum and no dampening */
  double momentum;   /**< SGD, at least 0 */
  double dampening;  /**< SGD, of the momentum */
  int32_t amsgrad;   /**< Adam, 0 or 1; 1 needs max_exp_avg_sqs */
  int32_t maximize;  /**< 0 or 1; 1: as with the negative of the gradients */
  /** Adam with amsgrad: float32, written, as many tensors as the other lists,
   * with as many elements: the largest second moments, 0 before the first step;
   * without amsgrad NULL */
  const swamp_tensor* max_exp_avg_sqs;
  /** Adam without amsgrad: one for each tensor, written; exp_avgs and
   * exp_avg_sqs are NULL then; NULL: the moments are float32 */
  const swamp_block_moments* block_moments;
  /** 0: the codes of block_moments are those of the dynamic map; 1:
   * float8_e4m3fn */
  int32_t float8_moments;
  int32_t reserved; /**< 0 */
} swamp_mixed_precision_step_options;

/** swamp_mixed_precision_step does everything between backward and the next
 * forward, in two passes. The first only reads the gradients: it finds inf and
 * nan and, if needed, computes the norm. If it finds any, *found_inf is set,
 * and nothing else happens. Otherwise the second unscales and clips each
 * gradient, updates the moments and the float32 weight, and rounds it to the
 * model's, all in registers. The bits are those of torch's fused CPU Adam and
 * AdamW and of its SGD (see foreach_adam_() and foreach_sgd_() in foreach.h),
 * the same on every machine. The caller owns the state and advances step and
 * scale.
 *
 * @param machine where to run; NULL: the default machine
 * @param options the numbers
 * @param tensor_count tensors in each list; tensors i of all lists have the
 *   same number of elements; no two arrays may overlap
 * @param[in,out] masters float32 weights
 * @param gradients float16, bfloat16 or float32; only read
 * @param[in,out] exp_avgs float32: first moments, 0 before the first step; for
 *   SGD the momentum buffers, which the first step sets, or NULL if momentum is
 *   0
 * @param[in,out] exp_avg_sqs float32: second moments; NULL for SGD
 * @param[out] model_params float16 or bfloat16: set to the new weights; NULL
 *   if the masters are the model's weights
 * @param[in,out] found_inf one float, set to 1.0f if the step was not taken,
 *   else left unchanged
 * @param[out] grad_norm one double, the norm of the unscaled gradients before
 *   clipping, also if the step was not taken; may be NULL
 * @return SWAMP_INVALID_ARGUMENT for a NULL options or found_inf, a wrong
 *   struct_size, a number out of its range, lists that do not agree, and bad
 *   tensors as swamp_amp_foreach_non_finite_check_and_unscale();
 *   SWAMP_UNSUPPORTED for a dtype that is not accepted. Nothing is written then
 */
SWAMP_API swamp_status swamp_mixed_precision_step(
    swamp_machine* machine, const swamp_mixed_precision_step_options* options,
    size_t tensor_count, const swamp_tensor* masters,
    const swamp_tensor* gradients, const swamp_tensor* exp_avgs,
    const swamp_tensor* exp_avg_sqs, const swamp_tensor* model_params,
    float* found_inf, double* grad_norm);

/** @} */

/**
 * @defgroup c_rows C: operators of rows
 * The same in C++: rows.h.
 * @{ */

/** swamp_matrix is rows of elements, one row after another. The caller owns the
 * memory. The row operators below take float16, bfloat16 and float32; see
 * rows.h, which states for each what may be in place, and slave/row_args.h for
 * the formulas. They return SWAMP_INVALID_ARGUMENT, naming the argument, for a
 * NULL pointer, a shape or dtype that does not agree, misaligned data or a
 * wrong struct_size; SWAMP_UNSUPPORTED for float64 and float8, and if rows do
 * not fit into the machine's LDM. Nothing has been written then. Options of
 * NULL are the defaults. */
typedef struct {
  void* data;        /**< aligned to its element; NULL only without elements */
  size_t rows;       /**< all dimensions but the last */
  size_t columns;    /**< the last dimension */
  swamp_dtype dtype; /**< of every element */
} swamp_matrix;

/** swamp_row_vector is one value for each column. */
typedef struct {
  const void* data;  /**< NULL: absent */
  swamp_dtype dtype; /**< float32, or that of the matrix */
} swamp_row_vector;

/** swamp_softmax_options: see SoftmaxOptions and SoftmaxMask in rows.h. */
typedef struct {
  uint32_t struct_size;      /**< sizeof(swamp_softmax_options) */
  float scale;               /**< of the scores; the default is 1 */
  int32_t round_scale;       /**< 1: scale is first rounded to dtype */
  int32_t uniform_if_masked; /**< 1: a row of which all is masked is uniform,
                                  0: it is 0 */
  size_t causal_rows;        /**< 0: all columns */
  const uint8_t* mask;       /**< [batches, query_rows, columns]; NULL: none */
  size_t mask_batches;       /**< 1, or those of the matrix */
  size_t mask_heads;         /**< that share the mask of a batch */
  size_t mask_query_rows;    /**< rows of a head */
} swamp_softmax_options;

/** swamp_scaled_softmax sets each row of y to softmax(scale * x); y may be x.
 */
SWAMP_API swamp_status swamp_scaled_softmax(
    swamp_machine* machine, const swamp_matrix* x, const swamp_matrix* y,
    const swamp_softmax_options* options);

/** swamp_scaled_softmax_backward sets each row of dx to
 * scale * (gradient * y - y * sum(gradient * y)); dx may be gradient or y. */
SWAMP_API swamp_status swamp_scaled_softmax_backward(
    swamp_machine* machine, const swamp_matrix* gradient, const swamp_matrix* y,
    const swamp_matrix* dx, const swamp_softmax_options* options);

/** swamp_cross_entropy_options: see CrossEntropyOptions in rows.h. */
typedef struct {
  uint32_t struct_size;       /**< sizeof(swamp_cross_entropy_options) */
  int64_t ignore_index;       /**< the default is -100 */
  double label_smoothing;     /**< in [0, 1] */
  double z_loss;              /**< adds z_loss * lse^2 to each loss */
  const float* class_weights; /**< one per column; NULL: all 1 */
  /** float32, one per row, or NULL (also if struct_size is that of version
   * 0.2, up to here): what the rounding of lse to float32 lost.
   * swamp_cross_entropy writes it, swamp_cross_entropy_backward reads it; with
   * NULL the latter's probabilities have a relative error of 2^-24 * |lse|. */
  float* lse_low;
} swamp_cross_entropy_options;

/** swamp_cross_entropy computes the loss of each row.
 *
 * @param machine where to run; NULL: the default machine
 * @param logits a row for each target, a column for each class
 * @param targets a class or ignore_index for each row
 * @param[out] losses float32, one per row
 * @param[out] lse float32, one per row: log(sum of exp(logits)), for backward
 *   together with options->lse_low
 * @param options NULL: the defaults
 * @param[out] total the sums of the losses and of the weights of the rows that
 *   count, two doubles; may be NULL
 * @return see swamp_matrix */
SWAMP_API swamp_status swamp_cross_entropy(
    swamp_machine* machine, const swamp_matrix* logits, const int64_t* targets,
    float* losses, float* lse, const swamp_cross_entropy_options* options,
    double total[2]);

/** swamp_cross_entropy_backward computes the gradient of the logits from those
 * of the losses, one per row; dx may be logits. */
SWAMP_API swamp_status swamp_cross_entropy_backward(
    swamp_machine* machine, const swamp_matrix* logits, const int64_t* targets,
    const float* lse, const float* gradients, const swamp_matrix* dx,
    const swamp_cross_entropy_options* options);

/** swamp_log_softmax sets each row of y to x - log(sum of exp(x)); y may be
 * x. */
SWAMP_API swamp_status swamp_log_softmax(swamp_machine* machine,
                                         const swamp_matrix* x,
                                         const swamp_matrix* y);

/** swamp_log_softmax_backward sets each row of dx to
 * gradient - exp(y) * sum(gradient); dx may be gradient or y. */
SWAMP_API swamp_status swamp_log_softmax_backward(swamp_machine* machine,
                                                  const swamp_matrix* gradient,
                                                  const swamp_matrix* y,
                                                  const swamp_matrix* dx);

/** swamp_norm_options: see NormOptions in rows.h. */
typedef struct {
  uint32_t struct_size;         /**< sizeof(swamp_norm_options) */
  int32_t zero_centered_weight; /**< 1: 1 is added to the weight */
  double eps;                   /**< the default is 1e-5 */
} swamp_norm_options;

/** swamp_layer_norm sets each row of y to (x - mean) * rstd * weight + bias.
 * weight and bias may be NULL; mean and rstd are float32, one per row; y may be
 * x. */
SWAMP_API swamp_status swamp_layer_norm(swamp_machine* machine,
                                        const swamp_matrix* x,
                                        const swamp_row_vector* weight,
                                        const swamp_row_vector* bias,
                                        const swamp_matrix* y, float* mean,
                                        float* rstd,
                                        const swamp_norm_options* options);

/** swamp_layer_norm_backward computes the gradients of x, weight and bias. dx,
 * which may be gradient or x, dweight and dbias (float32, one per column) may
 * be NULL: not computed. */
SWAMP_API swamp_status swamp_layer_norm_backward(
    swamp_machine* machine, const swamp_matrix* gradient, const swamp_matrix* x,
    const float* mean, const float* rstd, const swamp_row_vector* weight,
    const swamp_matrix* dx, float* dweight, float* dbias,
    const swamp_norm_options* options);

/** swamp_rms_norm sets each row of y to x * rstd * weight. */
SWAMP_API swamp_status swamp_rms_norm(swamp_machine* machine,
                                      const swamp_matrix* x,
                                      const swamp_row_vector* weight,
                                      const swamp_matrix* y, float* rstd,
                                      const swamp_norm_options* options);

/** swamp_rms_norm_backward: as swamp_layer_norm_backward(). */
SWAMP_API swamp_status swamp_rms_norm_backward(
    swamp_machine* machine, const swamp_matrix* gradient, const swamp_matrix* x,
    const float* rstd, const swamp_row_vector* weight, const swamp_matrix* dx,
    float* dweight, const swamp_norm_options* options);

/** swamp_residual_add adds x + bias to a float32 residual; bias may be NULL. */
SWAMP_API swamp_status swamp_residual_add(swamp_machine* machine,
                                          const swamp_matrix* residual,
                                          const swamp_matrix* x,
                                          const swamp_row_vector* bias);

/** @} */

/**
 * @defgroup c_channels C: BatchNorm, GroupNorm, sums
 * The same in C++: channel_norm.h.
 * @{ */

/** swamp_sum adds up the middle dimension of an array [outer, terms, inner], or
 * of its product with another; see sum() in channel_norm.h. Errors are those of
 * the row operators.
 *
 * @param machine where to run; NULL: the default machine
 * @param x float16, bfloat16, float32 or float64
 * @param outer elements of the dimensions before
 * @param terms elements of each sum; of 0 the sum is 0
 * @param inner elements of the dimensions after
 * @param factor the data of an array like x, by whose elements the terms are
 *   multiplied, in double; needs an inner of 1; NULL: 1
 * @param[out] sums [outer, inner] */
SWAMP_API swamp_status swamp_sum(swamp_machine* machine, const swamp_tensor* x,
                                 size_t outer, size_t terms, size_t inner,
                                 const void* factor, double* sums);

/** swamp_channels divides the rows of a matrix, which are the positions of one
 * channel of one image: see ChannelShape in channel_norm.h. */
typedef struct {
  size_t channels; /**< a divisor of the rows */
  /** 0: BatchNorm, a mean for each of the channels; else GroupNorm, a mean for
   * each of the groups of each image, image by image; a divisor of channels */
  size_t groups;
} swamp_channels;

/** swamp_channel_statistics computes means and variances, one for each channel,
 * or group of an image, and rstd = 1 / sqrt(variance + eps). variance may be
 * NULL: not wanted. */
SWAMP_API swamp_status swamp_channel_statistics(swamp_machine* machine,
                                                const swamp_matrix* x,
                                                const swamp_channels* shape,
                                                double eps, float* mean,
                                                float* variance, float* rstd);

/** swamp_channel_norm sets y to (x - mean) * (rstd * weight) + bias. weight and
 * bias, one value for each channel, may be NULL; y may be x. */
SWAMP_API swamp_status swamp_channel_norm(
    swamp_machine* machine, const swamp_matrix* x, const swamp_channels* shape,
    const float* mean, const float* rstd, const float* weight,
    const float* bias, const swamp_matrix* y);

/** swamp_channel_norm_backward computes the gradients of x, weight and bias. If
 * is_fixed is 1, mean and rstd do not depend on x (running statistics). dx,
 * which may be gradient, dweight and dbias may be NULL: not computed. */
SWAMP_API swamp_status swamp_channel_norm_backward(
    swamp_machine* machine, const swamp_matrix* gradient, const swamp_matrix* x,
    const swamp_channels* shape, const float* mean, const float* rstd,
    const float* weight, int32_t is_fixed, const swamp_matrix* dx,
    float* dweight, float* dbias);

/** @} */

/**
 * @defgroup c_activation C: activations and gates
 * The same in C++: activation.h.
 * @{ */

/** The functions of swamp_activation: see Activation in activation.h. */
typedef enum {
  SWAMP_SILU = 0,
  SWAMP_GELU = 1,
  SWAMP_GELU_TANH = 2,
  SWAMP_TANH = 3,
  SWAMP_SIGMOID = 4,
  SWAMP_RELU = 5,
  SWAMP_RELU_SQUARED = 6,
  SWAMP_SOFTPLUS = 7,
  SWAMP_EXP = 8,
  SWAMP_LOG = 9,
  SWAMP_LOG1P = 10,
  SWAMP_EXPM1 = 11,
  SWAMP_RSQRT = 12,
  SWAMP_MISH = 13,
  SWAMP_ELU = 14,
  SWAMP_POW = 15,
  SWAMP_POW_BASE = 16
} swamp_activation_function;

/** swamp_activation_options: see ActivationOptions in activation.h. */
typedef struct {
  uint32_t struct_size;               /**< sizeof(swamp_activation_options) */
  swamp_activation_function function; /**< which */
  float beta;      /**< of softplus and elu: 1 in PyTorch; of pow: the exponent,
                        of pow_base: the base */
  float threshold; /**< of softplus; PyTorch's default is 20 */
  /** Elements from one row of x, up, dx and dup to the next; 0: as many as
   * columns. Only with up. */
  size_t row_step;
  float alpha; /**< of elu; PyTorch's default is 1 */
  float scale; /**< of elu; PyTorch's default is 1 */
} swamp_activation_options;

/** swamp_activation sets y = f(x), or, if up is not NULL, y = f(x) * up,
 * rounded once. y may be x or, with a row_step of 0, up. options must not be
 * NULL. */
SWAMP_API swamp_status swamp_activation(
    swamp_machine* machine, const swamp_matrix* x, const swamp_matrix* up,
    const swamp_matrix* y, const swamp_activation_options* options);

/** swamp_activation_backward computes the gradients of x and, if it is not
 * NULL, of up; up and dup are both NULL or both not. Without up, x is the
 * result y if f is tanh, sigmoid, exp, expm1 or rsqrt. dx may be x, dup may be
 * up, and with a row_step of 0 dx may be gradient. */
SWAMP_API swamp_status swamp_activation_backward(
    swamp_machine* machine, const swamp_matrix* gradient, const swamp_matrix* x,
    const swamp_matrix* up, const swamp_matrix* dx, const swamp_matrix* dup,
    const swamp_activation_options* options);

/** @} */

/**
 * @defgroup c_product C: matrix products
 * The same in C++: product.h.
 * @{ */

/** swamp_matrices is a batch of matrices of the same shape. Element (r, c) of
 * matrix i is data[i * batch_step + r * row_step + c * column_step]; steps are
 * in elements, those of rows and columns at most 2^29, and may be 0 unless the
 * matrices are written. The caller owns
 * the memory. */
typedef struct {
  void* data;         /**< aligned to its element; NULL only without elements */
  size_t batch;       /**< number of matrices */
  size_t rows;        /**< of each */
  size_t columns;     /**< of each */
  size_t batch_step;  /**< between matrices */
  size_t row_step;    /**< between the rows of a matrix */
  size_t column_step; /**< between its columns */
  swamp_dtype dtype;  /**< float16, bfloat16 or float32 */
} swamp_matrices;

/** swamp_runs: see Runs in product.h. */
typedef struct {
  const size_t* begins; /**< in elements; one for each run */
  size_t length;        /**< of a run; at least 1 */
} swamp_runs;

/** swamp_gather: see Gather in product.h. */
typedef struct {
  swamp_runs rows;    /**< places of the rows */
  swamp_runs columns; /**< places of the columns */
} swamp_gather;

/** swamp_product_options: see ProductOptions in product.h. */
typedef struct {
  uint32_t struct_size;       /**< sizeof(swamp_product_options) */
  float alpha;                /**< factor of a * b */
  float beta;                 /**< factor of self */
  const swamp_matrices* self; /**< NULL: nothing is added */
  const swamp_gather* gather; /**< of a; NULL: its elements are at steps */
} swamp_product_options;

/** swamp_product sets out to round(alpha * (a * b) + beta * self), with float32
 * sums and the same bits on every machine: see product.h. Errors are those of
 * the row operators. Without options alpha is 1 and nothing is added.
 *
 * @param machine where to run; NULL: the default machine
 * @param[out] out [rows of a, columns of b]; dtype that of a, or float32; it
 *   overlaps nothing, but self may be the same matrices
 * @param a the left factors
 * @param b the right factors, with as many rows as a has columns; dtype of a
 * @param options NULL: the defaults */
SWAMP_API swamp_status swamp_product(swamp_machine* machine,
                                     const swamp_matrices* out,
                                     const swamp_matrices* a,
                                     const swamp_matrices* b,
                                     const swamp_product_options* options);

/** @} */

/**
 * @defgroup c_float8 C: formats of at most 8 bits, and their products
 * The same in C++: float8.h.
 * @{ */

/** swamp_rounding: see Rounding in float8.h. */
typedef enum {
  SWAMP_NEAREST_EVEN = 0, /**< ties to even codes */
  SWAMP_NEAREST_AWAY = 1, /**< ties to the larger magnitude */
  SWAMP_STOCHASTIC = 2,   /**< up by chance, in steps of 1/256 */
  SWAMP_ROUND_UP = 3,     /**< the larger magnitude; float8_e8m0fnu only */
  SWAMP_ROUND_DOWN = 4    /**< the smaller magnitude; float8_e8m0fnu only */
} swamp_rounding;

/** swamp_cast_policy: see CastPolicy in float8.h. */
typedef enum {
  SWAMP_CAST_SATURATE = 0,      /**< to the largest number */
  SWAMP_CAST_OVERFLOW = 1,      /**< to inf, or nan */
  SWAMP_CAST_CUDA_SATURATE = 2, /**< CUDA's SATFINITE */
  SWAMP_CAST_CUDA = 3,          /**< CUDA's NOSAT */
  SWAMP_CAST_TORCH = 4,         /**< PyTorch 2.13 */
  SWAMP_CAST_ML_DTYPES = 5      /**< ml_dtypes 0.6 */
} swamp_cast_policy;

/** swamp_quantize_options: see QuantizeOptions in float8.h. */
typedef struct {
  uint32_t struct_size;     /**< sizeof(swamp_quantize_options) */
  float scale;              /**< factor of x; finite and larger than 0 */
  swamp_rounding rounding;  /**< which neighbour */
  swamp_cast_policy policy; /**< nan, inf and numbers beyond the largest */
  uint64_t seed;            /**< of generated random bits */
  const uint8_t* random;    /**< random bytes of the elements, or NULL */
} swamp_quantize_options;

/** swamp_quantize_report: see QuantizeReport in float8.h. */
typedef struct {
  uint32_t struct_size; /**< in: sizeof(swamp_quantize_report) */
  float amax;           /**< the largest magnitude of x; nan does not count */
  uint64_t saturated;   /**< beyond the largest number, inf included */
  uint64_t flushed;     /**< became 0, but were not */
  uint64_t nan_count;   /**< were nan */
} swamp_quantize_report;

/** swamp_quantize sets codes to round(float32(x) * scale). Errors are those of
 * the row operators.
 *
 * @param machine where to run; NULL: the default machine
 * @param x float16, bfloat16 or float32
 * @param[out] codes of at most 8 bits, as many elements; of float4 half as many
 * @param options NULL: scale 1, nearest even, saturate
 * @param[in,out] report NULL: not wanted */
SWAMP_API swamp_status swamp_quantize(swamp_machine* machine,
                                      const swamp_tensor* x,
                                      const swamp_tensor* codes,
                                      const swamp_quantize_options* options,
                                      swamp_quantize_report* report);

/** swamp_dequantize sets x to round(float32(code) * scale).
 *
 * @param machine where to run; NULL: the default machine
 * @param codes as swamp_quantize() returns them
 * @param[out] x float16, bfloat16 or float32
 * @param scale finite */
SWAMP_API swamp_status swamp_dequantize(swamp_machine* machine,
                                        const swamp_tensor* codes,
                                        const swamp_tensor* x, float scale);

/** swamp_block_scaling is BlockScaling of float8.h: how the scale of a block is
 * chosen. */
typedef enum {
  SWAMP_BLOCK_MX_FLOOR = 0,           /**< torchao, FLOOR */
  SWAMP_BLOCK_MX_CEIL = 1,            /**< torchao, CEIL */
  SWAMP_BLOCK_MX_EVEN = 2,            /**< torchao, EVEN */
  SWAMP_BLOCK_MX_RCEIL = 3,           /**< torchao, RCEIL */
  SWAMP_BLOCK_TE_MXFP8 = 4,           /**< Transformer Engine's MXFP8 */
  SWAMP_BLOCK_MICROXCALING = 5,       /**< microxcaling */
  SWAMP_BLOCK_TE_NVFP4 = 6,           /**< Transformer Engine's NVFP4 */
  SWAMP_BLOCK_TORCHAO_NVFP4 = 7,      /**< torchao's NVFP4 */
  SWAMP_BLOCK_TE = 8,                 /**< Float8BlockScaling, float32 */
  SWAMP_BLOCK_TE_POWER_OF_2 = 9,      /**< Float8BlockScaling */
  SWAMP_BLOCK_TORCHAO = 10,           /**< torchao.float8 */
  SWAMP_BLOCK_TORCHAO_POWER_OF_2 = 11 /**< torchao.float8, rowwise */
} swamp_block_scaling;

/** swamp_block_options: see BlockOptions in float8.h. */
typedef struct {
  uint32_t struct_size;        /**< sizeof(swamp_block_options) */
  swamp_block_scaling scaling; /**< the rule */
  size_t block;                /**< elements; 0: as the rule says */
  int32_t square;              /**< 1: as many rows as columns */
  float tensor_amax;           /**< of NVFP4, as swamp_amax() returns it */
  swamp_rounding rounding;     /**< which neighbour */
  swamp_cast_policy policy;    /**< nan, inf and numbers beyond the largest */
  int32_t hadamard;            /**< 1: the columns are transformed first */
  uint64_t seed;               /**< of generated random bits */
  const uint8_t* random;       /**< a byte for each element, or NULL */
} swamp_block_options;

/** swamp_block_codes is the codes of a matrix and their scales. */
typedef struct {
  swamp_tensor codes;  /**< of a format of at most 8 bits */
  swamp_tensor scales; /**< of the dtype of the rule */
} swamp_block_codes;

/** swamp_quantize_blocks sets codes and scales of x and of its transpose; see
 * quantize_blocks() in float8.h.
 *
 * @param machine where to run; NULL: the default machine
 * @param x float16, bfloat16 or float32
 * @param[out] rows along rows; NULL: not wanted
 * @param[out] columns along columns; NULL: not wanted
 * @param options NULL: Transformer Engine's MXFP8 */
SWAMP_API swamp_status swamp_quantize_blocks(
    swamp_machine* machine, const swamp_matrix* x,
    const swamp_block_codes* rows, const swamp_block_codes* columns,
    const swamp_block_options* options);

/** swamp_value_report: see ValueReport in float8.h. */
typedef struct {
  uint32_t struct_size; /**< in: sizeof(swamp_value_report) */
  float amax;           /**< the largest magnitude of x */
  float column_amax;    /**< of the columns after the Hadamard transform */
  int32_t has_nan;      /**< 1: x has a nan */
  int32_t exact;        /**< 0: bfloat16 lacks bits of values; use float32 */
  uint64_t saturated;   /**< beyond the largest number, inf included */
  uint64_t flushed;     /**< became 0, but were not */
} swamp_value_report;

/** swamp_quantized_values sets rows and columns to the values of the codes that
 * swamp_quantize_blocks() makes; see quantized_values() in float8.h. NVFP4's
 * columns have the amax of the rows.
 *
 * @param machine where to run; NULL: the default machine
 * @param x float16, bfloat16 or float32
 * @param format of the codes
 * @param[out] rows bfloat16 or float32, along rows; NULL: not wanted
 * @param[out] columns the same along columns, not transposed; NULL: not wanted
 * @param options NULL: Transformer Engine's MXFP8
 * @param[in,out] report NULL: not wanted */
SWAMP_API swamp_status swamp_quantized_values(
    swamp_machine* machine, const swamp_matrix* x, swamp_dtype format,
    const swamp_matrix* rows, const swamp_matrix* columns,
    const swamp_block_options* options, swamp_value_report* report);

/** swamp_dequantize_blocks sets x to round(code * scale).
 *
 * @param machine where to run; NULL: the default machine
 * @param codes along rows, as swamp_quantize_blocks() returns them
 * @param[out] x float16, bfloat16 or float32
 * @param options as they were */
SWAMP_API swamp_status swamp_dequantize_blocks(
    swamp_machine* machine, const swamp_block_codes* codes,
    const swamp_matrix* x, const swamp_block_options* options);

/** swamp_amax finds the largest |x|.
 *
 * @param machine where to run; NULL: the default machine
 * @param x float16, bfloat16 or float32
 * @param skip_nan 1: nan does not count; 0: the result is nan if x has one
 * @param[out] result 0 without elements */
SWAMP_API swamp_status swamp_amax(swamp_machine* machine, const swamp_tensor* x,
                                  int32_t skip_nan, float* result);

/** swamp_hadamard_transform transforms each 16 neighbours of a row; see
 * hadamard_transform() in float8.h.
 *
 * @param machine where to run; NULL: the default machine
 * @param x float16, bfloat16 or float32; a multiple of 16 columns
 * @param[out] out like x; may be x */
SWAMP_API swamp_status swamp_hadamard_transform(swamp_machine* machine,
                                                const swamp_matrix* x,
                                                const swamp_matrix* out);

/** swamp_scaled_matrix: see ScaledMatrix in float8.h. */
typedef struct {
  uint32_t struct_size; /**< sizeof(swamp_scaled_matrix) */
  swamp_tensor codes;   /**< row after row */
  swamp_tensor scales;  /**< of blocks, of rows, or one */
  size_t rows;          /**< of the matrix */
  size_t columns;       /**< elements of a row */
  size_t block;         /**< elements of a scale, even; 0: a row */
  int32_t square;       /**< 1: blocks have as many rows as columns */
  float tensor_amax;    /**< of NVFP4, as swamp_amax() returns it */
} swamp_scaled_matrix;

/** swamp_scaled_product sets out to a * b^T with exact sums; see product() in
 * float8.h.
 *
 * @param machine where to run; NULL: the default machine
 * @param[out] out float16, bfloat16 or float32, [a->rows, b->rows]
 * @param a codes and scales
 * @param b as many columns as a */
SWAMP_API swamp_status swamp_scaled_product(swamp_machine* machine,
                                            const swamp_matrix* out,
                                            const swamp_scaled_matrix* a,
                                            const swamp_scaled_matrix* b);

/** @} */

/**
 * @defgroup c_scaler C: loss scalers
 * The same in C++: loss_scaler.h.
 * @{ */

/** swamp_scaler is a loss scaler: the scale of the loss, and the rule of one of
 * the known systems that updates it, bit for bit. Only one thread at a time may
 * use a scaler. */
typedef struct swamp_scaler swamp_scaler;

/** swamp_scaler_step is the result of an update. */
typedef struct {
  uint32_t struct_size; /**< in: sizeof(swamp_scaler_step) */
  uint8_t found_inf;    /**< 1: found_inf was not 0 */
  uint8_t skipped;      /**< 1: the optimizer's step is to be skipped */
  uint8_t warned;       /**< 1: a warning of swamp.LossScaler, policy "warn" */
  double old_scale;     /**< of this step's loss */
  double new_scale;     /**< for the next step */
} swamp_scaler_step;

/** swamp_scaler_create makes a scaler.
 *
 * @param name of the system, for example "megatron.DynamicGradScaler",
 *   "torch.amp.GradScaler", "swamp.LossScaler"; the error text of a wrong name
 *   lists all
 * @param options a JSON object of the original's constructor arguments, for
 *   example {"growth_interval": 100}; NULL for its defaults
 * @param[out] out the scaler; the caller owns it (swamp_scaler_destroy())
 * @return SWAMP_INVALID_ARGUMENT for a NULL name or out, an unknown name or
 *   option, an option that is nan, a first scale that is infinite, or a value
 *   that the original refuses (the text contains its text)
 */
SWAMP_API swamp_status swamp_scaler_create(const char* name,
                                           const char* options,
                                           swamp_scaler** out);

/** swamp_scaler_destroy frees a scaler.
 *
 * @param scaler from swamp_scaler_create(); NULL does nothing */
SWAMP_API void swamp_scaler_destroy(swamp_scaler* scaler);

/** swamp_scaler_scale returns the factor of the loss.
 *
 * @param scaler from swamp_scaler_create()
 * @param[out] scale a widened float32, except for systems that use a double
 * @return SWAMP_INVALID_ARGUMENT if a pointer is NULL */
SWAMP_API swamp_status swamp_scaler_scale(const swamp_scaler* scaler,
                                          double* scale);

/** swamp_scaler_inv_scale returns 1 / scale, computed in double and rounded
 * once.
 *
 * @param scaler from swamp_scaler_create()
 * @param[out] inv_scale for swamp_amp_foreach_non_finite_check_and_unscale()
 * @return SWAMP_INVALID_ARGUMENT if a pointer is NULL */
SWAMP_API swamp_status swamp_scaler_inv_scale(const swamp_scaler* scaler,
                                              float* inv_scale);

/** swamp_scaler_update updates the scale after a step.
 *
 * @param scaler from swamp_scaler_create()
 * @param found_inf as set by the unscale
 * @param[in,out] step filled, if not NULL; its struct_size must be set
 * @return SWAMP_INVALID_ARGUMENT for a NULL scaler, a wrong struct_size, and if
 *   the original raises an exception (the text contains its text): the scaler
 *   then has the state of the original after the exception, and step is
 *   unchanged */
SWAMP_API swamp_status swamp_scaler_update(swamp_scaler* scaler,
                                           float found_inf,
                                           swamp_scaler_step* step);

/** swamp_scaler_state_dict returns the state as a JSON object with the
 * original's keys; state that the original does not save is in the object
 * "swamp".
 *
 * @param scaler from swamp_scaler_create()
 * @param[out] json owned by the scaler, valid until its next
 *   swamp_scaler_state_dict() or its destruction
 * @return SWAMP_INVALID_ARGUMENT if a pointer is NULL */
SWAMP_API swamp_status swamp_scaler_state_dict(swamp_scaler* scaler,
                                               const char** json);

/** swamp_scaler_load_state_dict loads the result of swamp_scaler_state_dict(),
 * or the original's own checkpoint as JSON.
 *
 * @param scaler from swamp_scaler_create()
 * @param json the text
 * @return SWAMP_INVALID_ARGUMENT for a NULL pointer or a bad text, naming the
 *   key; nothing is changed then */
SWAMP_API swamp_status swamp_scaler_load_state_dict(swamp_scaler* scaler,
                                                    const char* json);

/** @} */

/**
 * @defgroup c_scale_manager C: scales of 8-bit recipes
 * The same in C++: scale_manager.h.
 * @{ */

/** swamp_scale_manager holds the scales of the tensors of an 8-bit recipe, and
 * the rule that updates them from their largest magnitudes (amax), bit for bit
 * as the original. Only one thread at a time may use a manager. */
typedef struct swamp_scale_manager swamp_scale_manager;

/** swamp_block_scale is the scale of a tensor or of a block. */
typedef struct {
  uint32_t struct_size; /**< in: sizeof(swamp_block_scale) */
  uint8_t code;         /**< as stored: float8_e8m0fnu or e4m3fn; or 0 */
  float scale;          /**< what the elements are multiplied by */
  float scale_inv;      /**< what their codes are multiplied by */
} swamp_block_scale;

/** swamp_scale_manager_create makes a manager.
 *
 * @param name of the recipe, for example "te.DelayedScaling" or "torchao.mx";
 *   the error text of a wrong name lists all
 * @param forward number of tensors of the forward pass, which come first
 * @param backward number of gradients, which may have another format
 * @param options a JSON object of the original's options, for example
 *   {"amax_history_len": 16}; NULL for its defaults
 * @param[out] out the manager; the caller owns it
 *   (swamp_scale_manager_destroy())
 * @return SWAMP_INVALID_ARGUMENT for a NULL name or out, and for an unknown
 *   name, option or value */
SWAMP_API swamp_status swamp_scale_manager_create(const char* name,
                                                  size_t forward,
                                                  size_t backward,
                                                  const char* options,
                                                  swamp_scale_manager** out);

/** swamp_scale_manager_destroy frees a manager.
 *
 * @param manager from swamp_scale_manager_create(); NULL does nothing */
SWAMP_API void swamp_scale_manager_destroy(swamp_scale_manager* manager);

/** swamp_scale_manager_observe_all records the amax of every tensor. Several
 * calls before an update record the largest; nan is larger than inf.
 *
 * @param manager from swamp_scale_manager_create()
 * @param amax `count` values: at least 0, or nan; -1: not seen
 * @param count number of tensors, forward + backward */
SWAMP_API swamp_status swamp_scale_manager_observe_all(
    swamp_scale_manager* manager, const float* amax, size_t count);

/** swamp_scale_manager_observe is swamp_scale_manager_observe_all() of one
 * tensor.
 *
 * @param manager from swamp_scale_manager_create()
 * @param index of the tensor
 * @param amax at least 0, or nan; -1: not seen */
SWAMP_API swamp_status swamp_scale_manager_observe(swamp_scale_manager* manager,
                                                   size_t index, float amax);

/** swamp_scale_manager_amax returns what was observed since the last update, -1
 * for nothing. To reduce it over ranks, observe the maximum (all-reduce MAX).
 *
 * @param manager from swamp_scale_manager_create()
 * @param[out] amax `count` values
 * @param count number of tensors */
SWAMP_API swamp_status swamp_scale_manager_amax(
    const swamp_scale_manager* manager, float* amax, size_t count);

/** swamp_scale_manager_update ends a step: the scales become those of the next
 * one.
 *
 * @param manager from swamp_scale_manager_create() */
SWAMP_API swamp_status swamp_scale_manager_update(swamp_scale_manager* manager);

/** swamp_scale_manager_scale returns the scale of a tensor. A recipe that
 * scales in time takes it from the amax observed since the last update.
 *
 * @param manager from swamp_scale_manager_create()
 * @param index of the tensor
 * @param[out] scale what the elements are multiplied by; may be NULL
 * @param[out] scale_inv what the codes are multiplied by; may be NULL */
SWAMP_API swamp_status
swamp_scale_manager_scale(const swamp_scale_manager* manager, size_t index,
                          float* scale, float* scale_inv);

/** swamp_scale_manager_block_scale returns the scale of a block or row of a
 * tensor.
 *
 * @param manager from swamp_scale_manager_create()
 * @param index of the tensor
 * @param amax of the block: at least 0, or nan
 * @param[in,out] scale filled; its struct_size must be set
 * @return SWAMP_UNSUPPORTED if the recipe scales whole tensors */
SWAMP_API swamp_status swamp_scale_manager_block_scale(
    const swamp_scale_manager* manager, size_t index, float amax,
    swamp_block_scale* scale);

/** swamp_scale_manager_state_dict returns the state as a JSON object with the
 * original's keys.
 *
 * @param manager from swamp_scale_manager_create()
 * @param[out] json owned by the manager, valid until its next
 *   swamp_scale_manager_state_dict() or its destruction */
SWAMP_API swamp_status
swamp_scale_manager_state_dict(swamp_scale_manager* manager, const char** json);

/** swamp_scale_manager_load_state_dict loads the result of
 * swamp_scale_manager_state_dict(), or the original's state as JSON.
 *
 * @param manager from swamp_scale_manager_create()
 * @param json the text
 * @return SWAMP_INVALID_ARGUMENT for a NULL pointer, a bad text, the state of
 *   another recipe or a scale that the recipe cannot yield, naming the key;
 *   nothing is changed then */
SWAMP_API swamp_status swamp_scale_manager_load_state_dict(
    swamp_scale_manager* manager, const char* json);

/** @} */

/**
 * @defgroup c_reports C: reports of the checker, errors, version
 * The same in C++: machine.h.
 * @{ */

/** swamp_check_report_count returns how many reports the checking emulation
 * (SWAMP_TRANSFER=check) has collected in this process so far, without notes. A
 * program that would otherwise exit with 0 should exit with 86 if there are
 * any.
 */
SWAMP_API size_t swamp_check_report_count(void);

/** The function that swamp_check_set_callback() sets. It must not call swamp
 * and must not throw.
 *
 * @param user as passed to swamp_check_set_callback()
 * @param text one line without a newline, valid during the call only */
typedef void (*swamp_check_callback)(void* user, const char* text);

/** swamp_check_set_callback sets the function that is called with every new
 * report of the checking emulation, on the thread that found it, one at a time.
 * A process has one callback: a new one replaces it.
 *
 * @param callback NULL: none
 * @param user passed to the callback; must live as long as the callback is set
 */
SWAMP_API void swamp_check_set_callback(swamp_check_callback callback,
                                        void* user);

/** swamp_last_error returns the text of the calling thread's last failed call,
 * "" if none failed. Successful calls do not change it. The library owns it; it
 * is valid until the thread's next call that fails. */
SWAMP_API const char* swamp_last_error(void);

/** swamp_version returns "major.minor.patch", a constant. */
SWAMP_API const char* swamp_version(void);

/** @} */

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* SWAMP_C_API_H_ */
