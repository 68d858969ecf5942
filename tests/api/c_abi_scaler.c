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

  CHECK(swamp_scaler_create("torch.amp.GradScaler",
                            "{\"init_scale\":12.0,\"growth_interval\":2}",
                            &scaler) == SWAMP_OK);
  CHECK(swamp_scaler_scale(scaler, &scale) == SWAMP_OK && scale == 12.0);
  CHECK(swamp_scaler_inv_scale(scaler, &inv_scale) == SWAMP_OK);
  CHECK(inv_scale == (float)(1.0 / 12.0));
  memset(&step, 0x55, sizeof step);
  step.struct_size = sizeof step;
  CHECK(swamp_scaler_update(scaler, 1.0f, &step) == SWAMP_OK);
  CHECK(step.found_inf == 1 && step.skipped == 1 && step.warned == 0);
  CHECK(step.old_scale == 12.0 && step.new_scale == 6.0);
  CHECK(swamp_scaler_update(scaler, 0.0f, NULL) == SWAMP_OK);
  CHECK(swamp_scaler_state_dict(scaler, &json) == SWAMP_OK);
  CHECK(strstr(json, "\"_growth_tracker\":1") != NULL);

  CHECK(swamp_scaler_create("torch.amp.GradScaler", NULL, &other) == SWAMP_OK);
  CHECK(swamp_scaler_load_state_dict(other, json) == SWAMP_OK);
  CHECK(swamp_scaler_update(other, 0.0f, &step) == SWAMP_OK);
  CHECK(step.found_inf == 0 && step.skipped == 0);
  CHECK(step.old_scale == 6.0 && step.new_scale == 12.0);
  swamp_scaler_destroy(other);
  swamp_scaler_destroy(scaler);
  swamp_scaler_destroy(NULL);

  CHECK(swamp_scaler_create("swamp.LossScaler",
                            "{\"init_scale\":1,\"min_scale\":1,"
                            "\"policy\":\"warn\"}",
                            &scaler) == SWAMP_OK);
  CHECK(swamp_scaler_update(scaler, 1.0f, &step) == SWAMP_OK);
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

  REFUSED(swamp_scaler_create(NULL, NULL, &scaler), SWAMP_INVALID_ARGUMENT,
          "name");
  REFUSED(swamp_scaler_create(name, NULL, NULL), SWAMP_INVALID_ARGUMENT, "out");
  REFUSED(swamp_scaler_create("nope", NULL, &scaler), SWAMP_INVALID_ARGUMENT,
          "'nope'", "torch.amp.GradScaler");
  REFUSED(swamp_scaler_create(name, "{", &scaler), SWAMP_INVALID_ARGUMENT,
          "options");
  REFUSED(swamp_scaler_create(name, "{\"hysteresis\":0}", &scaler),
          SWAMP_INVALID_ARGUMENT, "AssertionError", "hysteresis: got 0");
  CHECK(scaler == NULL);

  CHECK(swamp_scaler_create(name, NULL, &scaler) == SWAMP_OK);
  CHECK(swamp_scaler_scale(NULL, &scale) == SWAMP_INVALID_ARGUMENT);
  CHECK(swamp_scaler_scale(scaler, NULL) == SWAMP_INVALID_ARGUMENT);
  CHECK(swamp_scaler_inv_scale(NULL, NULL) == SWAMP_INVALID_ARGUMENT);
  CHECK(swamp_scaler_inv_scale(scaler, NULL) == SWAMP_INVALID_ARGUMENT);
  CHECK(swamp_scaler_state_dict(NULL, &json) == SWAMP_INVALID_ARGUMENT);
  CHECK(swamp_scaler_state_dict(scaler, NULL) == SWAMP_INVALID_ARGUMENT);
  CHECK(swamp_scaler_load_state_dict(NULL, "{}") == SWAMP_INVALID_ARGUMENT);
  CHECK(swamp_scaler_load_state_dict(scaler, NULL) == SWAMP_INVALID_ARGUMENT);
  REFUSED(swamp_scaler_load_state_dict(scaler, "{\"scale\":1}"),
          SWAMP_INVALID_ARGUMENT, "growth_tracker");
  CHECK(swamp_scaler_update(NULL, 0.0f, NULL) == SWAMP_INVALID_ARGUMENT);
  /* Nothing is updated if the report is invalid. */
  step.struct_size = 1;
  REFUSED(swamp_scaler_update(scaler, 1.0f, &step), SWAMP_INVALID_ARGUMENT,
          "struct_size");
  CHECK(swamp_scaler_state_dict(scaler, &json) == SWAMP_OK);
  CHECK(strstr(json, "\"hysteresis_tracker\":2") != NULL);
  swamp_scaler_destroy(scaler);

  CHECK(swamp_scaler_create("deepspeed.DynamicLossScaler",
                            "{\"init_scale\":1,\"delayed_shift\":1}",
                            &scaler) == SWAMP_OK);
  REFUSED(swamp_scaler_update(scaler, 1.0f, NULL), SWAMP_INVALID_ARGUMENT,
          "Current loss scale already at minimum");
  swamp_scaler_destroy(scaler);
  return failed;
}
