/* The operators: results, and lists that are errors and change nothing. */
#include <math.h>
#include <string.h>

#include "c_abi.h"
#include "swamp/c_api.h"

#define UNSCALE swamp_amp_foreach_non_finite_check_and_unscale
#define UNSCALE_REPORT swamp_amp_foreach_non_finite_check_and_unscale_report

int c_abi_unscale(void) {
  int failed = 0;
  uint16_t halves[] = {0x3c00, 0xc000, 0x7bff}; /* 1, -2, 65504 */
  uint16_t brains[] = {0x3f80, 0xc000};         /* 1, -2 */
  float floats[] = {1.0f, -3.0f, 1e-30f};
  double doubles[] = {1.0, 1e300};
  const swamp_tensor list[] = {{halves, 3, SWAMP_FLOAT16},
                               {brains, 2, SWAMP_BFLOAT16},
                               {floats, 3, SWAMP_FLOAT32},
                               {doubles, 2, SWAMP_FLOAT64},
                               {NULL, 0, SWAMP_FLOAT64}};
  float found_inf = 0.0f;
  const float inv_scale = 0.5f;
  swamp_machine* machine = NULL;
  swamp_unscale_report report;
  memset(&report, 0xff, sizeof report);
  report.struct_size = (uint32_t)sizeof report;

  OK(UNSCALE_REPORT(NULL, list, 5, &found_inf, &inv_scale, &report));
  CHECK(found_inf == 0.0f);
  CHECK(halves[0] == 0x3800 && halves[1] == 0xbc00 && halves[2] == 0x77ff);
  CHECK(brains[0] == 0x3f00 && brains[1] == 0xbf80);
  CHECK(floats[0] == 0.5f && floats[1] == -1.5f && floats[2] == 0.5e-30f);
  CHECK(doubles[0] == 0.5 && doubles[1] == 0.5e300);
  CHECK(report.struct_size == sizeof report);
  CHECK(report.tensor == 0 && report.index == 0);
  CHECK(report.tensor_count == 0 && report.element_count == 0);

  /* On a machine that is not the default, with inf. */
  OK(swamp_machine_create(NULL, &machine));
  floats[1] = INFINITY;
  floats[2] = NAN;
  OK(UNSCALE_REPORT(machine, list, 5, &found_inf, &inv_scale, &report));
  CHECK(found_inf == 1.0f && report.tensor == 2 && report.index == 1);
  CHECK(report.tensor_count == 1 && report.element_count == 2);
  CHECK(floats[0] == 0.25f && isinf(floats[1]));
  OK(UNSCALE_REPORT(machine, list, 5, &found_inf, &inv_scale, NULL));
  CHECK(floats[0] == 0.125f);
  OK(UNSCALE(machine, list, 5, &found_inf, &inv_scale));
  CHECK(floats[0] == 0.0625f);
  swamp_machine_destroy(machine);

  /* An old report, and the empty list. */
  report.struct_size = 1;
  found_inf = 3.0f;
  INVALID(UNSCALE_REPORT(NULL, list, 5, &found_inf, &inv_scale, &report),
          "struct_size", "1");
  CHECK(floats[0] == 0.0625f && report.element_count == 2);
  OK(UNSCALE(NULL, NULL, 0, &found_inf, &inv_scale));
  CHECK(found_inf == 3.0f);
  return failed;
}

/* Every row is an error that changes nothing, also in the first tensor, which
   is good. The row's tensor is the second. */
int c_abi_unscale_errors(void) {
  enum { kNoList = 1, kNoFoundInf = 2, kNoInvScale = 4 };
  static double memory[2];
  static char* const bytes = (char*)memory;
  const size_t all = (size_t)-1;
  const swamp_status bad = SWAMP_INVALID_ARGUMENT;
  const struct {
    void* data;
    size_t count;
    int dtype;            /* also one that the enum does not have */
    const char* words[4]; /* ends with NULL */
    size_t tensors;
    int nulls;
    swamp_status status;
  } rows[] = {
#define TENSOR(status, data, count, dtype, ...) \
  {data, count, dtype, {__VA_ARGS__}, 2, 0, status}
#define CALL(status, tensors, nulls, ...) \
  { bytes, 1, SWAMP_FLOAT16, {__VA_ARGS__}, tensors, nulls, status }
      TENSOR(bad, bytes, 2, 99, "tensors[1].dtype", "99"),
      TENSOR(bad, NULL, 0, 99, "tensors[1].dtype", "99"),
      TENSOR(bad, NULL, 0, -1, "tensors[1].dtype", "-1"),
      TENSOR(bad, NULL, 0, 1 << 30, "tensors[1].dtype", "1073741824"),
      /* Known, but not accepted by this operator. */
      TENSOR(SWAMP_UNSUPPORTED, bytes, 2, SWAMP_FLOAT8_E4M3FNUZ,
             "tensors[1].dtype", "float8", "float64"),
      TENSOR(bad, NULL, 5, SWAMP_FLOAT64, "tensors[1].data", "null", "5"),
      TENSOR(bad, bytes + 4, 1, SWAMP_FLOAT64, "[1].data", "misaligned", "8"),
      TENSOR(bad, bytes, all / 8 + 1, SWAMP_FLOAT64, "tensors[1].count"),
      /* Never null, not even with an empty list. */
      CALL(bad, 1, kNoFoundInf, "found_inf"),
      CALL(bad, 1, kNoInvScale, "inv_scale"),
      CALL(bad, 1, kNoList, "tensors", "null"),
      CALL(bad, 0, kNoList | kNoFoundInf, "found_inf"),
      CALL(bad, 0, kNoList | kNoInvScale, "inv_scale"),
      /* Longer than memory: an error before the first tensor is read. */
      CALL(bad, all, 0, "tensor_count", "expected"),
      CALL(SWAMP_OUT_OF_MEMORY, (all >> 1) / 24, 0, "allocate"),
#undef TENSOR
#undef CALL
  };
  int failed = 0;
  size_t i;
  float good[] = {1.0f, NAN};
  float found_inf = 0.0f;
  const float half = 0.5f;
  for (i = 0; i < sizeof rows / sizeof *rows && failed == 0; ++i) {
    const int nulls = rows[i].nulls;
    swamp_tensor list[] = {{good, 2, SWAMP_FLOAT32},
                           {rows[i].data, rows[i].count, SWAMP_FLOAT16}};
    memcpy(&list[1].dtype, &rows[i].dtype, sizeof list[1].dtype);
    CHECK(UNSCALE(NULL, nulls & kNoList ? NULL : list, rows[i].tensors,
                  nulls & kNoFoundInf ? NULL : &found_inf,
                  nulls & kNoInvScale ? NULL : &half) == rows[i].status &&
          says_all(rows[i].words));
    CHECK(good[0] == 1.0f && found_inf == 0.0f);
    if (failed != 0) fprintf(stderr, "row %u\n", (unsigned)i);
  }
  { /* The next call succeeds. */
    const swamp_tensor list[] = {{good, 2, SWAMP_FLOAT32}};
    OK(UNSCALE(NULL, list, 1, &found_inf, &half));
    CHECK(good[0] == 0.5f && found_inf == 1.0f);
  }
  return failed;
}

int c_abi_update_scale(void) {
  int failed = 0;
  float scale = 4.0f;
  int32_t tracker = 0;
  float found_inf = 0.0f;
  OK(swamp_amp_update_scale(&scale, &tracker, &found_inf, 2.0, 0.25, 2));
  CHECK(scale == 4.0f && tracker == 1);
  OK(swamp_amp_update_scale(&scale, &tracker, &found_inf, 2.0, 0.25, 2));
  CHECK(scale == 8.0f && tracker == 0);
  found_inf = NAN;
  tracker = 1;
  OK(swamp_amp_update_scale(&scale, &tracker, &found_inf, 2.0, 0.25, 2));
  CHECK(scale == 2.0f && tracker == 0);
  INVALID(swamp_amp_update_scale(NULL, &tracker, &found_inf, 2.0, 0.25, 2),
          "scale");
  INVALID(swamp_amp_update_scale(&scale, NULL, &found_inf, 2.0, 0.25, 2),
          "growth_tracker");
  INVALID(swamp_amp_update_scale(&scale, &tracker, NULL, 2.0, 0.25, 2),
          "found_inf");
  CHECK(scale == 2.0f && tracker == 0);
  /* Nothing else is checked. */
  found_inf = 0.0f;
  OK(swamp_amp_update_scale(&scale, &tracker, &found_inf, -1.0, NAN, -5));
  CHECK(scale == 2.0f && tracker == 1);
  return failed;
}
