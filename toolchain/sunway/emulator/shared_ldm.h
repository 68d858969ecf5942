#ifndef SWAMP_SUNWAY_EMULATOR_SHARED_LDM_H_
#define SWAMP_SUNWAY_EMULATOR_SHARED_LDM_H_

#include <cstddef>

namespace swamp::sunway {

// shared_ldm_bytes() is what the program's __thread_local_share variables take
// of each slave's LDM: the machine gives 4, 8, 16... 128 KiB of every one.
std::size_t shared_ldm_bytes();

}  // namespace swamp::sunway

#endif  // SWAMP_SUNWAY_EMULATOR_SHARED_LDM_H_
