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
  float divisor;  // 1: only the cast
};

// sum = (sum + widened in) / divisor, both in float32.
struct AccumulateArgs {
  float divisor;  // 1: only the sum
};

}  // namespace swamp::slave

#endif  // SWAMP_SLAVE_CAST_H_
