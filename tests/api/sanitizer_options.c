/* An allocation that is too large returns NULL, as without a sanitizer. */
/* Defined, because a sanitizer asks for a function of that name. */
#define SWAMP_TEST_OPTIONS(name)                                  \
  const char* name(void);                                         \
  __attribute__((visibility("default"))) const char* name(void) { \
    return "allocator_may_return_null=1";                         \
  }
SWAMP_TEST_OPTIONS(__asan_default_options)
SWAMP_TEST_OPTIONS(__tsan_default_options)
