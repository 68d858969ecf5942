#ifndef SWAMP_MASTER_CLI_TRAIN_PLOT_H_
#define SWAMP_MASTER_CLI_TRAIN_PLOT_H_

#include <string>

#include "master/cli/train/log.h"

namespace swamp::cli {

// plot_terminal() returns the line of a gnuplot script that selects the format
// of a picture by the suffix of its name: .svg, or .png, which is the default.
// Throws UsageError for any other suffix.
const char* plot_terminal(const std::string& path);

// plot_history() draws loss and scale over the steps with gnuplot, and returns
// "". If there is no gnuplot, or it fails, nothing is written and the result is
// the reason. Throws Failure if the file cannot be written.
std::string plot_history(const std::string& path, const std::string& title,
                         const History& history);

}  // namespace swamp::cli

#endif  // SWAMP_MASTER_CLI_TRAIN_PLOT_H_
