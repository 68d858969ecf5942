/* Loss scalers through the C ABI. */
#include <string.h>

#include "c_abi.h"
#include "swamp/c_api.h"

int c_abi_scaler(void) {
  int failed = 0;
  swamp_scaler* scaler = NULL;
  swamp_scaler* other = NULL;
  swamp_scaler_step step;
  const char* json = NULL;
  double scale = 0.0;
  float inv_scale = 0.0f;

  OK(swamp_scaler_create("torch.amp.GradScaler",
                         "{\"init_scale\":12.0,\"growth_interval\":2}",
                         &scaler));
  CHECK(swamp_scaler_scale(scaler, &scale) == SWAMP_OK && scale == 12.0);
  OK(swamp_scaler_inv_scale(scaler, &inv_scale));
  CHECK(inv_scale == (float)(1.0 / 12.0));
  memset(&step, 0x55, sizeof step);
  step.struct_size = sizeof step;
  OK(swamp_scaler_update(scaler, 1.0f, &step));
  CHECK(step.found_inf == 1 && step.skipped == 1 && step.warned == 0);
  CHECK(step.old_scale == 12.0 && step.new_scale == 6.0);
  OK(swamp_scaler_update(scaler, 0.0f, NULL));
  OK(swamp_scaler_state_dict(scaler, &json));
  CHECK(strstr(json, "\"_growth_tracker\":1") != NULL);

  OK(swamp_scaler_create("torch.amp.GradScaler", NULL, &other));
  OK(swamp_scaler_load_state_dict(other, json));
  OK(swamp_scaler_update(other, 0.0f, &step));
  CHECK(step.found_inf == 0 && step.skipped == 0);
  CHECK(step.old_scale == 6.0 && step.new_scale == 12.0);
  swamp_scaler_destroy(other);
  swamp_scaler_destroy(scaler);
  swamp_scaler_destroy(NULL);

  OK(swamp_scaler_create("swamp.LossScaler",
                         "{\"init_scale\":1,\"min_scale\":1,"
                         "\"policy\":\"warn\"}",
                         &scaler));
  OK(swamp_scaler_update(scaler, 1.0f, &step));
  CHECK(step.warned == 1 && step.new_scale == 1.0);
  swamp_scaler_destroy(scaler);
  return failed;
}

int c_abi_scaler_errors(void) {
  int failed = 0;
  swamp_scaler* scaler = NULL;
  swamp_scaler_step step;
  const char* json = NULL;
  const char* name = "megatron.DynamicGradScaler";
  double scale = 0.0;

  INVALID(swamp_scaler_create(NULL, NULL, &scaler), "name");
  INVALID(swamp_scaler_create(name, NULL, NULL), "out");
  INVALID(swamp_scaler_create("nope", NULL, &scaler), "'nope'",
          "torch.amp.GradScaler");
  INVALID(swamp_scaler_create(name, "{", &scaler), "options");
  INVALID(swamp_scaler_create(name, "{\"hysteresis\":0}", &scaler),
          "AssertionError", "hysteresis: got 0");
  CHECK(scaler == NULL);

  OK(swamp_scaler_create(name, NULL, &scaler));
  INVALID(swamp_scaler_scale(NULL, &scale), "");
  INVALID(swamp_scaler_scale(scaler, NULL), "");
  INVALID(swamp_scaler_inv_scale(NULL, NULL), "");
  INVALID(swamp_scaler_inv_scale(scaler, NULL), "");
  INVALID(swamp_scaler_state_dict(NULL, &json), "");
  INVALID(swamp_scaler_state_dict(scaler, NULL), "");
  INVALID(swamp_scaler_load_state_dict(NULL, "{}"), "");
  INVALID(swamp_scaler_load_state_dict(scaler, NULL), "");
  INVALID(swamp_scaler_load_state_dict(scaler, "{\"scale\":1}"),
          "growth_tracker");
  INVALID(swamp_scaler_update(NULL, 0.0f, NULL), "");
  /* Nothing is updated if the report is invalid. */
  step.struct_size = 1;
  INVALID(swamp_scaler_update(scaler, 1.0f, &step), "struct_size");
  OK(swamp_scaler_state_dict(scaler, &json));
  CHECK(strstr(json, "\"hysteresis_tracker\":2") != NULL);
  swamp_scaler_destroy(scaler);

  OK(swamp_scaler_create("deepspeed.DynamicLossScaler",
                         "{\"init_scale\":1,\"delayed_shift\":1}", &scaler));
  INVALID(swamp_scaler_update(scaler, 1.0f, NULL),
          "Current loss scale already at minimum");
  swamp_scaler_destroy(scaler);
  return failed;
}
