/* Lists that are refused: nothing is written. */
#include <math.h>
#include <string.h>

#include "c_abi.h"
#include "c_abi_check.h"
#include "swamp/c_api.h"

int c_abi_unscale_nulls(void) {
  int failed = 0;
  float data[] = {1.0f, INFINITY};
  swamp_tensor list[1];
  float found_inf = 0.0f;
  const float inv_scale = 0.5f;
  list[0].data = data;
  list[0].count = 2;
  list[0].dtype = SWAMP_FLOAT32;
  CHECK(swamp_amp_foreach_non_finite_check_and_unscale(
            NULL, list, 1, NULL, &inv_scale) == SWAMP_INVALID_ARGUMENT);
  CHECK(says("found_inf"));
  CHECK(swamp_amp_foreach_non_finite_check_and_unscale(
            NULL, list, 1, &found_inf, NULL) == SWAMP_INVALID_ARGUMENT);
  CHECK(says("inv_scale"));
  CHECK(swamp_amp_foreach_non_finite_check_and_unscale(
            NULL, NULL, 1, &found_inf, &inv_scale) == SWAMP_INVALID_ARGUMENT);
  CHECK(says("tensors") && says("null"));
  /* Never null, not even with an empty list. */
  CHECK(swamp_amp_foreach_non_finite_check_and_unscale(
            NULL, NULL, 0, NULL, &inv_scale) == SWAMP_INVALID_ARGUMENT);
  CHECK(swamp_amp_foreach_non_finite_check_and_unscale(
            NULL, NULL, 0, &found_inf, NULL) == SWAMP_INVALID_ARGUMENT);
  CHECK(data[0] == 1.0f && found_inf == 0.0f);
  return failed;
}

int c_abi_unscale_bad_tensors(void) {
  int failed = 0, i;
  const int dtypes[] = {99, -1, 6, 1 << 30};
  double memory[2] = {0.0, 0.0};
  float good[] = {1.0f, NAN};
  swamp_tensor list[2];
  swamp_tensor* bad = &list[1];
  float found_inf = 0.0f;
  const float inv_scale = 0.5f;
  list[0].data = good;
  list[0].count = 2;
  list[0].dtype = SWAMP_FLOAT32;
#define REFUSED()                                                          \
  (swamp_amp_foreach_non_finite_check_and_unscale(                         \
       NULL, list, 2, &found_inf, &inv_scale) == SWAMP_INVALID_ARGUMENT && \
   says("tensors[1]") && good[0] == 1.0f && found_inf == 0.0f)

  for (i = 0; i < 4; ++i) {
    char text[32];
    bad->data = memory;
    bad->count = 2;
    memcpy(&bad->dtype, &dtypes[i], sizeof bad->dtype);
    sprintf(text, "%d", dtypes[i]);
    CHECK(REFUSED());
    CHECK(says("dtype") && says(text));
    bad->count = 0; /* also when empty */
    CHECK(REFUSED());
    bad->data = NULL;
    CHECK(REFUSED());
  }
  /* known, but not of this operator */
  for (i = 0; i < 2; ++i) {
    bad->data = memory;
    bad->count = 2;
    bad->dtype = i == 0 ? SWAMP_FLOAT8_E4M3FN : SWAMP_FLOAT8_E5M2;
    CHECK(swamp_amp_foreach_non_finite_check_and_unscale(
              NULL, list, 2, &found_inf, &inv_scale) == SWAMP_UNSUPPORTED);
    CHECK(says("tensors[1].dtype") && says("float8") && says("float64"));
    CHECK(good[0] == 1.0f && found_inf == 0.0f);
  }
  bad->dtype = SWAMP_FLOAT64;
  bad->data = NULL;
  bad->count = 5;
  CHECK(REFUSED());
  CHECK(says("data") && says("null") && says("5"));
  bad->data = (char*)memory + 4;
  bad->count = 1;
  CHECK(REFUSED());
  CHECK(says("misaligned") && says("8"));
  bad->dtype = SWAMP_FLOAT16;
  bad->data = (char*)memory + 1;
  CHECK(REFUSED());
  bad->data = memory;
  bad->count = (size_t)-1;
  CHECK(REFUSED());
  CHECK(says("count"));
  bad->dtype = SWAMP_FLOAT64;
  bad->count = (size_t)-1 / 8 + 1;
  CHECK(REFUSED());
#undef REFUSED
  return failed;
}

/* Lists longer than memory: refused before the first tensor is looked at. */
int c_abi_unscale_too_many(void) {
  int failed = 0;
  float data[] = {4.0f};
  swamp_tensor list[1];
  float found_inf = 0.0f;
  const float inv_scale = 0.5f;
  list[0].data = data;
  list[0].count = 1;
  list[0].dtype = SWAMP_FLOAT32;
  CHECK(swamp_amp_foreach_non_finite_check_and_unscale(
            NULL, list, (size_t)-1, &found_inf, &inv_scale) ==
        SWAMP_INVALID_ARGUMENT);
  CHECK(says("tensor_count") && says("expected"));
  CHECK(swamp_amp_foreach_non_finite_check_and_unscale(
            NULL, list, ((size_t)-1 >> 1) / 24, &found_inf, &inv_scale) ==
        SWAMP_OUT_OF_MEMORY);
  CHECK(says("memory") || says("allocate"));
  CHECK(data[0] == 4.0f && found_inf == 0.0f);
  /* The next call is fine. */
  CHECK(swamp_amp_foreach_non_finite_check_and_unscale(
            NULL, list, 1, &found_inf, &inv_scale) == SWAMP_OK);
  CHECK(data[0] == 2.0f);
  return failed;
}
