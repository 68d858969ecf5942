#include "toolchain/sunway/emulator/shared_ldm.h"

#include <string>

#include "toolchain/sunway/emulator/output.h"
#include "toolchain/sunway/emulator/settings.h"

// In the programs with such variables: where they begin and end.
extern "C" const char* const swamp_shared_ldm_bounds[2] __attribute__((weak));

namespace swamp::sunway {

std::size_t shared_ldm_bytes() {
  constexpr std::size_t kLeast = 4096;
  constexpr std::size_t kMost = 128 * 1024;
  // A volatile pointer: the compiler takes it that an array has an address.
  const char* const* volatile bounds = swamp_shared_ldm_bounds;
  if (bounds == nullptr) return 0;
  const auto bytes = static_cast<std::size_t>(bounds[1] - bounds[0]);
  const auto slaves = static_cast<std::size_t>(settings().slaves_per_group);
  if (bytes == 0) return 0;
  std::size_t each = kLeast;
  while (each * slaves < bytes && each < kMost) each *= 2;
  if (each * slaves < bytes) {
    fail(1, "shared LDM variables (__thread_local_share) take " +
                std::to_string(bytes) + " bytes; " + std::to_string(slaves) +
                " slaves can share " + std::to_string(kMost * slaves));
  }
  return each;
}

}  // namespace swamp::sunway
