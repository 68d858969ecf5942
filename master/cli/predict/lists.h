// The list of a prediction: the element count and dtype of each tensor.
#ifndef SWAMP_MASTER_CLI_PREDICT_LISTS_H_
#define SWAMP_MASTER_CLI_PREDICT_LISTS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "swamp/tensor.h"

namespace swamp::cli {

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

}  // namespace swamp::cli

#endif  // SWAMP_MASTER_CLI_PREDICT_LISTS_H_
