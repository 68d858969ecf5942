// Declarations of what programs linked by swcc see.
#ifndef SWAMP_SUNWAY_EMULATOR_API_H_
#define SWAMP_SUNWAY_EMULATOR_API_H_

#define SWAMP_SUNWAY_API __attribute__((visibility("default")))
// Where in the program's sources the calling function was called.
#define SWAMP_SUNWAY_CALLER() __builtin_return_address(0)

// The slave's identity as the program's headers declare it.

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

#endif  // SWAMP_SUNWAY_EMULATOR_API_H_
