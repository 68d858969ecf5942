#ifndef SWAMP_MASTER_CLI_PLOT_H_
#define SWAMP_MASTER_CLI_PLOT_H_

#include <string>

#include "master/cli/history.h"

namespace swamp::cli {

// plot_history() draws loss and scale over the steps as a PNG, with gnuplot.
// Where there is no gnuplot, or it fails, nothing is written and the result
// says why; else it is "". Throws Failure where the file cannot be written.
std::string plot_history(const std::string& path, const std::string& title,
                         const History& history);

}  // namespace swamp::cli

#endif  // SWAMP_MASTER_CLI_PLOT_H_
