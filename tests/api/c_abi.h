/* Checks of the C ABI, written in C99. Each returns how many failed, and says
   which on stderr. */
#ifndef SWAMP_TESTS_API_C_ABI_H_
#define SWAMP_TESTS_API_C_ABI_H_

/* Each check: the name of its test, and its function. */
#define SWAMP_C_ABI_CHECKS(ROW)                     \
  ROW(Version, c_abi_version)                       \
  ROW(MachineCreate, c_abi_machine_create)          \
  ROW(MachineErrors, c_abi_machine_errors)          \
  ROW(Unscale, c_abi_unscale)                       \
  ROW(UnscaleReport, c_abi_unscale_report)          \
  ROW(UnscaleNulls, c_abi_unscale_nulls)            \
  ROW(UnscaleBadTensors, c_abi_unscale_bad_tensors) \
  ROW(UnscaleTooMany, c_abi_unscale_too_many)       \
  ROW(UpdateScale, c_abi_update_scale)              \
  ROW(CheckReports, c_abi_check_reports)            \
  ROW(Scaler, c_abi_scaler)                         \
  ROW(ScalerErrors, c_abi_scaler_errors)            \
  ROW(Cast, c_abi_cast)                             \
  ROW(Step, c_abi_step)                             \
  ROW(StepSgd, c_abi_step_sgd)                      \
  ROW(StepOverflow, c_abi_step_overflow)            \
  ROW(StepErrors, c_abi_step_errors)                \
  ROW(StepSecondPassFails, c_abi_step_second_pass_fails)

#ifdef __cplusplus
extern "C" {
#endif

#define SWAMP_DECLARE(name, function) int function(void);
SWAMP_C_ABI_CHECKS(SWAMP_DECLARE)
#undef SWAMP_DECLARE

#ifdef __cplusplus
}
#endif

#endif /* SWAMP_TESTS_API_C_ABI_H_ */
