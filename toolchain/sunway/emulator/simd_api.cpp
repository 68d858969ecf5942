// What simd.h calls for a vector at an address that is no multiple of its size.
#include <string>

#include "toolchain/sunway/emulator/api.h"
#include "toolchain/sunway/emulator/check/report.h"
#include "toolchain/sunway/emulator/world.h"

namespace sunway = swamp::sunway;

extern "C" {

#pragma GCC visibility push(default)

void swamp_simd_misaligned(const volatile void*, int bytes) {
  const sunway::Slave* slave = sunway::self();
  if (slave == nullptr || !sunway::world().check) return;  // slow on the master
  sunway::check::report(
      {"misaligned", SWAMP_SUNWAY_CALLER(), slave,
       "simd_load or simd_store of a vector of " + std::to_string(bytes) +
           " bytes at an address that is no multiple of it: the machine ends "
           "the program; use simd_loadu/simd_storeu, or align the array"});
}

#pragma GCC visibility pop

}  // extern "C"
