#include "c_abi.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "swamp/c_api.h"

#define CHECK(condition)                                                     \
  ((condition)                                                               \
       ? 0                                                                   \
       : (++failed, fprintf(stderr, "%s:%d: %s; last error: %s\n", __FILE__, \
                            __LINE__, #condition, swamp_last_error())))

static int says(const char* word) {
  return strstr(swamp_last_error(), word) != NULL;
}

static swamp_config empty_config(void) {
  swamp_config config;
  memset(&config, 0, sizeof config);
  config.struct_size = (uint32_t)sizeof config;
  return config;
}

int c_abi_version(void) {
  int failed = 0, major = -1, minor = -1, patch = -1;
  char rest = 0;
  CHECK(sscanf(swamp_version(), "%d.%d.%d%c", &major, &minor, &patch, &rest) ==
        3);
  CHECK(major >= 0 && minor >= 0 && patch >= 0);
  return failed;
}

int c_abi_machine_create(void) {
  int failed = 0;
  swamp_machine* machine = NULL;
  swamp_config config = empty_config();
  CHECK(swamp_machine_create(NULL, &machine) == SWAMP_OK);
  CHECK(machine != NULL);
  swamp_machine_destroy(machine);
  swamp_machine_destroy(NULL);

  machine = NULL;
  CHECK(swamp_machine_create(&config, &machine) == SWAMP_OK);
  swamp_machine_destroy(machine);

  config.machine = "sw26010pro";
  config.backend = "serial";
  config.transfer = "copy";
  config.core_groups = 2;
  config.slaves_per_group = 3;
  config.ldm_bytes = 8192;
  config.isa = "scalar";
  config.bind = "none";
  machine = NULL;
  CHECK(swamp_machine_create(&config, &machine) == SWAMP_OK);
  swamp_machine_destroy(machine);
  return failed;
}

/* fails() expects that `config` is refused and that *out stays as it was. */
static int fails(const swamp_config* config, swamp_status status) {
  swamp_machine* const before = (swamp_machine*)&status;
  swamp_machine* machine = before;
  return swamp_machine_create(config, &machine) == status && machine == before;
}

int c_abi_machine_errors(void) {
  int failed = 0;
  swamp_config config = empty_config();
  CHECK(swamp_machine_create(&config, NULL) == SWAMP_INVALID_ARGUMENT);
  CHECK(says("out") && says("null"));

  config.struct_size = 0;
  CHECK(fails(&config, SWAMP_INVALID_ARGUMENT));
  CHECK(says("struct_size") && says("0"));
  config.struct_size = (uint32_t)sizeof config + 8;
  CHECK(fails(&config, SWAMP_INVALID_ARGUMENT));
  config.struct_size = 4;
  CHECK(fails(&config, SWAMP_INVALID_ARGUMENT));

  config = empty_config();
  config.machine = "cray";
  CHECK(fails(&config, SWAMP_INVALID_ARGUMENT));
  CHECK(says("machine") && says("cray") && says("host") && says("sw26010pro"));
  config = empty_config();
  config.backend = "omp";
  CHECK(fails(&config, SWAMP_INVALID_ARGUMENT));
  CHECK(says("backend") && says("\"omp\"") && says("serial") &&
        says("threads"));
  config.backend = "athread";
  CHECK(fails(&config, SWAMP_UNSUPPORTED));
  CHECK(says("athread") && says("serial") && says("threads"));
  config = empty_config();
  config.transfer = "VIEW";
  CHECK(fails(&config, SWAMP_INVALID_ARGUMENT));
  CHECK(says("transfer") && says("view") && says("copy") && says("check"));
  config = empty_config();
  config.isa = "mmx";
  CHECK(fails(&config, SWAMP_INVALID_ARGUMENT));
  CHECK(says("isa") && says("mmx") && says("scalar"));
  config = empty_config();
  config.bind = "socket";
  CHECK(fails(&config, SWAMP_INVALID_ARGUMENT));
  CHECK(says("bind") && says("none") && says("core"));
  config = empty_config();
  config.core_groups = 4097;
  CHECK(fails(&config, SWAMP_INVALID_ARGUMENT));
  CHECK(says("core_groups") && says("4097") && says("4096"));
  config = empty_config();
  config.slaves_per_group = 0xffffffffu;
  CHECK(fails(&config, SWAMP_INVALID_ARGUMENT));
  CHECK(says("slaves_per_group") && says("4294967295"));
  config = empty_config();
  config.core_groups = 4096;
  config.slaves_per_group = 4096;
  CHECK(fails(&config, SWAMP_INVALID_ARGUMENT));
  CHECK(says("4096"));
  config = empty_config();
  config.ldm_bytes = 1023;
  CHECK(fails(&config, SWAMP_INVALID_ARGUMENT));
  CHECK(says("ldm_bytes") && says("1023") && says("1024"));
  config.ldm_bytes = ((size_t)1 << 30) + 1;
  CHECK(fails(&config, SWAMP_INVALID_ARGUMENT));
  config.ldm_bytes = (size_t)-1;
  CHECK(fails(&config, SWAMP_INVALID_ARGUMENT));
  return failed;
}

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

  /* On a machine of one's own, with inf. */
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
  CHECK(swamp_amp_foreach_non_finite_check_and_unscale_report(
            NULL, list, 2, &found_inf, &inv_scale, &report) ==
        SWAMP_INVALID_ARGUMENT);
  CHECK(says("struct_size") && says("1"));
  CHECK(first[0] == 8.0f && found_inf == 0.0f && report.element_count == 2);
  return failed;
}

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
  const int dtypes[] = {99, -1, 4, 1 << 30};
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
  CHECK(swamp_amp_update_scale(NULL, &tracker, &found_inf, 2.0, 0.25, 2) ==
        SWAMP_INVALID_ARGUMENT);
  CHECK(says("scale"));
  CHECK(swamp_amp_update_scale(&scale, NULL, &found_inf, 2.0, 0.25, 2) ==
        SWAMP_INVALID_ARGUMENT);
  CHECK(says("growth_tracker"));
  CHECK(swamp_amp_update_scale(&scale, &tracker, NULL, 2.0, 0.25, 2) ==
        SWAMP_INVALID_ARGUMENT);
  CHECK(says("found_inf"));
  CHECK(scale == 2.0f && tracker == 0);
  /* Nothing else is checked. */
  found_inf = 0.0f;
  CHECK(swamp_amp_update_scale(&scale, &tracker, &found_inf, -1.0, NAN, -5) ==
        SWAMP_OK);
  CHECK(scale == 2.0f && tracker == 1);
  return failed;
}

static void count_reports(void* user, const char* text) {
  (void)text;
  ++*(int*)user;
}

/* swamp's own operators give the checking emulation nothing to report. */
int c_abi_check_reports(void) {
  int failed = 0, called = 0;
  static uint16_t data[3001];
  swamp_tensor tensor;
  swamp_machine* machine = NULL;
  swamp_config config = empty_config();
  float found_inf = 0.0f;
  const float inv_scale = 0.5f;
  size_t before;
  tensor.data = data + 1;
  tensor.count = 2999;
  tensor.dtype = SWAMP_BFLOAT16;
  config.transfer = "check";
  before = swamp_check_report_count();
  swamp_check_set_callback(&count_reports, &called);
  CHECK(swamp_machine_create(&config, &machine) == SWAMP_OK);
  CHECK(swamp_amp_foreach_non_finite_check_and_unscale(
            machine, &tensor, 1, &found_inf, &inv_scale) == SWAMP_OK);
  CHECK(found_inf == 0.0f);
  CHECK(called == 0 && swamp_check_report_count() == before);
  swamp_machine_destroy(machine);
  swamp_check_set_callback(NULL, NULL);
  return failed;
}
