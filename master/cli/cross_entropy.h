#ifndef SWAMP_MASTER_CLI_CROSS_ENTROPY_H_
#define SWAMP_MASTER_CLI_CROSS_ENTROPY_H_

#include <cstdint>
#include <vector>

#include "master/cli/matrix.h"

namespace swamp::cli {

// cross_entropy() returns the mean loss of softmax(logits) against `targets`,
// one a row, and replaces the logits by the gradient of scale * loss. Computed
// in float32 or better, as autocast does; the gradient is not yet rounded.
double cross_entropy(Matrix& logits, const std::vector<std::uint8_t>& targets,
                     float scale);

}  // namespace swamp::cli

#endif  // SWAMP_MASTER_CLI_CROSS_ENTROPY_H_
