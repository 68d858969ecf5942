// The JSON that the program prints, one object a line. Numbers are the shortest
// decimals that read back the same; infinity and nan are strings.
#ifndef SWAMP_MASTER_CLI_JSON_H_
#define SWAMP_MASTER_CLI_JSON_H_

#include <string>
#include <vector>

#include "master/cli/predict/report.h"
#include "master/cli/safetensors_writer.h"
#include "master/cli/scan/scan.h"
#include "master/cli/step_record.h"
#include "swamp/machine.h"

namespace swamp::cli {

const char* compiler_version();

// info_json() also lists the environment's SWAMP_* variables that are unknown.
std::string info_json(const MachineInfo& info,
                      const std::vector<std::string>& unknown_variables);
std::string prediction_json(const Predicted& predicted);
// measured_json() is a line for every point, and one for the median error.
std::string measured_json(const std::vector<MeasuredPoint>& points);
std::string step_json(const StepRecord& record);
// safetensors_header_json() is the header of a file that holds the tensors, one
// after another, and the texts.
std::string safetensors_header_json(const Metadata& metadata,
                                    const std::vector<TensorPlace>& tensors);
// scan_json() is a line for every tensor. Every line of scan has the member
// "schema", which grows if the meaning of another member changes.
std::string scan_json(const ScannedFile& file);
// scan_totals_json() is the last line of a scan.
std::string scan_totals_json(const ScanTotals& totals);

}  // namespace swamp::cli

#endif  // SWAMP_MASTER_CLI_JSON_H_
