/* Loss scalers and scale managers through the C ABI. */
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

int c_abi_scale_manager(void) {
  int failed = 0;
  swamp_scale_manager* manager = NULL;
  swamp_block_scale block;
  const char* name = "te.DelayedScaling";
  const char* json = NULL;
  const float amax[2] = {2.0f, -1.0f};
  float seen[2] = {0, 0};
  float scale = 0, scale_inv = 0;

  INVALID(swamp_scale_manager_create(NULL, 1, 1, NULL, &manager), "name");
  INVALID(swamp_scale_manager_create(name, 1, 1, NULL, NULL), "out");
  INVALID(swamp_scale_manager_create("nope", 1, 1, NULL, &manager), "'nope'",
          "torchao.mx");
  INVALID(swamp_scale_manager_create(name, 1, 1, "{\"margin\":[]}", &manager),
          "margin: got []");
  CHECK(manager == NULL);

  OK(swamp_scale_manager_create(name, 1, 1, "{\"amax_history_len\":2}",
                                &manager));
  INVALID(swamp_scale_manager_observe_all(manager, amax, 1), "count: got 1");
  INVALID(swamp_scale_manager_observe_all(manager, NULL, 2), "amax");
  INVALID(swamp_scale_manager_observe(manager, 2, 1.0f), "index: got 2");
  INVALID(swamp_scale_manager_observe(manager, 1, -2.0f), "amax: got -2");
  OK(swamp_scale_manager_observe_all(manager, amax, 2));
  INVALID(swamp_scale_manager_amax(manager, seen, 3), "count: got 3");
  INVALID(swamp_scale_manager_amax(manager, NULL, 2), "amax");
  OK(swamp_scale_manager_amax(manager, seen, 2));
  CHECK(seen[0] == 2.0f && seen[1] == -1.0f);
  OK(swamp_scale_manager_observe(manager, 1, 7.0f));
  OK(swamp_scale_manager_update(manager));
  OK(swamp_scale_manager_scale(manager, 0, &scale, &scale_inv));
  CHECK(scale == 224.0f && scale_inv == 1.0f / 224.0f);
  OK(swamp_scale_manager_scale(manager, 1, &scale, NULL));
  CHECK(scale == 8192.0f);
  INVALID(swamp_scale_manager_scale(manager, 2, &scale, NULL), "index");
  CHECK(scale == 8192.0f);
  OK(swamp_scale_manager_state_dict(manager, &json));
  CHECK(strstr(json, "\"amax_history_fwd\":[[0.0],[2.0]]") != NULL);
  OK(swamp_scale_manager_load_state_dict(manager, json));
  INVALID(swamp_scale_manager_load_state_dict(manager, "{}"), "scale_fwd");
  memset(&block, 0x55, sizeof block);
  block.struct_size = sizeof block;
  REFUSED(swamp_scale_manager_block_scale(manager, 0, 1.0f, &block),
          SWAMP_UNSUPPORTED, "block_scale");
  CHECK(block.code == 0x55);
  INVALID(swamp_scale_manager_observe_all(NULL, amax, 2), "manager");
  INVALID(swamp_scale_manager_observe(NULL, 0, 1.0f), "manager");
  INVALID(swamp_scale_manager_amax(NULL, seen, 2), "manager");
  INVALID(swamp_scale_manager_update(NULL), "manager");
  INVALID(swamp_scale_manager_scale(NULL, 0, &scale, NULL), "manager");
  INVALID(swamp_scale_manager_block_scale(NULL, 0, 1.0f, &block), "manager");
  INVALID(swamp_scale_manager_state_dict(NULL, &json), "manager");
  INVALID(swamp_scale_manager_state_dict(manager, NULL), "json");
  INVALID(swamp_scale_manager_load_state_dict(NULL, "{}"), "manager");
  INVALID(swamp_scale_manager_load_state_dict(manager, NULL), "json");
  swamp_scale_manager_destroy(manager);
  swamp_scale_manager_destroy(NULL);

  OK(swamp_scale_manager_create("torchao.mx", 1, 0, NULL, &manager));
  OK(swamp_scale_manager_block_scale(manager, 0, 512.0f, &block));
  CHECK(block.code == 128 && block.scale == 0.5f && block.scale_inv == 2.0f);
  block.struct_size = 1;
  INVALID(swamp_scale_manager_block_scale(manager, 0, 1.0f, &block),
          "struct_size");
  INVALID(swamp_scale_manager_block_scale(manager, 0, 1.0f, NULL), "scale");
  swamp_scale_manager_destroy(manager);
  return failed;
}
