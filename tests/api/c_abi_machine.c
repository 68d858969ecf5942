/* Machines, the version, the reports of transfer mode check. */
#include <string.h>

#include "c_abi.h"
#include "c_abi_check.h"
#include "swamp/c_api.h"

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
