// The cast kernels: an in stream, converted into an out stream of another
// dtype, and the accumulate kernels, which add it to an inout stream of
// float32.
#ifndef SWAMP_SLAVE_CAST_H_
#define SWAMP_SLAVE_CAST_H_

#include <cstdint>

namespace swamp::slave {

// out = cast(in / divisor). The quotient is rounded to in's dtype before it is
// cast, as FSDP divides in place and then casts.
struct CastArgs {
  float divisor;                  // 1: only the cast
  std::uint32_t prefetch_bytes;   // how far ahead to prefetch; 0: not at all
  std::uint32_t past_caches = 0;  // 1: the out stream is stored past the caches
};

// sum = (sum + widened in) / divisor, both in float32.
struct AccumulateArgs {
  float divisor;                 // 1: only the sum
  std::uint32_t prefetch_bytes;  // how far ahead to prefetch; 0: not at all
};

}  // namespace swamp::slave

#endif  // SWAMP_SLAVE_CAST_H_
