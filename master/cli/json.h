// The JSON that the program prints, one object a line. Numbers are the shortest
// decimals that read back the same; infinity and nan are strings.
#ifndef SWAMP_MASTER_CLI_JSON_H_
#define SWAMP_MASTER_CLI_JSON_H_

#include <string>

#include "master/cli/step_record.h"
#include "swamp/machine.h"

namespace swamp::cli {

const char* compiler_version();

std::string info_json(const MachineInfo& info);
std::string step_json(const StepRecord& record);

}  // namespace swamp::cli

#endif  // SWAMP_MASTER_CLI_JSON_H_
