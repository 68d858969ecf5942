/* Checks of the C ABI, written in C99. Each prints what failed on stderr and
   returns how many did. */
#ifndef SWAMP_TESTS_API_C_ABI_H_
#define SWAMP_TESTS_API_C_ABI_H_

#include <stdio.h>
#include <string.h>

#include "swamp/c_api.h"

/* Each check: the name of its test, and its function. */
#define SWAMP_C_ABI_CHECKS(ROW)                          \
  ROW(Version, c_abi_version)                            \
  ROW(MachineCreate, c_abi_machine_create)               \
  ROW(MachineErrors, c_abi_machine_errors)               \
  ROW(Unscale, c_abi_unscale)                            \
  ROW(UnscaleErrors, c_abi_unscale_errors)               \
  ROW(UpdateScale, c_abi_update_scale)                   \
  ROW(CheckReports, c_abi_check_reports)                 \
  ROW(Scaler, c_abi_scaler)                              \
  ROW(ScalerErrors, c_abi_scaler_errors)                 \
  ROW(ScaleManager, c_abi_scale_manager)                 \
  ROW(Cast, c_abi_cast)                                  \
  ROW(Step, c_abi_step)                                  \
  ROW(StepSgd, c_abi_step_sgd)                           \
  ROW(StepOverflow, c_abi_step_overflow)                 \
  ROW(StepErrors, c_abi_step_errors)                     \
  ROW(StepSecondPassFails, c_abi_step_second_pass_fails) \
  ROW(Rows, c_abi_rows)                                  \
  ROW(RowsErrors, c_abi_rows_errors)

#ifdef __cplusplus
extern "C" {
#endif

#define SWAMP_DECLARE(name, function) int function(void);
SWAMP_C_ABI_CHECKS(SWAMP_DECLARE)
#undef SWAMP_DECLARE

#ifdef __cplusplus
}
#else

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

/* INVALID() expects an invalid argument; OK() expects success. */
#define INVALID(call, ...) REFUSED(call, SWAMP_INVALID_ARGUMENT, __VA_ARGS__)
#define OK(call) CHECK((call) == SWAMP_OK)

#endif

#endif /* SWAMP_TESTS_API_C_ABI_H_ */
