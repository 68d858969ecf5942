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

/* says() returns whether the last error's text contains a word, says_all()
   whether it contains every word of a list that ends with NULL. */
static inline int says(const char* word) {
  return strstr(swamp_last_error(), word) != NULL;
}

static inline int says_all(const char* const* words) {
  while (*words != NULL && says(*words)) ++words;
  return *words == NULL;
}

/* REFUSED(call, status, words...) expects this status, and all the words in the
   last error's text. */
#define REFUSED(call, status, ...) \
  CHECK((call) == (status) &&      \
        says_all((const char* const[]){__VA_ARGS__, NULL}))

#endif /* SWAMP_TESTS_API_C_ABI_CHECK_H_ */
