#ifndef SWAMP_RUNTIME_SUNWAY_CHECK_RANGES_H_
#define SWAMP_RUNTIME_SUNWAY_CHECK_RANGES_H_

#include <cstddef>
#include <cstdint>

#include "runtime/sunway/transfer.h"

namespace swamp::sunway::check {

// number() is an address to compute with; meet() says whether two ranges of LDM
// share a byte.
inline std::uintptr_t number(const volatile void* address) {
  return reinterpret_cast<std::uintptr_t>(address);
}

inline bool meet(std::uintptr_t begin, std::uintptr_t end,
                 const volatile void* other, std::size_t bytes) {
  return begin < number(other) + bytes && number(other) < end;
}

inline bool meet(const Transfer& a, const Transfer& b) {
  return meet(number(a.ldm), number(a.ldm) + static_cast<std::size_t>(a.length),
              b.ldm, static_cast<std::size_t>(b.length));
}

inline std::size_t bytes_of(const Transfer& t) {
  return static_cast<std::size_t>(t.length);
}

}  // namespace swamp::sunway::check

#endif  // SWAMP_RUNTIME_SUNWAY_CHECK_RANGES_H_
