/* Lists that are refused: nothing is written. */
#include <math.h>
#include <string.h>

#include "c_abi.h"
#include "c_abi_check.h"
#include "swamp/c_api.h"

#define UNSCALE swamp_amp_foreach_non_finite_check_and_unscale

int c_abi_unscale_nulls(void) {
  int failed = 0;
  float data[] = {1.0f, INFINITY};
  const swamp_tensor list[] = {{data, 2, SWAMP_FLOAT32}};
  float found_inf = 0.0f;
  const float half = 0.5f;
  const swamp_status invalid = SWAMP_INVALID_ARGUMENT;
  REFUSED(UNSCALE(NULL, list, 1, NULL, &half), invalid, "found_inf");
  REFUSED(UNSCALE(NULL, list, 1, &found_inf, NULL), invalid, "inv_scale");
  REFUSED(UNSCALE(NULL, NULL, 1, &found_inf, &half), invalid, "tensors",
          "null");
  /* Never null, not even with an empty list. */
  REFUSED(UNSCALE(NULL, NULL, 0, NULL, &half), invalid, "found_inf");
  REFUSED(UNSCALE(NULL, NULL, 0, &found_inf, NULL), invalid, "inv_scale");
  CHECK(data[0] == 1.0f && found_inf == 0.0f);
  return failed;
}

/* The bad tensor is the second; the first would be changed. */
int c_abi_unscale_bad_tensors(void) {
  static double memory[2];
  static char* const bytes = (char*)memory;
  const size_t all = (size_t)-1;
  const struct {
    void* data;
    size_t count;
    int dtype; /* also one that the enum does not have */
    swamp_status status;
    const char* words[4]; /* ends with NULL */
  } rows[] = {
#define UNKNOWN(dtype, text)                                                   \
  {bytes, 2, dtype, SWAMP_INVALID_ARGUMENT, {"tensors[1].dtype", text}},       \
      {bytes, 0, dtype, SWAMP_INVALID_ARGUMENT, {"tensors[1].dtype", text}}, { \
    NULL, 0, dtype, SWAMP_INVALID_ARGUMENT, { "tensors[1].dtype", text }       \
  }
      UNKNOWN(99, "99"),
      UNKNOWN(-1, "-1"),
      UNKNOWN(6, "6"),
      UNKNOWN(1 << 30, "1073741824"),
#undef UNKNOWN
      /* Known, but not of this operator. */
      {bytes,
       2,
       SWAMP_FLOAT8_E4M3FN,
       SWAMP_UNSUPPORTED,
       {"tensors[1].dtype", "float8", "float64"}},
      {bytes,
       2,
       SWAMP_FLOAT8_E5M2,
       SWAMP_UNSUPPORTED,
       {"tensors[1].dtype", "float8", "float64"}},
      {NULL,
       5,
       SWAMP_FLOAT64,
       SWAMP_INVALID_ARGUMENT,
       {"tensors[1].data", "null", "5"}},
      {bytes + 4,
       1,
       SWAMP_FLOAT64,
       SWAMP_INVALID_ARGUMENT,
       {"tensors[1].data", "misaligned", "8"}},
      {bytes + 1,
       1,
       SWAMP_FLOAT16,
       SWAMP_INVALID_ARGUMENT,
       {"tensors[1].data", "misaligned"}},
      {bytes, all, SWAMP_FLOAT16, SWAMP_INVALID_ARGUMENT, {"tensors[1].count"}},
      {bytes,
       all / 8 + 1,
       SWAMP_FLOAT64,
       SWAMP_INVALID_ARGUMENT,
       {"tensors[1].count"}},
  };
  int failed = 0;
  size_t i;
  float good[] = {1.0f, NAN};
  float found_inf = 0.0f;
  const float half = 0.5f;
  for (i = 0; i < sizeof rows / sizeof *rows && failed == 0; ++i) {
    swamp_tensor list[] = {{good, 2, SWAMP_FLOAT32},
                           {rows[i].data, rows[i].count, SWAMP_FLOAT16}};
    memcpy(&list[1].dtype, &rows[i].dtype, sizeof list[1].dtype);
    CHECK(UNSCALE(NULL, list, 2, &found_inf, &half) == rows[i].status &&
          says_all(rows[i].words));
    CHECK(good[0] == 1.0f && found_inf == 0.0f);
    if (failed != 0) fprintf(stderr, "row %u\n", (unsigned)i);
  }
  return failed;
}

/* Lists longer than memory: refused before the first tensor is read. */
int c_abi_unscale_too_many(void) {
  int failed = 0;
  float data[] = {4.0f};
  const swamp_tensor list[] = {{data, 1, SWAMP_FLOAT32}};
  float found_inf = 0.0f;
  const float half = 0.5f;
  REFUSED(UNSCALE(NULL, list, (size_t)-1, &found_inf, &half),
          SWAMP_INVALID_ARGUMENT, "tensor_count", "expected");
  CHECK(UNSCALE(NULL, list, ((size_t)-1 >> 1) / 24, &found_inf, &half) ==
        SWAMP_OUT_OF_MEMORY);
  CHECK(says("memory") || says("allocate"));
  CHECK(data[0] == 4.0f && found_inf == 0.0f);
  /* The next call is fine. */
  CHECK(UNSCALE(NULL, list, 1, &found_inf, &half) == SWAMP_OK);
  CHECK(data[0] == 2.0f);
  return failed;
}
