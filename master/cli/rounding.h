// Rounding to the dtype of the model. Values stay in float arrays, which hold
// every float16 and bfloat16 exactly, so that Eigen can multiply them.
#ifndef SWAMP_MASTER_CLI_ROUNDING_H_
#define SWAMP_MASTER_CLI_ROUNDING_H_

#include <cstdint>
#include <vector>

#include "swamp/tensor.h"

namespace swamp::cli {

// round_values() rounds every value to `dtype`, to nearest even; what is too
// large becomes inf.
void round_values(ScalarType dtype, std::vector<float>& values);

// round_gradient() does the same and returns how many values that were not 0
// became 0.
std::uint64_t round_gradient(ScalarType dtype, std::vector<float>& values);

}  // namespace swamp::cli

#endif  // SWAMP_MASTER_CLI_ROUNDING_H_
