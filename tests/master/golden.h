// The golden traces, as plain data. Their format: tests/golden/FORMAT.md.
#ifndef SWAMP_TESTS_MASTER_GOLDEN_H_
#define SWAMP_TESTS_MASTER_GOLDEN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "swamp/tensor.h"

namespace swamp::test {

// UnscaleRecord is a line of unscale.extra.jsonl, with the rule of torch.
struct UnscaleRecord {
  ScalarType type;
  float inv_scale;
  bool found_inf;
  std::vector<std::uint64_t> input;
  std::vector<std::uint64_t> output;
};
std::vector<UnscaleRecord> read_unscale_records();

// ScalerTrace is a line of torch.amp.GradScaler.jsonl.
struct ScalerTrace {
  struct Row {
    std::int64_t step;
    double scale;
    std::int64_t tracker;
  };
  struct Digest {
    std::int64_t step;
    std::uint64_t hash;
  };
  std::string id;
  double growth_factor;
  double backoff_factor;
  std::int64_t growth_interval;
  std::vector<bool> overflow;  // by step
  float found_inf_value;
  Row init;  // step unused
  std::vector<Row> rows;
  std::vector<Digest> digests;
};
std::vector<ScalerTrace> read_scaler_traces();

}  // namespace swamp::test

#endif  // SWAMP_TESTS_MASTER_GOLDEN_H_
