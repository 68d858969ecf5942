#ifndef SWAMP_MASTER_CLI_COMMAND_LINE_H_
#define SWAMP_MASTER_CLI_COMMAND_LINE_H_

#include <string>
#include <variant>

#include "master/cli/command.h"

namespace swamp::cli {

// Answer is a command line that only asks for a text, as --help does.
struct Answer {
  std::string text;
};

using CommandLine = std::variant<Answer, InfoOptions, PredictOptions,
                                 ReplayOptions, ScanOptions, TrainOptions>;

// parse_command_line() throws UsageError.
CommandLine parse_command_line(int argc, char** argv);

}  // namespace swamp::cli

#endif  // SWAMP_MASTER_CLI_COMMAND_LINE_H_
