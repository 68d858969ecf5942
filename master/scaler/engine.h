// What is in a LossScaler.
#ifndef SWAMP_MASTER_SCALER_ENGINE_H_
#define SWAMP_MASTER_SCALER_ENGINE_H_

#include "master/scaler/preset.h"
#include "swamp/loss_scaler.h"

namespace swamp {

struct LossScaler::Impl {
  const scaler::Preset& preset;
  scaler::Scaler scaler;
};

namespace scaler {

// update() is LossScaler::update() of any state.
ScalerStep update(const Preset& preset, Scaler& scaler, float found_inf);

// setting() is the option of that name that may be changed later: one that
// the original's load_state_dict() overwrites. Null: there is none.
Member setting(const Preset& preset, const std::string& name);

}  // namespace scaler
}  // namespace swamp

#endif  // SWAMP_MASTER_SCALER_ENGINE_H_
