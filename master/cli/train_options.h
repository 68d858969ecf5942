#ifndef SWAMP_MASTER_CLI_TRAIN_OPTIONS_H_
#define SWAMP_MASTER_CLI_TRAIN_OPTIONS_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "swamp/tensor.h"

namespace swamp::cli {

// TrainOptions is what `swamp train` was asked for, already validated.
struct TrainOptions {
  std::string text = "/usr/share/common-licenses/GPL-3";
  std::string log;  // empty: none
  ScalarType dtype = kFloat16;
  std::uint64_t steps = 300;
  std::size_t batch = 128;
  std::uint64_t seed = 1;
  std::uint64_t log_interval = 10;
  double lr = 1e-3;
  // dynamic_scale: the scale starts at `scale` and moves; else it stays there.
  bool dynamic_scale = true;
  double scale = 4294967296.0;  // 2^32, as Megatron's
  std::int64_t scale_window = 50;
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
