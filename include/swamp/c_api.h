/* The C ABI of swamp: stable, C99, no exception passes through it.
 *
 * Every function may be called from any thread, also several at once on one
 * machine. The library never aborts, prints or exits. A call that fails has
 * written nothing; its text is in swamp_last_error(). */
#ifndef SWAMP_C_API_H_
#define SWAMP_C_API_H_

#include <stddef.h>
#include <stdint.h>

#include "swamp/export.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
  SWAMP_OK = 0,
  SWAMP_INVALID_ARGUMENT = 1, /* the caller's mistake; the text names it */
  SWAMP_UNSUPPORTED = 2,      /* known, but this build or CPU lacks it */
  SWAMP_OUT_OF_MEMORY = 3,
  SWAMP_INTERNAL = 4 /* a bug of swamp: please report it */
} swamp_status;

/* The element types of a tensor, as ATen's Half, BFloat16, Float, Double,
 * Float8_e4m3fn, Float8_e5m2. The list may grow. An operator that does not take
 * one of them says SWAMP_UNSUPPORTED. */
typedef enum {
  SWAMP_FLOAT16 = 0,  /* IEEE binary16, 2 bytes */
  SWAMP_BFLOAT16 = 1, /* upper half of a binary32, 2 bytes */
  SWAMP_FLOAT32 = 2,
  SWAMP_FLOAT64 = 3,
  SWAMP_FLOAT8_E4M3FN = 4, /* no inf; nan is 0x7f and 0xff */
  SWAMP_FLOAT8_E5M2 = 5    /* upper half of a binary16 */
} swamp_dtype;

/* swamp_tensor describes one contiguous array of `count` elements. The caller
 * owns the memory. `data` must be aligned to the element's size (1, 2, 4 or
 * 8 bytes) and may be NULL only when `count` is 0. */
typedef struct {
  void* data;
  size_t count; /* elements, not bytes */
  swamp_dtype dtype;
} swamp_tensor;

/* swamp_config says what machine swamp_machine_create() makes. A field that is
 * 0 or NULL takes the value of its environment variable (SWAMP_MACHINE,
 * SWAMP_BACKEND, SWAMP_TRANSFER, SWAMP_CORE_GROUPS, SWAMP_SLAVES_PER_GROUP,
 * SWAMP_LDM_BYTES, SWAMP_ISA, SWAMP_BIND), else the default; an empty variable
 * counts as unset. `struct_size` must be sizeof(swamp_config). The strings are
 * copied. */
typedef struct {
  uint32_t struct_size;
  const char* machine;       /* "host", "sw26010", "sw26010pro" */
  const char* backend;       /* "openmp", "serial", "threads" */
  const char* transfer;      /* "view", "copy", "check" */
  uint32_t core_groups;      /* 1..4096 */
  uint32_t slaves_per_group; /* 1..4096 */
  size_t ldm_bytes;          /* scratchpad of one slave, 1 KiB..1 GiB */
  const char* isa;           /* "scalar", "ssse3", "sse4", "avx2", "avx512" */
  const char* bind;          /* "none", "core" */
} swamp_config;

/* swamp_machine is a set of core groups of slaves. NULL stands for the
 * process's default machine, made from the environment at first use. */
typedef struct swamp_machine swamp_machine;

/* swamp_unscale_report says where the overflow was. Indices are 0-based. When
 * `element_count` is 0 the other fields are 0. */
typedef struct {
  uint32_t struct_size;   /* in: sizeof(swamp_unscale_report) */
  uint64_t tensor;        /* the first tensor in list order that held inf/nan */
  uint64_t index;         /* flat index of the first inf/nan in that tensor */
  uint64_t tensor_count;  /* tensors that held at least one */
  uint64_t element_count; /* inf/nan elements in the whole list */
} swamp_unscale_report;

/* swamp_machine_create makes a machine from `config` (NULL: all defaults) and
 * stores it in `*out`. Errors: SWAMP_INVALID_ARGUMENT (unknown value, sizes out
 * of range, wrong struct_size, NULL out; the text lists the good values),
 * SWAMP_UNSUPPORTED (this build or CPU lacks it), SWAMP_OUT_OF_MEMORY. */
SWAMP_API swamp_status swamp_machine_create(const swamp_config* config,
                                            swamp_machine** out);

/* swamp_machine_destroy frees a machine; NULL is allowed. No call may be
 * running on it. */
SWAMP_API void swamp_machine_destroy(swamp_machine* machine);

/* swamp_amp_foreach_non_finite_check_and_unscale multiplies every element of
 * every tensor by *inv_scale, in place, and sets *found_inf to 1.0f if any
 * incoming element is inf or nan. Equivalent, bit for bit, to PyTorch's CPU
 * operator _amp_foreach_non_finite_check_and_unscale_:
 *
 *   for each tensor t, for each element x of t:
 *     if (!isfinite(x)) *found_inf = 1.0f;      // the value before the
 * multiply if (*inv_scale != 1.0f) x = round_to_dtype(opmath(x) * *inv_scale);
 *
 * opmath is float for float16, bfloat16 and float32, double for float64.
 * *found_inf is never cleared: that is the caller's business. With
 * *inv_scale == 1.0f the tensors are only read. dtypes may be mixed; an empty
 * list (tensors may then be NULL) and empty tensors are fine. The arrays must
 * not overlap each other. Everything is checked before the first write:
 * SWAMP_INVALID_ARGUMENT for a NULL found_inf or inv_scale, a NULL list with
 * tensor_count > 0, and, naming the tensor's index, for an unknown dtype, NULL
 * data with count > 0, a count whose bytes overflow, misaligned data;
 * SWAMP_UNSUPPORTED for a float8 dtype. */
SWAMP_API swamp_status swamp_amp_foreach_non_finite_check_and_unscale(
    swamp_machine* machine, const swamp_tensor* tensors, size_t tensor_count,
    float* found_inf, const float* inv_scale);

/* The same, and fills *report if report is not NULL. A clean list costs nothing
 * extra. Also SWAMP_INVALID_ARGUMENT for a wrong report->struct_size. */
SWAMP_API swamp_status swamp_amp_foreach_non_finite_check_and_unscale_report(
    swamp_machine* machine, const swamp_tensor* tensors, size_t tensor_count,
    float* found_inf, const float* inv_scale, swamp_unscale_report* report);

/* swamp_amp_update_scale moves the loss scale as PyTorch's _amp_update_scale_:
 *
 *   if (*found_inf != 0) {                       // nan counts as found
 *     *scale = (float)(*scale * backoff_factor); // product in double
 *     *growth_tracker = 0;
 *   } else if (++*growth_tracker == growth_interval) {
 *     new = (float)(*scale * growth_factor);
 *     if (isfinite(new)) *scale = new;
 *     *growth_tracker = 0;
 *   }
 *
 * Checks only that no pointer is NULL, as PyTorch's operator; the scaler
 * classes check their factors. */
SWAMP_API swamp_status swamp_amp_update_scale(
    float* scale, int32_t* growth_tracker, const float* found_inf,
    double growth_factor, double backoff_factor, int64_t growth_interval);

/* swamp_check_report_count returns how many reports the checking emulation
 * (SWAMP_TRANSFER=check) has collected in this process so far; notes on speed
 * do not count. A program that ends well but has some should exit with 86. */
SWAMP_API size_t swamp_check_report_count(void);

/* swamp_check_set_callback has `callback` called with every new report, one
 * line without a newline, on the thread that found it; NULL ends that. The text
 * is valid during the call only. The callback must not call swamp. */
typedef void (*swamp_check_callback)(void* user, const char* text);
SWAMP_API void swamp_check_set_callback(swamp_check_callback callback,
                                        void* user);

/* swamp_last_error returns the text of the calling thread's last failed call,
 * "" if none failed. Valid until the thread's next swamp call. */
SWAMP_API const char* swamp_last_error(void);

/* swamp_version returns "major.minor.patch". */
SWAMP_API const char* swamp_version(void);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* SWAMP_C_API_H_ */
