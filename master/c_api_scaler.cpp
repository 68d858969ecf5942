// The loss scalers of the C ABI.
#include <string>

#include "master/c_guard.h"
#include "swamp/c_api.h"
#include "swamp/loss_scaler.h"

struct swamp_scaler {
  swamp::LossScaler scaler;
  std::string state_dict;  // the text that swamp_scaler_state_dict() returned
};

using swamp::guarded;
using swamp::require;

swamp_status swamp_scaler_create(const char* name, const char* options,
                                 swamp_scaler** out) {
  return guarded([&] {
    require(name, "name");
    require(out, "out");
    swamp::ScalerOptions by_name;
    if (options != nullptr) by_name = swamp::scaler_options_from_json(options);
    *out = new swamp_scaler{swamp::LossScaler::from_name(name, by_name), ""};
  });
}

void swamp_scaler_destroy(swamp_scaler* scaler) { delete scaler; }

swamp_status swamp_scaler_scale(const swamp_scaler* scaler, double* scale) {
  return guarded([&] {
    require(scaler, "scaler");
    require(scale, "scale");
    *scale = scaler->scaler.scale();
  });
}

swamp_status swamp_scaler_inv_scale(const swamp_scaler* scaler,
                                    float* inv_scale) {
  return guarded([&] {
    require(scaler, "scaler");
    require(inv_scale, "inv_scale");
    *inv_scale = scaler->scaler.inv_scale();
  });
}

swamp_status swamp_scaler_update(swamp_scaler* scaler, float found_inf,
                                 swamp_scaler_step* step) {
  return guarded([&] {
    require(scaler, "scaler");
    if (step != nullptr) {
      swamp::require_struct_size("step", step->struct_size, sizeof *step);
    }
    const swamp::ScalerStep done = scaler->scaler.update(found_inf);
    if (step == nullptr) return;
    step->found_inf = done.found_inf ? 1 : 0;
    step->skipped = done.skipped ? 1 : 0;
    step->warned = done.warning.empty() ? 0 : 1;
    step->old_scale = done.old_scale;
    step->new_scale = done.new_scale;
  });
}

swamp_status swamp_scaler_state_dict(swamp_scaler* scaler, const char** json) {
  return guarded([&] {
    require(scaler, "scaler");
    require(json, "json");
    scaler->state_dict = scaler->scaler.state_dict();
    *json = scaler->state_dict.c_str();
  });
}

swamp_status swamp_scaler_load_state_dict(swamp_scaler* scaler,
                                          const char* json) {
  return guarded([&] {
    require(scaler, "scaler");
    require(json, "json");
    scaler->scaler.load_state_dict(json);
  });
}
