#ifndef SWAMP_SUNWAY_EMULATOR_PREDICT_H_
#define SWAMP_SUNWAY_EMULATOR_PREDICT_H_

namespace swamp::sunway {

// say_prediction() says what the program's transfers were and how long they
// would have taken on an SW26010-Pro: SWAMP_PREDICT=1.
void say_prediction();

}  // namespace swamp::sunway

#endif  // SWAMP_SUNWAY_EMULATOR_PREDICT_H_
