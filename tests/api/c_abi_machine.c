/* Machines, the version, the reports of transfer mode check. */
#include <string.h>

#include "c_abi.h"
#include "c_abi_released.h"
#include "swamp/c_api.h"

/* Called by the sanitizers: an allocation that is too large returns NULL, as
   without a sanitizer. */
#define SWAMP_TEST_OPTIONS(name)                                  \
  const char* name(void);                                         \
  __attribute__((visibility("default"))) const char* name(void) { \
    return "allocator_may_return_null=1";                         \
  }
SWAMP_TEST_OPTIONS(__asan_default_options)
SWAMP_TEST_OPTIONS(__tsan_default_options)

static swamp_config empty_config(void) {
  swamp_config config;
  memset(&config, 0, sizeof config);
  config.struct_size = (uint32_t)sizeof config;
  return config;
}

int c_abi_version(void) {
  int failed = 0, major = -1, minor = -1, patch = -1;
  char rest = 0;
  released_functions();
  CHECK(sscanf(swamp_version(), "%d.%d.%d%c", &major, &minor, &patch, &rest) ==
        3);
  CHECK(major == SWAMP_VERSION_MAJOR && minor == SWAMP_VERSION_MINOR &&
        patch == SWAMP_VERSION_PATCH);
#if SWAMP_VERSION < SWAMP_MAKE_VERSION(0, 2, 0) || \
    SWAMP_VERSION >= SWAMP_MAKE_VERSION(1000, 0, 0)
#error "SWAMP_VERSION is not a version"
#endif
  return failed;
}

int c_abi_machine_create(void) {
  int failed = 0;
  swamp_machine* machine = NULL;
  swamp_config config = empty_config();
  OK(swamp_machine_create(NULL, &machine));
  CHECK(machine != NULL);
  swamp_machine_destroy(machine);
  swamp_machine_destroy(NULL);

  machine = NULL;
  OK(swamp_machine_create(&config, &machine));
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
  OK(swamp_machine_create(&config, &machine));
  swamp_machine_destroy(machine);
  return failed;
}

/* Every row is an error, and *out does not change. */
int c_abi_machine_errors(void) {
#define SIZED .struct_size = sizeof(swamp_config)
#define BAD(field, value, ...)                                       \
  {                                                                  \
    {SIZED, .field = value}, SWAMP_INVALID_ARGUMENT, { __VA_ARGS__ } \
  }
  static const struct {
    swamp_config config;
    swamp_status status;
    const char* words[5]; /* ends with NULL */
  } rows[] = {
      {{.struct_size = 0}, SWAMP_INVALID_ARGUMENT, {"struct_size", "0"}},
      {{.struct_size = 4}, SWAMP_INVALID_ARGUMENT, {"struct_size", "4"}},
      {{.struct_size = sizeof(swamp_config) + 8},
       SWAMP_INVALID_ARGUMENT,
       {"struct_size"}},
      {{SIZED, .backend = "athread"},
       SWAMP_UNSUPPORTED,
       {"athread", "serial", "threads"}},
      BAD(machine, "cray", "machine", "cray", "host", "sw26010pro"),
      BAD(backend, "omp", "backend", "\"omp\"", "serial", "threads"),
      BAD(transfer, "VIEW", "transfer", "view", "copy", "check"),
      BAD(isa, "mmx", "isa", "mmx", "scalar"),
      BAD(bind, "socket", "bind", "none", "core"),
      BAD(core_groups, 4097, "core_groups", "4097", "4096"),
      BAD(slaves_per_group, 0xffffffffu, "slaves_per_group", "4294967295"),
      {{SIZED, .core_groups = 4096, .slaves_per_group = 4096},
       SWAMP_INVALID_ARGUMENT,
       {"4096 * 4096", "at most 65536"}},
      BAD(ldm_bytes, 1023, "ldm_bytes", "1023", "1024"),
      BAD(ldm_bytes, ((size_t)1 << 30) + 1, "ldm_bytes"),
      BAD(ldm_bytes, (size_t)-1, "ldm_bytes"),
  };
#undef BAD
#undef SIZED
  int failed = 0;
  size_t i;
  swamp_config config = empty_config();
  swamp_machine* const before = (swamp_machine*)&config;
  INVALID(swamp_machine_create(&config, NULL), "out", "null");
  for (i = 0; i < sizeof rows / sizeof *rows; ++i) {
    swamp_machine* machine = before;
    CHECK(swamp_machine_create(&rows[i].config, &machine) == rows[i].status &&
          says_all(rows[i].words) && machine == before);
    if (failed != 0) {
      fprintf(stderr, "row %u\n", (unsigned)i);
      return failed;
    }
  }
  return failed;
}

static void count_reports(void* user, const char* text) {
  (void)text;
  ++*(int*)user;
}

/* The checking emulation reports nothing for swamp's own operators. */
int c_abi_check_reports(void) {
  int failed = 0, called = 0;
  static uint16_t data[3001];
  swamp_tensor tensor;
  swamp_machine* machine = NULL;
  swamp_config config = empty_config();
  float found_inf = 0.0f;
  const float inv_scale = 0.5f;
  double norm = 1;
  size_t before;
  tensor.data = data + 1;
  tensor.count = 2999;
  tensor.dtype = SWAMP_BFLOAT16;
  config.transfer = "check";
  before = swamp_check_report_count();
  swamp_check_set_callback(&count_reports, &called);
  OK(swamp_machine_create(&config, &machine));
  OK(swamp_foreach_norm(machine, &tensor, 1, &inv_scale, &found_inf, &norm));
  CHECK(found_inf == 0.0f && norm == 0);
  CHECK(called == 0 && swamp_check_report_count() == before);
  swamp_machine_destroy(machine);
  swamp_check_set_callback(NULL, NULL);
  return failed;
}
