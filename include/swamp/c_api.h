/**
 * @file
 * The C ABI of swamp: stable, C99, no exception passes through it.
 *
 * Every function may be called from any thread, also several at once on one
 * machine. The library never aborts, prints or exits (but libgomp does, when
 * the system refuses it threads: the backends serial and threads do not use
 * it). A call that fails has written nothing; its text is in
 * swamp_last_error(). Memory that is passed in stays the caller's; the library
 * keeps no pointer to it beyond the call. */
#ifndef SWAMP_C_API_H_
#define SWAMP_C_API_H_

#include <stddef.h>
#include <stdint.h>

#include "swamp/export.h"

#ifdef __cplusplus
extern "C" {
#endif

/** What a call came to. */
typedef enum {
  SWAMP_OK = 0,
  SWAMP_INVALID_ARGUMENT = 1, /**< the caller's mistake; the text names it */
  SWAMP_UNSUPPORTED = 2,      /**< known, but this build or CPU lacks it */
  SWAMP_OUT_OF_MEMORY = 3,    /**< nothing was written */
  SWAMP_INTERNAL = 4          /**< a bug of swamp: please report it */
} swamp_status;

/** The element types of a tensor, as ATen's Half, BFloat16, Float, Double,
 * Float8_e4m3fn, Float8_e5m2. The list may grow. An operator that does not take
 * one of them returns SWAMP_UNSUPPORTED. */
typedef enum {
  SWAMP_FLOAT16 = 0,       /**< IEEE binary16, 2 bytes */
  SWAMP_BFLOAT16 = 1,      /**< upper half of a binary32, 2 bytes */
  SWAMP_FLOAT32 = 2,       /**< IEEE binary32, 4 bytes */
  SWAMP_FLOAT64 = 3,       /**< IEEE binary64, 8 bytes */
  SWAMP_FLOAT8_E4M3FN = 4, /**< 1 byte; no inf, nan is 0x7f and 0xff */
  SWAMP_FLOAT8_E5M2 = 5    /**< upper half of a binary16, 1 byte */
} swamp_dtype;

/** swamp_tensor describes one contiguous array of any shape; the shape itself
 * does not matter here. The caller owns the memory. */
typedef struct {
  /** Aligned to the element (1, 2, 4 or 8 bytes); NULL only when count is 0. */
  void* data;
  size_t count;      /**< elements, not bytes */
  swamp_dtype dtype; /**< of every element */
} swamp_tensor;

/** swamp_config says what machine swamp_machine_create() makes. A field that is
 * 0 or NULL takes the value of its environment variable (SWAMP_MACHINE,
 * SWAMP_BACKEND, SWAMP_TRANSFER, SWAMP_CORE_GROUPS, SWAMP_SLAVES_PER_GROUP,
 * SWAMP_LDM_BYTES, SWAMP_ISA, SWAMP_BIND), else the default; an empty variable
 * counts as unset. The strings are copied. */
typedef struct {
  uint32_t struct_size;      /**< sizeof(swamp_config) */
  const char* machine;       /**< "host", "sw26010", "sw26010pro" */
  const char* backend;       /**< "openmp", "serial", "threads", "athread" */
  const char* transfer;      /**< "view", "copy", "check" */
  uint32_t core_groups;      /**< 1..4096 */
  uint32_t slaves_per_group; /**< 1..4096 */
  size_t ldm_bytes;          /**< scratchpad of one slave, 1 KiB..1 GiB */
  const char* isa;           /**< "scalar", "ssse3", "sse4", "avx2", "avx512" */
  const char* bind;          /**< "none", "core" */
} swamp_config;

/** swamp_machine is a set of core groups of slaves. NULL stands for the
 * process's default machine, made from the environment at first use. */
typedef struct swamp_machine swamp_machine;

/** swamp_unscale_report says where the overflow was. Indices are 0-based. When
 * element_count is 0 the other fields are 0. */
typedef struct {
  uint32_t struct_size;   /**< in: sizeof(swamp_unscale_report) */
  uint64_t tensor;        /**< the first in list order that held inf/nan */
  uint64_t index;         /**< flat, of the first inf/nan in that tensor */
  uint64_t tensor_count;  /**< tensors that held at least one */
  uint64_t element_count; /**< inf/nan elements in the whole list */
} swamp_unscale_report;

/** swamp_machine_create makes a machine.
 *
 * @param config what to make; NULL: all from the environment and the defaults
 * @param[out] out the machine; the caller owns it (swamp_machine_destroy())
 * @return SWAMP_INVALID_ARGUMENT (unknown value, sizes out of range, wrong
 *   struct_size, NULL out; the text lists the good values), SWAMP_UNSUPPORTED
 *   (this build or CPU lacks it; the text lists what there is) or
 *   SWAMP_OUT_OF_MEMORY */
SWAMP_API swamp_status swamp_machine_create(const swamp_config* config,
                                            swamp_machine** out);

/** swamp_machine_destroy frees a machine. No call may be running on it.
 *
 * @param machine from swamp_machine_create(); NULL does nothing */
SWAMP_API void swamp_machine_destroy(swamp_machine* machine);

/** swamp_amp_foreach_non_finite_check_and_unscale multiplies every element of
 * every tensor by *inv_scale, in place, and sets *found_inf to 1.0f if any
 * incoming element is inf or nan. Equivalent, bit for bit (but for the payload
 * of a 16-bit nan), to PyTorch's CPU operator
 * _amp_foreach_non_finite_check_and_unscale_ (AmpGradScalerKernels.cpp):
 *
 *     for each tensor t, for each element x of t:
 *       if (!isfinite(x)) *found_inf = 1.0f;   // before the multiply
 *       if (*inv_scale != 1.0f)
 *         x = round_to_dtype(opmath(x) * *inv_scale);
 *
 * opmath is float for float16, bfloat16 and float32, double for float64.
 * With *inv_scale == 1.0f the tensors are only read. Everything is checked
 * before the first write, unlike PyTorch's: a call that fails changes nothing.
 *
 * @param machine where to run; NULL: the default machine
 * @param[in,out] tensors the list; dtypes may be mixed, the arrays must not
 *   overlap each other (transfer mode check refuses those that do); may be NULL
 *   when tensor_count is 0
 * @param tensor_count tensors in the list; 0 is fine
 * @param[in,out] found_inf one float, set to 1.0f or left alone: to clear it is
 *   the caller's business
 * @param inv_scale one float, usually 1 / loss scale; its value is not checked
 * @return SWAMP_INVALID_ARGUMENT for a NULL found_inf or inv_scale, a NULL list
 *   with tensor_count > 0, and, naming the tensor's index, for an unknown
 *   dtype, NULL data with count > 0, a count whose bytes overflow, misaligned
 *   data; SWAMP_UNSUPPORTED for a float8 dtype; and what
 *   swamp_machine_create() returns, for the default machine */
SWAMP_API swamp_status swamp_amp_foreach_non_finite_check_and_unscale(
    swamp_machine* machine, const swamp_tensor* tensors, size_t tensor_count,
    float* found_inf, const float* inv_scale);

/** The same, and says where the overflow was. A clean list costs nothing extra.
 *
 * @param machine where to run; NULL: the default machine
 * @param[in,out] tensors the list
 * @param tensor_count tensors in the list
 * @param[in,out] found_inf one float, set to 1.0f or left alone
 * @param inv_scale one float
 * @param[in,out] report filled, if not NULL; its struct_size must be set
 * @return as without a report; also SWAMP_INVALID_ARGUMENT for a wrong
 *   report->struct_size */
SWAMP_API swamp_status swamp_amp_foreach_non_finite_check_and_unscale_report(
    swamp_machine* machine, const swamp_tensor* tensors, size_t tensor_count,
    float* found_inf, const float* inv_scale, swamp_unscale_report* report);

/** swamp_amp_update_scale moves the loss scale as PyTorch's CPU operator
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
 * Checks nothing but the pointers, as PyTorch's operator; the scaler classes
 * check their factors.
 *
 * @param[in,out] scale the loss scale, one float
 * @param[in,out] growth_tracker clean calls in a row, one int32
 * @param found_inf one float, as the unscale has left it
 * @param growth_factor usually above 1
 * @param backoff_factor usually between 0 and 1
 * @param growth_interval in calls; 0 or less: it never grows
 * @return SWAMP_INVALID_ARGUMENT when a pointer is NULL */
SWAMP_API swamp_status swamp_amp_update_scale(
    float* scale, int32_t* growth_tracker, const float* found_inf,
    double growth_factor, double backoff_factor, int64_t growth_interval);

/** swamp_foreach_norm gives the 2-norm of the unscaled gradients, and finds inf
 * and nan in the same pass, which only reads. See foreach_norm() in foreach.h:
 * the same bits on every machine.
 *
 * @param machine where to run; NULL: the default machine
 * @param tensors float16, bfloat16, float32 or float64; may be NULL when
 *   tensor_count is 0
 * @param tensor_count tensors in the list
 * @param inv_scale one float, usually 1 / loss scale
 * @param[in,out] found_inf one float, set to 1.0f if an incoming element is inf
 *   or nan, else left alone; may be NULL
 * @param[out] norm one double; not finite when an unscaled element is not
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
 * @param tensor_count tensors in each of the lists; tensor i of both has as
 * many elements; the arrays do not overlap
 * @param[out] out float32 for 16-bit tensors of in; float16, bfloat16 or
 *   float32 for float32 ones; may be NULL when tensor_count is 0
 * @param in float16, bfloat16 or float32; only read
 * @param divisor 1: no division
 * @return as swamp_amp_foreach_non_finite_check_and_unscale(); also
 *   SWAMP_INVALID_ARGUMENT for lists that do not agree */
SWAMP_API swamp_status swamp_foreach_cast(swamp_machine* machine,
                                          size_t tensor_count,
                                          const swamp_tensor* out,
                                          const swamp_tensor* in,
                                          float divisor);

/** swamp_optimizer names the rule of a step. */
typedef enum {
  SWAMP_ADAM = 0, /**< Adam, or AdamW where `decoupled` is 1 */
  SWAMP_SGD = 1   /**< torch.optim.SGD */
} swamp_optimizer;

/** swamp_mixed_precision_step_options is the numbers of one step. Those of
 * another optimizer are not looked at. */
typedef struct {
  /** sizeof(swamp_mixed_precision_step_options), or its first version's, which
   * ended before `optimizer` */
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
  /** 0: the call makes both passes. Above 0: the caller has made the first with
   * swamp_foreach_norm(), because ranks had to agree, and gives the factor of
   * the unscaled gradients: (float)(max_norm / (norm + 1e-6)) where that is
   * below 1, else 1. found_inf, grad_norm and max_norm are then not used. */
  float clip_coefficient;
  int32_t optimizer; /**< a swamp_optimizer; 0: Adam, AdamW */
  int32_t nesterov;  /**< SGD, 1: with a momentum and without dampening */
  double momentum;   /**< SGD, at least 0 */
  double dampening;  /**< SGD, of the momentum */
} swamp_mixed_precision_step_options;

/** swamp_mixed_precision_step is everything between backward and the next
 * forward, in two passes. The first only reads the gradients: is one inf or
 * nan, and, where it is wanted, what is their norm. If one is, *found_inf is
 * set, and nothing else happens. Else the second unscales and clips each
 * gradient, moves the moments and the float32 weight, and rounds it to the
 * model's, all in registers. Bits are those of torch's fused CPU Adam and AdamW
 * and of its SGD (see foreach_adam_() and foreach_sgd_() in foreach.h), the
 * same on every machine. The state is the caller's: step and scale are not
 * advanced.
 *
 * @param machine where to run; NULL: the default machine
 * @param options the numbers
 * @param tensor_count tensors in each of the lists; tensor i of each has as
 * many elements as that of the others; no two arrays overlap
 * @param[in,out] masters float32 weights
 * @param gradients float16, bfloat16 or float32; only read
 * @param[in,out] exp_avgs float32: first moments, 0 before the first step; of
 *   SGD the momentum buffers, which the first step sets, or NULL without one
 * @param[in,out] exp_avg_sqs float32: second moments; NULL for SGD
 * @param[out] model_params float16 or bfloat16: set to the new weights; NULL
 *   where the masters are the model's weights
 * @param[in,out] found_inf one float, set to 1.0f when the step was not taken,
 *   else left alone
 * @param[out] grad_norm one double, the norm of the unscaled gradients before
 *   clipping, also when it was not taken; may be NULL
 * @return SWAMP_INVALID_ARGUMENT for a NULL options or found_inf, a wrong
 *   struct_size, a number out of its range, lists that do not agree, and what
 *   swamp_amp_foreach_non_finite_check_and_unscale() says of tensors;
 *   SWAMP_UNSUPPORTED for a dtype that is not taken. Nothing has been written
 *   then */
SWAMP_API swamp_status swamp_mixed_precision_step(
    swamp_machine* machine, const swamp_mixed_precision_step_options* options,
    size_t tensor_count, const swamp_tensor* masters,
    const swamp_tensor* gradients, const swamp_tensor* exp_avgs,
    const swamp_tensor* exp_avg_sqs, const swamp_tensor* model_params,
    float* found_inf, double* grad_norm);

/** swamp_scaler is a loss scaler: the scale of the loss, and the rule that
 * moves it as one of the known systems does, bit for bit. One scaler is not for
 * several threads at once. */
typedef struct swamp_scaler swamp_scaler;

/** swamp_scaler_step says what an update did. */
typedef struct {
  uint32_t struct_size; /**< in: sizeof(swamp_scaler_step) */
  uint8_t found_inf;    /**< 1: found_inf was not 0 */
  uint8_t skipped;      /**< 1: the optimizer's step is to be skipped */
  uint8_t warned;       /**< 1: the policy "warn" of swamp's own has spoken */
  double old_scale;     /**< with which this step's loss was scaled */
  double new_scale;     /**< for the next step */
} swamp_scaler_step;

/** swamp_scaler_create makes a scaler.
 *
 * @param name of the system, as "megatron.DynamicGradScaler",
 *   "torch.amp.GradScaler", "swamp.LossScaler"; a wrong one lists all
 * @param options a JSON object of the original's constructor arguments, or NULL
 *   for its defaults: {"growth_interval": 100}
 * @param[out] out the scaler; the caller owns it (swamp_scaler_destroy())
 * @return SWAMP_INVALID_ARGUMENT for a NULL name or out, an unknown name or
 *   option, or a value that the original refuses (its text is in ours) */
SWAMP_API swamp_status swamp_scaler_create(const char* name,
                                           const char* options,
                                           swamp_scaler** out);

/** swamp_scaler_destroy frees a scaler.
 *
 * @param scaler from swamp_scaler_create(); NULL does nothing */
SWAMP_API void swamp_scaler_destroy(swamp_scaler* scaler);

/** swamp_scaler_scale gives the factor of the loss.
 *
 * @param scaler from swamp_scaler_create()
 * @param[out] scale a float32 widened, but for the systems that keep a double
 * @return SWAMP_INVALID_ARGUMENT when a pointer is NULL */
SWAMP_API swamp_status swamp_scaler_scale(const swamp_scaler* scaler,
                                          double* scale);

/** swamp_scaler_inv_scale gives 1 / scale, formed in double and rounded once.
 *
 * @param scaler from swamp_scaler_create()
 * @param[out] inv_scale for swamp_amp_foreach_non_finite_check_and_unscale()
 * @return SWAMP_INVALID_ARGUMENT when a pointer is NULL */
SWAMP_API swamp_status swamp_scaler_inv_scale(const swamp_scaler* scaler,
                                              float* inv_scale);

/** swamp_scaler_update moves the scale after a step.
 *
 * @param scaler from swamp_scaler_create()
 * @param found_inf as the unscale has left it
 * @param[in,out] step filled, if not NULL; its struct_size must be set
 * @return SWAMP_INVALID_ARGUMENT for a NULL scaler, a wrong struct_size, and
 *   where the original raises (the text has its words): the scaler is then in
 *   the state that the original's exception leaves behind, and step is as it
 *   was */
SWAMP_API swamp_status swamp_scaler_update(swamp_scaler* scaler,
                                           float found_inf,
                                           swamp_scaler_step* step);

/** swamp_scaler_state_dict gives the state as a JSON object with the original's
 * keys; what the original forgets is in the object "swamp".
 *
 * @param scaler from swamp_scaler_create()
 * @param[out] json owned by the scaler, valid until its next
 *   swamp_scaler_state_dict() or its end
 * @return SWAMP_INVALID_ARGUMENT when a pointer is NULL */
SWAMP_API swamp_status swamp_scaler_state_dict(swamp_scaler* scaler,
                                               const char** json);

/** swamp_scaler_load_state_dict takes what swamp_scaler_state_dict() gave, or
 * the original's own checkpoint as JSON.
 *
 * @param scaler from swamp_scaler_create()
 * @param json the text
 * @return SWAMP_INVALID_ARGUMENT when a pointer is NULL and for a bad text,
 *   naming the key; nothing is changed then */
SWAMP_API swamp_status swamp_scaler_load_state_dict(swamp_scaler* scaler,
                                                    const char* json);

/** swamp_check_report_count returns how many reports the checking emulation
 * (SWAMP_TRANSFER=check) has collected in this process so far; notes on speed
 * do not count. A program that ends well but has some should exit with 86. */
SWAMP_API size_t swamp_check_report_count(void);

/** What swamp_check_set_callback() is given. It must not call swamp, and must
 * not throw.
 *
 * @param user as given to swamp_check_set_callback()
 * @param text one line without a newline, valid during the call only */
typedef void (*swamp_check_callback)(void* user, const char* text);

/** swamp_check_set_callback has every new report of the checking emulation
 * handed to a function, on the thread that found it, one at a time. There is
 * one callback in a process; the last one set counts.
 *
 * @param callback NULL ends it
 * @param user handed through; must live as long as the callback is set */
SWAMP_API void swamp_check_set_callback(swamp_check_callback callback,
                                        void* user);

/** swamp_last_error returns the text of the calling thread's last failed call,
 * "" if none failed; a call that succeeds leaves it. The library owns it; valid
 * until the thread's next call that fails. */
SWAMP_API const char* swamp_last_error(void);

/** swamp_version returns "major.minor.patch", a constant. */
SWAMP_API const char* swamp_version(void);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* SWAMP_C_API_H_ */
