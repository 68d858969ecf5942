// MixedPrecisionOptimizer against the traces of Megatron's own: the order of
// events, what step() returned, and every bit of the parameters.
#include <gtest/gtest.h>

#include <set>

#include "golden.h"
#include "machines.h"
#include "support/formats.h"
#include "swamp/float_formats.h"
#include "swamp/mixed_precision.h"

namespace swamp::test {
namespace {

// Heard records events in the form of the traces.
class Heard : public StepObserver {
 public:
  void start(const char* timer, int log_level) override {
    events.push_back(std::string("timer+ ") + timer + "(level " +
                     std::to_string(log_level) + ")");
  }
  void stop(const char* timer) override {
    events.push_back(std::string("timer- ") + timer);
  }
  void event(const std::string& what) override { events.push_back(what); }

  std::vector<std::string> events;
};

// expected_events() omits one event: once in a run, Megatron's ranks find out
// whether any of them has parameters for multi-token prediction, which are
// clipped separately. swamp has no such group.
std::vector<std::string> expected_events(const Json& step) {
  std::vector<std::string> events;
  for (const std::string event : step.at("events")) {
    if (event != "all_reduce(MAX,mtp_group_flag)") events.push_back(event);
  }
  return events;
}

std::vector<std::uint64_t> bits_of(ScalarType type,
                                   const std::vector<float>& values) {
  std::vector<std::uint64_t> bits;
  for (const float value : values) {
    bits.push_back(test::bits_of(format_of(type), value));
  }
  return bits;
}

MixedPrecisionOptions options_of(const Json& record) {
  MixedPrecisionOptions options;
  options.fp16 = type_of(record.at("dtype")) == kFloat16;
  options.bf16 = !options.fp16;
  options.clip_grad = record.at("clip_grad");
  options.log_num_zeros_in_grad = record.at("log_num_zeros_in_grad");
  SgdOptions sgd;
  sgd.lr = record.at("lr");
  options.optimizer = sgd;
  const double scale = number(record.at("steps").at(0).at("loss_scale_used"));
  if (record.at("scaler") == "ConstantGradScaler") {
    options.loss_scale = scale;
  } else if (record.at("scaler") == "DynamicGradScaler") {
    // The trace does not contain it; it follows from the steps at which the
    // scale changes.
    options.initial_loss_scale = scale;
    options.loss_scale_window = 2;
    options.hysteresis = 1;
  }
  return options;
}

// A record has one 16-bit parameter and one of float32.
void replay(const Json& record, const MachineConfig& config, bool fused) {
  const auto machine = make_machine(config);
  const ScalarType type = type_of(record.at("dtype"));
  Elements model(type, bits_of(type, record.at("model_params"))),
      fp32(kFloat32, bits_of(kFloat32, record.at("fp32_params")));
  Elements model_gradient = model, fp32_gradient = fp32;
  Heard heard;
  MixedPrecisionOptions options = options_of(record);
  options.machine = machine.get();
  options.observer = &heard;
  options.fused = fused;
  MixedPrecisionOptimizer optimizer(
      {{{{"model", model.tensor(), model_gradient.tensor()},
         {"fp32", fp32.tensor(), fp32_gradient.tensor()}},
        {},
        {}}},
      options);
  for (const Json& step : record.at("steps")) {
    SCOPED_TRACE(step);
    ASSERT_EQ(optimizer.get_loss_scale(), number(step.at("loss_scale_used")));
    model_gradient.set_all(bit_patterns(step.at("model_grad_bits")));
    fp32_gradient.set_all(bit_patterns(step.at("main_grad_f32_bits")));
    heard.events.clear();
    const StepResult result = optimizer.step();
    EXPECT_EQ(heard.events, expected_events(step));
    const Json& returned = step.at("ret");
    const bool success = returned.at(0);
    EXPECT_EQ(result.success, success);
    EXPECT_EQ(result.grad_norm.has_value(), success);
    EXPECT_EQ(result.num_zeros.has_value(), success);
    if (success) {
      EXPECT_EQ(result.grad_norm.value_or(0), number(returned.at(1)));
      EXPECT_EQ(result.num_zeros.value_or(0), returned.at(2));
    }
    const double scale_after = number(step.at("loss_scale_after"));
    EXPECT_EQ(result.next_loss_scale, scale_after);
    EXPECT_EQ(optimizer.get_loss_scale(), scale_after);
    EXPECT_EQ(model.all_bits(), bit_patterns(step.at("model_param_bits")));
    EXPECT_EQ(fp32.all_bits(), bit_patterns(step.at("fp32_param_bits")));
    EXPECT_EQ(bits_of(kFloat32, optimizer.state_dict().tensors.at(
                                    "fp32_from_fp16_params.model")),
              bit_patterns(step.at("main_param_bits")));
  }
  std::set<std::string> keys;
  const OptimizerState state = optimizer.state_dict();
  const auto add = [&](const std::string& key) {
    keys.insert(key.substr(0, key.find('.')));
  };
  for (const auto& entry : state.texts) add(entry.first);
  for (const auto& entry : state.tensors) add(entry.first);
  EXPECT_EQ(keys, record.at("state_dict_keys").get<std::set<std::string>>());
}

TEST(MixedPrecisionGolden, EveryRecordOnEveryMachine) {
  const std::vector<Json> records = read_golden("megatron_step.extra.jsonl");
  ASSERT_EQ(records.size(), 3u);
  for (const MachineConfig& config :
       machine_configs({{1, 1, 4096}, {6, 64, 16384}}, false)) {
    SCOPED_TRACE(to_text(config));
    for (const Json& record : records) {
      SCOPED_TRACE(record.at("id"));
      replay(record, config, false);
      replay(record, config, true);
    }
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace swamp::test
