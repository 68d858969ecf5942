// swamp's operations as a prediction calls them.
#ifndef SWAMP_MASTER_CLI_PREDICT_OPERATIONS_H_
#define SWAMP_MASTER_CLI_PREDICT_OPERATIONS_H_

#include <optional>
#include <string>
#include <vector>

#include "master/cli/predict/lists.h"
#include "swamp/machine.h"

namespace swamp::cli {

std::vector<std::string> operation_names();

// Placement is how the tensors of every array of an operation follow each
// other, in bytes.
struct Placement {
  std::uint64_t align = 128;  // where a tensor begins, counted from a line
  std::uint64_t offset = 0;   // of the first tensor behind a line
};

// run_operation() runs the operation of that name on a machine that counts;
// its arrays are addresses without memory. Throws UsageError for a bad name, or
// a `to` that the operation has no use for, Error where the library refuses.
void run_operation(const std::string& name, const std::vector<Shape>& list,
                   std::optional<ScalarType> to, const Placement& placement,
                   Machine& machine);

}  // namespace swamp::cli

#endif  // SWAMP_MASTER_CLI_PREDICT_OPERATIONS_H_
