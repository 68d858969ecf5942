// The optimizer inside of a mixed-precision one: it moves float32 weights.
#ifndef SWAMP_MASTER_MIXED_PRECISION_INNER_OPTIMIZER_H_
#define SWAMP_MASTER_MIXED_PRECISION_INNER_OPTIMIZER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "swamp/foreach.h"
#include "swamp/mixed_precision.h"

namespace swamp::master {

using InnerOptions = std::variant<AdamOptions, SgdOptions>;

// check_inner_options() throws Error that names option and value; `group` is ""
// or "groups[1].".
void check_inner_options(const InnerOptions& options, const std::string& group);

// group_options() is the options of a group: `options` but for what it says
// itself.
InnerOptions group_options(const InnerOptions& options,
                           const ParameterGroup& group);

double& lr_of(InnerOptions& options);

// option_fields() names the numbers of the options, for state dicts.
std::vector<std::pair<const char*, double*>> option_fields(
    InnerOptions& options);

// option_flag() is the one that is no number, by torch's name.
std::pair<const char*, bool*> option_flag(InnerOptions& options);

// state_names() are the arrays beside a weight, in the order of StepLists.
std::vector<const char*> state_names(const InnerOptions& options);

// adam_step_of() and sgd_step_of() are the numbers of step `step`, counted
// from 1.
AdamStep adam_step_of(const AdamOptions& options, std::int64_t step);
SgdStep sgd_step_of(const SgdOptions& options, std::int64_t step);

// StepLists is what a step of one group moves, tensor by tensor; params and
// states are float32.
struct StepLists {
  std::size_t group;
  std::vector<Tensor> params;
  std::vector<Tensor> gradients;
  std::vector<Tensor> states[2];
  std::vector<Tensor> model_params;  // 16-bit, written too; or empty
};

// inner_step() takes the step number `step`, counted from 1, of the states.
void inner_step(const InnerOptions& options, const StepLists& lists,
                std::int64_t step, const StepScaling& scaling,
                Machine* machine);

}  // namespace swamp::master

#endif  // SWAMP_MASTER_MIXED_PRECISION_INNER_OPTIMIZER_H_
