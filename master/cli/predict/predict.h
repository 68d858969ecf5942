// The parts of `swamp predict`: the list of tensors, the operation, the report.
#ifndef SWAMP_MASTER_CLI_PREDICT_PREDICT_H_
#define SWAMP_MASTER_CLI_PREDICT_PREDICT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "swamp/machine.h"
#include "swamp/predict.h"
#include "swamp/tensor.h"

namespace swamp::cli {

// model_names() returns the models that model_counts() accepts.
std::vector<std::string> model_names();

// model_counts() returns the element count of each parameter of a model, in the
// order of its state dict; empty for an unknown name.
std::vector<std::uint64_t> model_counts(const std::string& name);

// Shape is one tensor of a list.
struct Shape {
  std::uint64_t count;
  ScalarType dtype;
};

// Larger lists are refused: to partition them takes too much memory, and to
// predict them takes minutes.
inline constexpr std::uint64_t kMaxTensors = 1000000;
inline constexpr std::uint64_t kMaxListElements = std::uint64_t{1} << 40;

// list_of_text() reads "1x33554432,148x100000" (tensors x elements), "1024"
// (one tensor) and the names of models. Throws UsageError.
std::vector<Shape> list_of_text(const std::string& text, ScalarType dtype);

// list_of_files() returns the float tensors of files that scan can read, all of
// them as `dtype` if one is given. Throws Failure, which names the file.
std::vector<Shape> list_of_files(const std::vector<std::string>& files,
                                 std::optional<ScalarType> dtype);

std::vector<std::string> operation_names();

// Placement is where the tensors of an array begin, in bytes.
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
// prediction_json() is one line.
std::string prediction_json(const Predicted& predicted);
// measured_text() compares the cost model with every bandwidth that was
// measured on SW39000. measured_json() prints a line for every point, and one
// for the median error.
std::string measured_text();
std::string measured_json();

}  // namespace swamp::cli

#endif  // SWAMP_MASTER_CLI_PREDICT_PREDICT_H_
