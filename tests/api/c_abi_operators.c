/* The operators: results, and lists that are errors and change nothing. */
#include <math.h>
#include <string.h>

#include "c_abi.h"
#include "swamp/c_api.h"

int c_abi_unscale(void) {
  int failed = 0;
  uint16_t halves[] = {0x3c00, 0xc000, 0x7bff}; /* 1, -2, 65504 */
  uint16_t brains[] = {0x3f80, 0xc000};         /* 1, -2 */
  float floats[] = {1.0f, -3.0f, 1e-30f};
  double doubles[] = {1.0, 1e300};
  swamp_tensor list[5];
  float found_inf = 0.0f;
  float inv_scale = 0.5f;
  swamp_machine* machine = NULL;
  memset(list, 0, sizeof list);
  list[0].data = halves;
  list[0].count = 3;
  list[0].dtype = SWAMP_FLOAT16;
  list[1].data = brains;
  list[1].count = 2;
  list[1].dtype = SWAMP_BFLOAT16;
  list[2].data = floats;
  list[2].count = 3;
  list[2].dtype = SWAMP_FLOAT32;
  list[3].data = doubles;
  list[3].count = 2;
  list[3].dtype = SWAMP_FLOAT64;
  list[4].dtype = SWAMP_FLOAT64; /* empty */

  CHECK(swamp_amp_foreach_non_finite_check_and_unscale(
            NULL, list, 5, &found_inf, &inv_scale) == SWAMP_OK);
  CHECK(found_inf == 0.0f);
  CHECK(halves[0] == 0x3800 && halves[1] == 0xbc00 && halves[2] == 0x77ff);
  CHECK(brains[0] == 0x3f00 && brains[1] == 0xbf80);
  CHECK(floats[0] == 0.5f && floats[1] == -1.5f && floats[2] == 0.5e-30f);
  CHECK(doubles[0] == 0.5 && doubles[1] == 0.5e300);

  /* On a machine that is not the default, with inf. */
  CHECK(swamp_machine_create(NULL, &machine) == SWAMP_OK);
  floats[1] = INFINITY;
  CHECK(swamp_amp_foreach_non_finite_check_and_unscale(
            machine, list, 5, &found_inf, &inv_scale) == SWAMP_OK);
  CHECK(found_inf == 1.0f);
  CHECK(floats[0] == 0.25f && isinf(floats[1]));
  swamp_machine_destroy(machine);

  /* The empty list. */
  found_inf = 3.0f;
  CHECK(swamp_amp_foreach_non_finite_check_and_unscale(
            NULL, NULL, 0, &found_inf, &inv_scale) == SWAMP_OK);
  CHECK(found_inf == 3.0f);
  return failed;
}

int c_abi_unscale_report(void) {
  int failed = 0;
  float first[] = {1.0f, 2.0f};
  float second[] = {1.0f, NAN, -INFINITY};
  swamp_tensor list[2];
  swamp_unscale_report report;
  float found_inf = 0.0f;
  const float inv_scale = 2.0f;
  memset(list, 0, sizeof list);
  list[0].data = first;
  list[0].count = 2;
  list[1].data = second;
  list[1].count = 3;
  list[0].dtype = list[1].dtype = SWAMP_FLOAT32;

  memset(&report, 0xff, sizeof report);
  report.struct_size = (uint32_t)sizeof report;
  CHECK(swamp_amp_foreach_non_finite_check_and_unscale_report(
            NULL, list, 1, &found_inf, &inv_scale, &report) == SWAMP_OK);
  CHECK(report.struct_size == sizeof report);
  CHECK(report.tensor == 0 && report.index == 0);
  CHECK(report.tensor_count == 0 && report.element_count == 0);

  CHECK(swamp_amp_foreach_non_finite_check_and_unscale_report(
            NULL, list, 2, &found_inf, &inv_scale, &report) == SWAMP_OK);
  CHECK(found_inf == 1.0f);
  CHECK(report.tensor == 1 && report.index == 1);
  CHECK(report.tensor_count == 1 && report.element_count == 2);
  CHECK(first[0] == 4.0f);

  CHECK(swamp_amp_foreach_non_finite_check_and_unscale_report(
            NULL, list, 2, &found_inf, &inv_scale, NULL) == SWAMP_OK);
  CHECK(first[0] == 8.0f);

  report.struct_size = 1;
  found_inf = 0.0f;
  REFUSED(swamp_amp_foreach_non_finite_check_and_unscale_report(
              NULL, list, 2, &found_inf, &inv_scale, &report),
          SWAMP_INVALID_ARGUMENT, "struct_size", "1");
  CHECK(first[0] == 8.0f && found_inf == 0.0f && report.element_count == 2);
  return failed;
}

int c_abi_update_scale(void) {
  int failed = 0;
  float scale = 4.0f;
  int32_t tracker = 0;
  float found_inf = 0.0f;
  CHECK(swamp_amp_update_scale(&scale, &tracker, &found_inf, 2.0, 0.25, 2) ==
        SWAMP_OK);
  CHECK(scale == 4.0f && tracker == 1);
  CHECK(swamp_amp_update_scale(&scale, &tracker, &found_inf, 2.0, 0.25, 2) ==
        SWAMP_OK);
  CHECK(scale == 8.0f && tracker == 0);
  found_inf = NAN;
  tracker = 1;
  CHECK(swamp_amp_update_scale(&scale, &tracker, &found_inf, 2.0, 0.25, 2) ==
        SWAMP_OK);
  CHECK(scale == 2.0f && tracker == 0);
  REFUSED(swamp_amp_update_scale(NULL, &tracker, &found_inf, 2.0, 0.25, 2),
          SWAMP_INVALID_ARGUMENT, "scale");
  REFUSED(swamp_amp_update_scale(&scale, NULL, &found_inf, 2.0, 0.25, 2),
          SWAMP_INVALID_ARGUMENT, "growth_tracker");
  REFUSED(swamp_amp_update_scale(&scale, &tracker, NULL, 2.0, 0.25, 2),
          SWAMP_INVALID_ARGUMENT, "found_inf");
  CHECK(scale == 2.0f && tracker == 0);
  /* Nothing else is checked. */
  found_inf = 0.0f;
  CHECK(swamp_amp_update_scale(&scale, &tracker, &found_inf, -1.0, NAN, -5) ==
        SWAMP_OK);
  CHECK(scale == 2.0f && tracker == 1);
  return failed;
}

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
      /* Known, but not accepted by this operator. */
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

/* Lists longer than memory are errors before the first tensor is read. */
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
  /* The next call succeeds. */
  CHECK(UNSCALE(NULL, list, 1, &found_inf, &half) == SWAMP_OK);
  CHECK(data[0] == 2.0f);
  return failed;
}
