// CLI11 is slow to compile: who includes this is a file of its own.
#ifndef SWAMP_MASTER_CLI_PREDICT_ARGUMENTS_H_
#define SWAMP_MASTER_CLI_PREDICT_ARGUMENTS_H_

#include <CLI/CLI.hpp>

#include "master/cli/predict_options.h"

namespace swamp::cli {

void add_predict_options(CLI::App* predict, PredictOptions& options);

}  // namespace swamp::cli

#endif  // SWAMP_MASTER_CLI_PREDICT_ARGUMENTS_H_
