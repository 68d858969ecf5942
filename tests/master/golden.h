// The golden traces, as plain data. Their format: tests/golden/FORMAT.md.
#ifndef SWAMP_TESTS_MASTER_GOLDEN_H_
#define SWAMP_TESTS_MASTER_GOLDEN_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "master/cli/text.h"
#include "swamp/tensor.h"

namespace swamp::test {

// Digest is the digest of numbers in the traces; every nan is the same.
class Digest {
 public:
  void add(double value) {
    if (std::isnan(value)) value = std::numeric_limits<double>::quiet_NaN();
    char bytes[sizeof value];
    std::memcpy(bytes, &value, sizeof value);
    if (__BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__) {
      std::reverse(bytes, bytes + sizeof value);
    }
    value_ = cli::add_to_digest(value_, {bytes, sizeof bytes});
  }
  std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = cli::kDigestStart;
};

// UnscaleRecord is a line of unscale.extra.jsonl, with the rule of torch.
struct UnscaleRecord {
  ScalarType type;
  float inv_scale;
  bool found_inf;
  std::vector<std::uint64_t> input;
  std::vector<std::uint64_t> output;
};
std::vector<UnscaleRecord> read_unscale_records();

// StepTrace is the input of a trace of any scaler.
struct StepTrace {
  std::string id;
  std::string scaler;
  std::string params;          // JSON
  std::vector<bool> overflow;  // by step
  float found_inf_value;
};
std::vector<StepTrace> read_step_traces();

// ValidationRecord is a line of validation.extra.jsonl.
struct ValidationRecord {
  std::string scaler;
  std::string params;  // JSON
  bool ok;
  std::vector<double> init;  // scale and trackers
  std::string type;          // of the exception
  std::string message;
};
std::vector<ValidationRecord> read_validation_records();

// WindowListRecord is a line of window_lists.extra.jsonl.
struct WindowListRecord {
  double max;
  double min;
  std::vector<double> list;
};
std::vector<WindowListRecord> read_window_lists();

// MegatronStepRecord is a line of megatron_step.extra.jsonl: one 16-bit
// parameter and one of float32.
struct MegatronStepRecord {
  struct Step {
    double loss_scale_used;
    std::vector<std::uint64_t> model_gradient;
    std::vector<std::uint64_t> main_gradient;  // of the float32 parameter
    std::vector<std::string> events;
    bool success;
    double grad_norm;         // if success
    std::uint64_t num_zeros;  // if success
    double loss_scale_after;
    std::vector<std::uint64_t> main_param, model_param, fp32_param;
  };
  std::string id;
  ScalarType type;
  double clip_grad;
  bool log_num_zeros_in_grad;
  double lr;
  std::string scaler;  // "": none
  std::vector<float> model_params;
  std::vector<float> fp32_params;
  std::vector<Step> steps;
  std::vector<std::string> state_dict_keys;
};
std::vector<MegatronStepRecord> read_megatron_steps();

// ProtocolRecord is a line of grad_scaler/protocol.jsonl; see record.py there.
struct ProtocolRecord {
  struct Call {
    std::string name;  // and an optimizer's index
    double number;
  };
  struct Row {
    std::string error_type;  // "": none
    std::string error_text;
    double scale;
    std::int64_t tracker;
    std::vector<int> steps;
    std::uint32_t digest;
  };
  double init_scale, growth_factor, backoff_factor;
  std::int64_t growth_interval;
  bool enabled;
  std::vector<Call> calls;
  std::vector<Row> rows;
};
std::vector<ProtocolRecord> read_protocol_records();

// SoftmaxRecord is a line of rows/softmax.jsonl; see record.py there. All words
// are the bits of elements.
struct SoftmaxRecord {
  struct Row {
    std::size_t row;
    bool is_nan;
    // One or two admissible words of each column kept.
    std::vector<std::vector<std::uint32_t>> words;
  };
  std::string text;  // for messages
  ScalarType type;
  std::size_t rows, columns, step;
  std::vector<std::uint32_t> scores, grads;  // grads: of a backward call only
  std::vector<std::uint8_t> mask;            // empty: none
  bool causal;
  float scale;
  bool apex;
  std::vector<Row> kept;
  std::vector<std::uint32_t> gradient;  // of a backward call
};
std::vector<SoftmaxRecord> read_softmax_records();

// CrossEntropyRecord is a line of rows/cross_entropy.jsonl.
struct CrossEntropyRecord {
  int ranks;  // 0: PyTorch's function
  ScalarType type;
  std::size_t rows, classes;
  std::vector<std::uint32_t> logits;
  std::vector<std::int64_t> targets;
  std::vector<float> grads;  // of the losses
  double smoothing;
  std::vector<std::vector<std::uint32_t>> losses, gradient;  // by rank
};
std::vector<CrossEntropyRecord> read_cross_entropy_records();

// MoeRecord is a line of rows/moe.jsonl. Maps are [tokens, experts].
struct MoeRecord {
  struct Drop {
    std::int64_t capacity;
    std::vector<std::uint8_t> by_probs;     // a map
    std::vector<std::int64_t> by_position;  // tokens of each expert
    std::vector<std::int64_t> padded;       // token of each row, or empty
  };
  std::size_t tokens, experts;
  std::vector<std::uint8_t> map;
  std::vector<float> probs;            // [tokens, experts]
  std::vector<std::int64_t> counts;    // tokens of each expert
  std::vector<std::int64_t> token_of;  // of each row
  std::vector<Drop> drops;
};
std::vector<MoeRecord> read_moe_records();

// ExactRecord is a line of rows/exact.jsonl; see exact.py there.
struct ExactRecord {
  struct Elements {
    std::size_t step;
    std::vector<double> exact, terms;
  };
  std::string text;  // for messages
  std::string operation;
  std::map<std::string, std::size_t> numbers;
  std::map<std::string, Elements> results;

  std::size_t operator()(const char* name) const { return numbers.at(name); }
};
std::vector<ExactRecord> read_exact_records();

}  // namespace swamp::test

#endif  // SWAMP_TESTS_MASTER_GOLDEN_H_
