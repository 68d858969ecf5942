// The unscale and check kernels: one inout stream of float16, bfloat16, float32
// or float64, multiplied by inv_scale; or one in stream that is only read. Both
// flag every incoming element that is inf or nan.
#ifndef SWAMP_SLAVE_UNSCALE_H_
#define SWAMP_SLAVE_UNSCALE_H_

#include <cstdint>

namespace swamp::slave {

struct UnscaleArgs {
  float inv_scale;  // not read by check
};

}  // namespace swamp::slave

#endif  // SWAMP_SLAVE_UNSCALE_H_
