#ifndef SWAMP_MASTER_CLI_PREDICT_MODELS_H_
#define SWAMP_MASTER_CLI_PREDICT_MODELS_H_

#include <cstdint>
#include <string>
#include <vector>

namespace swamp::cli {

// model_names() are what model_counts() knows.
std::vector<std::string> model_names();

// model_counts() is the elements of a model's parameters, in the order of its
// state dict; empty for a name that is not known.
std::vector<std::uint64_t> model_counts(const std::string& name);

}  // namespace swamp::cli

#endif  // SWAMP_MASTER_CLI_PREDICT_MODELS_H_
