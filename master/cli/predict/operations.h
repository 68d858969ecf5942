// The operations of swamp that can be predicted.
#ifndef SWAMP_MASTER_CLI_PREDICT_OPERATIONS_H_
#define SWAMP_MASTER_CLI_PREDICT_OPERATIONS_H_

#include <optional>
#include <string>
#include <vector>

#include "master/cli/predict/lists.h"
#include "swamp/machine.h"

namespace swamp::cli {

std::vector<std::string> operation_names();

// Placement says where the tensors of an array begin, in bytes.
struct Placement {
  std::uint64_t align = 128;  // each begins at `offset` plus a multiple of this
  std::uint64_t offset = 0;   // of the first, from a 128-byte line
};

// run_operation() runs the operation of that name on a machine that only counts
// transfers; its arrays are addresses without memory. Throws UsageError for a
// bad name or a `to` that the operation does not take, Error if the library
// refuses the list.
void run_operation(const std::string& name, const std::vector<Shape>& list,
                   std::optional<ScalarType> to, const Placement& placement,
                   Machine& machine);

}  // namespace swamp::cli

#endif  // SWAMP_MASTER_CLI_PREDICT_OPERATIONS_H_
