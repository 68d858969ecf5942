// Rounding to the dtype of the model, to nearest even; what is too large
// becomes inf. Values in float arrays hold every float16 and bfloat16 exactly,
// so that Eigen can multiply them.
#ifndef SWAMP_MASTER_CLI_ROUNDING_H_
#define SWAMP_MASTER_CLI_ROUNDING_H_

#include <cstdint>
#include <vector>

#include "swamp/tensor.h"

namespace swamp::cli {

// round_values() rounds every value in its place, and returns how many that
// were not 0 became 0. float32 is left alone.
std::uint64_t round_values(ScalarType dtype, std::vector<float>& values);

// narrow_values() sets `bits`, of float16 or bfloat16, to the rounded values,
// and returns how many that were not 0 became 0.
std::uint64_t narrow_values(ScalarType dtype, const std::vector<float>& values,
                            std::vector<std::uint16_t>& bits);

// widen_values() is the way back, which loses nothing.
void widen_values(ScalarType dtype, const std::vector<std::uint16_t>& bits,
                  std::vector<float>& values);

}  // namespace swamp::cli

#endif  // SWAMP_MASTER_CLI_ROUNDING_H_
