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

// Sizes of operations on matrices and heads, by the options of kSizeOptions;
// absent if not given.
enum SizeOption {
  kSizeRows,
  kSizeColumns,
  kSizeBatch,
  kSizeHeads,
  kSizeQueries,
  kSizeKeys,
  kSizeTokens,
  kSizeExperts,
  kSizeChoices,
  kSizeCount
};
inline constexpr const char* kSizeOptions[kSizeCount] = {
    "--rows", "--columns", "--batch",   "--heads",  "--queries",
    "--keys", "--tokens",  "--experts", "--choices"};
struct Sizes {
  std::optional<std::uint64_t> of[kSizeCount];
  bool causal = false;
};
// Larger operations are refused: tables and arrays of the master must fit into
// memory, and predictions take seconds.
inline constexpr std::uint64_t kMostRows = std::uint64_t{1} << 22;
inline constexpr std::uint64_t kMostElements = std::uint64_t{1} << 34;
inline constexpr std::uint64_t kMostHeadElements = std::uint64_t{1} << 28;
inline constexpr std::uint64_t kMostScores = std::uint64_t{1} << 36;

std::vector<std::string> operation_names();
// is_list_operation() returns whether an operation takes a list of tensors, or
// else sizes. Throws UsageError for an unknown name.
bool is_list_operation(const std::string& name);

// Placement is where the tensors of an array begin, in bytes.
struct Placement {
  std::uint64_t align = 128;  // each begins at `offset` plus a multiple of this
  std::uint64_t offset = 0;   // of the first, from a 128-byte line
};

// The command line's arguments for one operation.
struct Arguments {
  std::vector<Shape> list;
  std::optional<ScalarType> to;
  Placement placement;
  Sizes sizes;                  // of an operation without a list
  ScalarType dtype = kFloat32;  // the same
};

// run_operation() runs the operation of that name on a machine that only counts
// transfers; its arrays are addresses without memory. Throws UsageError for a
// bad name, a `to` that the operation does not take, and sizes that it lacks or
// does not take; Error if the library refuses the arguments.
void run_operation(const std::string& name, const Arguments& arguments,
                   Machine& machine);

// Predicted is one prediction and its arguments.
struct Predicted {
  std::string operation;
  std::string dtype;
  std::string to;     // "" if there is none
  std::string sizes;  // sizes_text() of an operation without a list
  bool rma = false;
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

// sizes_text() repeats the options: "rows 8 columns 16".
std::string sizes_text(const Sizes& sizes);

}  // namespace swamp::cli

#endif  // SWAMP_MASTER_CLI_PREDICT_PREDICT_H_
