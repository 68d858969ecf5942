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
std::vector<std::string> expected_events(const MegatronStepRecord::Step& step) {
  std::vector<std::string> events;
  for (const std::string& event : step.events) {
    if (event != "all_reduce(MAX,mtp_group_flag)") events.push_back(event);
  }
  return events;
}

// Array is a tensor of bits.
class Array {
 public:
  Array(ScalarType type, std::size_t count)
      : format_(format_of(type)), bytes_(count * format_.bytes) {}
  void set(const std::vector<std::uint64_t>& bits) {
    ASSERT_EQ(bits.size() * format_.bytes, bytes_.size());
    for (std::size_t i = 0; i < bits.size(); ++i) {
      store_bits(format_, bytes_.data(), i, bits[i]);
    }
  }
  std::vector<std::uint64_t> bits() const {
    std::vector<std::uint64_t> bits;
    for (std::size_t i = 0; i < bytes_.size() / format_.bytes; ++i) {
      bits.push_back(load_bits(format_, bytes_.data(), i));
    }
    return bits;
  }
  Tensor tensor() {
    return {bytes_.data(), bytes_.size() / format_.bytes, format_.type};
  }

 private:
  const Format& format_;
  std::vector<std::byte> bytes_;
};

std::vector<std::uint64_t> bits_of(ScalarType type,
                                   const std::vector<float>& values) {
  std::vector<std::uint64_t> bits;
  for (const float value : values) {
    bits.push_back(type == kFloat16    ? float16_from_float(value)
                   : type == kBFloat16 ? bfloat16_from_float(value)
                                       : float_to_bits(value));
  }
  return bits;
}

std::vector<std::uint64_t> bits_of(const std::vector<float>& values) {
  return bits_of(kFloat32, values);
}

MixedPrecisionOptions options_of(const MegatronStepRecord& record) {
  MixedPrecisionOptions options;
  options.fp16 = record.type == kFloat16;
  options.bf16 = !options.fp16;
  options.clip_grad = record.clip_grad;
  options.log_num_zeros_in_grad = record.log_num_zeros_in_grad;
  SgdOptions sgd;
  sgd.lr = record.lr;
  options.optimizer = sgd;
  const double scale = record.steps.front().loss_scale_used;
  if (record.scaler == "ConstantGradScaler") {
    options.loss_scale = scale;
  } else if (record.scaler == "DynamicGradScaler") {
    // The trace does not contain it; it follows from the steps at which the
    // scale changes.
    options.initial_loss_scale = scale;
    options.loss_scale_window = 2;
    options.hysteresis = 1;
  }
  return options;
}

void replay(const MegatronStepRecord& record, const MachineConfig& config,
            bool fused) {
  const auto machine = make_machine(config);
  Array model(record.type, record.model_params.size());
  Array model_gradient(record.type, record.model_params.size());
  Array fp32(kFloat32, record.fp32_params.size());
  Array fp32_gradient(kFloat32, record.fp32_params.size());
  model.set(bits_of(record.type, record.model_params));
  fp32.set(bits_of(record.fp32_params));
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
  for (std::size_t i = 0; i < record.steps.size(); ++i) {
    SCOPED_TRACE("step " + std::to_string(i));
    const MegatronStepRecord::Step& step = record.steps[i];
    ASSERT_EQ(optimizer.get_loss_scale(), step.loss_scale_used);
    model_gradient.set(step.model_gradient);
    fp32_gradient.set(step.main_gradient);
    heard.events.clear();
    const StepResult result = optimizer.step();
    EXPECT_EQ(heard.events, expected_events(step));
    EXPECT_EQ(result.success, step.success);
    EXPECT_EQ(result.grad_norm.has_value(), step.success);
    EXPECT_EQ(result.num_zeros.has_value(), step.success);
    EXPECT_EQ(result.grad_norm.value_or(0), step.grad_norm);
    EXPECT_EQ(result.num_zeros.value_or(0), step.num_zeros);
    EXPECT_EQ(result.next_loss_scale, step.loss_scale_after);
    EXPECT_EQ(optimizer.get_loss_scale(), step.loss_scale_after);
    EXPECT_EQ(model.bits(), step.model_param);
    EXPECT_EQ(fp32.bits(), step.fp32_param);
    const OptimizerState state = optimizer.state_dict();
    EXPECT_EQ(bits_of(state.tensors.at("fp32_from_fp16_params.model")),
              step.main_param);
  }
  std::set<std::string> keys;
  const OptimizerState state = optimizer.state_dict();
  const auto add = [&](const std::string& key) {
    keys.insert(key.substr(0, key.find('.')));
  };
  for (const auto& entry : state.texts) add(entry.first);
  for (const auto& entry : state.tensors) add(entry.first);
  EXPECT_EQ(std::vector<std::string>(keys.begin(), keys.end()),
            record.state_dict_keys);
}

TEST(MixedPrecisionGolden, EveryRecordOnEveryMachine) {
  const std::vector<MegatronStepRecord> records = read_megatron_steps();
  ASSERT_EQ(records.size(), 3u);
  for (const MachineConfig& config :
       machine_configs({{1, 1, 4096}, {6, 64, 16384}}, false)) {
    SCOPED_TRACE(to_text(config));
    for (const MegatronStepRecord& record : records) {
      SCOPED_TRACE(record.id);
      replay(record, config, false);
      replay(record, config, true);
    }
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace swamp::test
