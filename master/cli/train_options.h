#ifndef SWAMP_MASTER_CLI_TRAIN_OPTIONS_H_
#define SWAMP_MASTER_CLI_TRAIN_OPTIONS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "swamp/mixed_precision.h"
#include "swamp/tensor.h"

namespace swamp::cli {

// TrainOptions is what `swamp train` was asked for, already validated. A name
// of a file that is empty means none.
struct TrainOptions {
  std::string text = "/usr/share/common-licenses/GPL-3";
  std::string log;
  std::string checkpoint;
  std::string plot;
  bool resume = false;
  bool overwrite = false;             // a checkpoint that exists
  std::uint64_t save_interval = 100;  // steps between two checkpoints
  ScalarType dtype = kFloat16;
  std::uint64_t steps = 300;
  std::uint64_t log_interval = 10;
  std::uint64_t seed = 1;
  std::size_t batch = 128;     // examples in a micro batch
  std::size_t accumulate = 1;  // micro batches of a rank in a step
  MixedPrecisionOptions optimizer;
  // What decides the bits of a run, in the words of the command line, by
  // option: a run that is resumed must have the same.
  std::map<std::string, std::string> decisive;
};

inline const char* dtype_name(ScalarType dtype) {
  switch (dtype) {
    case kFloat16:
      return "float16";
    case kBFloat16:
      return "bfloat16";
    case kFloat32:
      return "float32";
    case kFloat64:
      return "float64";
    case kFloat8E4M3FN:
      return "float8_e4m3fn";
    case kFloat8E5M2:
      return "float8_e5m2";
  }
  return "?";
}

}  // namespace swamp::cli

#endif  // SWAMP_MASTER_CLI_TRAIN_OPTIONS_H_
