// The slave's identity as the program's headers declare it.
#ifndef SWAMP_SUNWAY_EMULATOR_IDS_H_
#define SWAMP_SUNWAY_EMULATOR_IDS_H_

#include "toolchain/sunway/emulator/api.h"

extern "C" {
SWAMP_SUNWAY_API extern __thread char _PEN;
SWAMP_SUNWAY_API extern __thread char _ROW;
SWAMP_SUNWAY_API extern __thread char _COL;
SWAMP_SUNWAY_API extern __thread char _CGN;
SWAMP_SUNWAY_API extern __thread int _MYID;
SWAMP_SUNWAY_API extern __thread int _cache_size;
SWAMP_SUNWAY_API extern __thread int _ldm_share_mode;
SWAMP_SUNWAY_API extern __thread int _ldm_share_size;
}

namespace swamp::sunway {
inline constexpr int kRowLength = 8;
}

#endif  // SWAMP_SUNWAY_EMULATOR_IDS_H_
