/* Checks of the C ABI, written in C99. Each returns how many failed, and says
   which on stderr. */
#ifndef SWAMP_TESTS_API_C_ABI_H_
#define SWAMP_TESTS_API_C_ABI_H_

#ifdef __cplusplus
extern "C" {
#endif

int c_abi_version(void);
int c_abi_machine_create(void);
int c_abi_machine_errors(void);
int c_abi_unscale(void);
int c_abi_unscale_report(void);
int c_abi_unscale_nulls(void);
int c_abi_unscale_bad_tensors(void);
int c_abi_unscale_too_many(void);
int c_abi_update_scale(void);
int c_abi_check_reports(void);
int c_abi_scaler(void);
int c_abi_scaler_errors(void);
int c_abi_cast(void);
int c_abi_step(void);
int c_abi_step_sgd(void);
int c_abi_step_overflow(void);
int c_abi_step_errors(void);
int c_abi_step_second_pass_fails(void);

#ifdef __cplusplus
}
#endif

#endif /* SWAMP_TESTS_API_C_ABI_H_ */
