/* What the checks of the C ABI share. */
#ifndef SWAMP_TESTS_API_C_ABI_CHECK_H_
#define SWAMP_TESTS_API_C_ABI_CHECK_H_

#include <stdio.h>
#include <string.h>

#include "swamp/c_api.h"

/* CHECK() counts in the local variable `failed`. */
#define CHECK(condition)                                                     \
  ((condition)                                                               \
       ? 0                                                                   \
       : (++failed, fprintf(stderr, "%s:%d: %s; last error: %s\n", __FILE__, \
                            __LINE__, #condition, swamp_last_error())))

/* says() looks for a word in the last error's text. */
static inline int says(const char* word) {
  return strstr(swamp_last_error(), word) != NULL;
}

#endif /* SWAMP_TESTS_API_C_ABI_CHECK_H_ */
