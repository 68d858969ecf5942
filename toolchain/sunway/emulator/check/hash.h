#ifndef SWAMP_SUNWAY_EMULATOR_CHECK_HASH_H_
#define SWAMP_SUNWAY_EMULATOR_CHECK_HASH_H_

#include <cstddef>
#include <cstdint>

namespace swamp::sunway::check {

// hash() is FNV-1a.
inline std::uint64_t hash(const std::byte* data, std::size_t bytes) noexcept {
  std::uint64_t sum = 0xcbf29ce484222325u;
  for (std::size_t i = 0; i < bytes; ++i) {
    sum = (sum ^ static_cast<std::uint64_t>(data[i])) * 0x100000001b3u;
  }
  return sum;
}

}  // namespace swamp::sunway::check

#endif  // SWAMP_SUNWAY_EMULATOR_CHECK_HASH_H_
