// What `swamp predict` prints: text and JSON.
#ifndef SWAMP_MASTER_CLI_PREDICT_REPORT_H_
#define SWAMP_MASTER_CLI_PREDICT_REPORT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "swamp/machine.h"
#include "swamp/predict.h"

namespace swamp::cli {

// MeasuredPoint is one bandwidth measured on SW39000 (which is SW26010-Pro), in
// one core group, and the model's for the same transfers.
struct MeasuredPoint {
  const char* table;     // "size", "slaves" or "scan"
  bool put;              // otherwise get
  std::uint32_t slaves;  // that transfer at once
  std::uint32_t bytes;   // of each transfer
  std::uint32_t offset;  // bytes after the start of a line
  double measured;       // bytes per cycle, all slaves together
  double predicted;      // bytes per cycle
  // error() is 0.1 if the model is 10 % too fast.
  double error() const noexcept { return predicted / measured - 1; }
};

// Returns all measurements that the model is compared with.
std::vector<MeasuredPoint> measured_points();

// Predicted is one prediction and its arguments.
struct Predicted {
  std::string operation;
  std::string dtype;
  std::string to;  // "" if there is none
  std::uint64_t tensors = 0;
  std::uint64_t elements = 0;
  std::uint64_t tile_asked = 0;  // bytes; 0: the machine's default
  MachineConfig machine;
  Prediction prediction;
};

// prediction_text() shows one, core group by core group.
std::string prediction_text(const Predicted& predicted);
// predictions_text() is a table of several that differ in core groups or tile.
std::string predictions_text(const std::vector<Predicted>& predicted);
// measured_text() compares the model with measurements, point by point.
std::string measured_text(const std::vector<MeasuredPoint>& points);

// prediction_json() is one line.
std::string prediction_json(const Predicted& predicted);
// measured_json() is a line for every point, and one for the median error.
std::string measured_json(const std::vector<MeasuredPoint>& points);

}  // namespace swamp::cli

#endif  // SWAMP_MASTER_CLI_PREDICT_REPORT_H_
