// GradScaler against the originals: recorded calls on torch.amp.GradScaler, and
// the golden traces of all loss scalers driven through the whole protocol.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <deque>
#include <limits>
#include <set>
#include <utility>
#include <vector>

#include "golden.h"
#include "support/formats.h"
#include "swamp/float_formats.h"
#include "swamp/grad_scaler.h"

namespace swamp::test {
namespace {

// ---- The calls of tests/golden/grad_scaler/record.py, on swamp's GradScaler.

// Boom is thrown by an optimizer's step() if `throws` is set.
struct Boom {};

// Array is a tensor that owns its elements, accessed as doubles.
class Array {
 public:
  Array(const Format& format, std::size_t count)
      : format_(&format), bits_(count) {}

  Tensor tensor() { return {bits_.data(), bits_.size(), format_->type}; }
  std::size_t count() const { return bits_.size(); }
  void set(std::size_t index, double value) {
    std::uint64_t bits = bits_of(*format_, static_cast<float>(value));
    if (format_->type == kFloat64) std::memcpy(&bits, &value, sizeof bits);
    store_bits(*format_, bits_.data(), index, bits);
  }
  double get(std::size_t index) const {
    return value_of(*format_, load_bits(*format_, bits_.data(), index));
  }

 private:
  const Format* format_;
  std::vector<std::uint64_t> bits_;  // wide enough for any format
};

class RecordedOptimizer : public Optimizer {
 public:
  explicit RecordedOptimizer(std::vector<Array> list)
      : arrays(std::move(list)) {
    fill(0);
  }
  RecordedOptimizer(const RecordedOptimizer&) = delete;

  void fill(int kind) {
    for (std::size_t t = 0; t < arrays.size(); ++t) {
      for (std::size_t i = 0; i < arrays[t].count(); ++i) {
        arrays[t].set(
            i, 1.25 * static_cast<double>(i + 1) - static_cast<double>(t));
      }
    }
    if (kind == 1) arrays.front().set(0, HUGE_VAL);
    if (kind == 2) arrays.back().set(arrays.back().count() - 1, std::nan(""));
    list_.clear();
    if (kind == 3) return;  // no gradients
    for (Array& array : arrays) list_.push_back(array.tensor());
  }
  TensorList gradients() override { return list_; }
  void step() override {
    if (throws) {
      throws = false;
      throw Boom();
    }
    ++steps;
  }

  std::vector<Array> arrays;
  int steps = 0;
  bool throws = false;

 private:
  std::vector<Tensor> list_;
};

GradScalerOptions options_of(const ProtocolRecord& record) {
  GradScalerOptions options;
  options.init_scale = record.init_scale;
  options.growth_factor = record.growth_factor;
  options.backoff_factor = record.backoff_factor;
  options.growth_interval = record.growth_interval;
  options.enabled = record.enabled;
  return options;
}

class Player {
 public:
  explicit Player(const ProtocolRecord& record)
      : options_(options_of(record)), scaler_(options_) {
    optimizers_.emplace_back(std::vector<Array>{{kFloat32Format, 4}});
    optimizers_.emplace_back(
        std::vector<Array>{{kBFloat16Format, 3}, {kFloat64Format, 2}});
    optimizers_.emplace_back(std::vector<Array>{{kFloat16Format, 2}});
    for (const Format* format : kFormats) outputs_.emplace_back(*format, 2);
  }

  void call(const ProtocolRecord::Call& call) {
    RecordedOptimizer* optimizer = nullptr;
    if (call.name.size() > 1) {
      optimizer = &optimizers_.at(static_cast<std::size_t>(call.name[1] - '0'));
    }
    const double number = call.number;
    switch (call.name[0]) {
      case 's':
        loss_ = scaler_.scale(static_cast<float>(number));
        wide_loss_ = scaler_.scale(number);
        return;
      case 'v':
        return scale_outputs(number);
      case 'g':
        return optimizer->fill(static_cast<int>(number));
      case 't':
        optimizer->throws = true;
        return;
      case 'u':
        return scaler_.unscale_(*optimizer);
      case 'p':
        scaler_.step(*optimizer);
        return;
      case 'U':
        scaler_.update();
        return;
      case 'N':
        scaler_.update(number);
        return;
      case 'G':
        return scaler_.set_growth_factor(number);
      case 'B':
        return scaler_.set_backoff_factor(number);
      case 'I':
        return scaler_.set_growth_interval(static_cast<std::int64_t>(number));
      case 'E':
        return scaler_.load_state_dict("{}");
      case 'L': {
        GradScaler fresh(options_);
        fresh.load_state_dict(scaler_.state_dict());
        scaler_ = std::move(fresh);
        return;
      }
      case 'K':
        return load(number);
      default:
        throw std::logic_error("no such call: " + call.name);
    }
  }
  // digest() returns a hash of all losses, outputs and gradients.
  std::uint64_t digest() const {
    Digest digest;
    const auto add = [&](const Array& array) {
      for (std::size_t i = 0; i < array.count(); ++i) digest.add(array.get(i));
    };
    digest.add(static_cast<double>(loss_));
    digest.add(wide_loss_);
    for (const Array& output : outputs_) add(output);
    for (const RecordedOptimizer& optimizer : optimizers_) {
      for (const Array& array : optimizer.arrays) add(array);
    }
    return digest.value();
  }
  std::vector<int> steps() const {
    std::vector<int> all;
    for (const RecordedOptimizer& optimizer : optimizers_) {
      all.push_back(optimizer.steps);
    }
    return all;
  }
  const GradScaler& scaler() const { return scaler_; }

 private:
  void scale_outputs(double number) {
    std::vector<Array> outputs;
    std::vector<Tensor> list;
    for (const Format* format : kFormats) {
      outputs.emplace_back(*format, 2);
      outputs.back().set(0, number);
      outputs.back().set(1, 1.5);
      list.push_back(outputs.back().tensor());
    }
    scaler_.scale_(list);
    outputs_ = outputs;
  }
  void load(double scale) {
    const std::string state = scaler_.state_dict();
    if (state == "{}") return;
    scaler_.load_state_dict("{\"scale\":" + std::to_string(scale) +
                            state.substr(state.find(',')));
  }

  GradScalerOptions options_;
  GradScaler scaler_;
  std::deque<RecordedOptimizer> optimizers_;
  float loss_ = 0.0f;
  double wide_loss_ = 0.0;
  std::vector<Array> outputs_;
};

// play() compares every row of a record with swamp's scaler.
void play(const ProtocolRecord& record, std::set<std::string>& said) {
  Player player(record);
  for (std::size_t i = 0; i < record.calls.size(); ++i) {
    SCOPED_TRACE("call " + std::to_string(i) + " " + record.calls[i].name);
    const ProtocolRecord::Row& row = record.rows[i];
    std::string type;
    std::string text;
    try {
      player.call(record.calls[i]);
    } catch (const ScalerError& error) {
      type = error.type();
      text = error.message();
      said.insert(text);
    } catch (const Boom&) {
      type = "Boom";
      text = "boom";
    }
    ASSERT_EQ(type, row.error_type);
    ASSERT_EQ(text, row.error_text);
    ASSERT_EQ(player.scaler().get_scale(), row.scale);
    ASSERT_EQ(player.scaler().get_growth_tracker(), row.tracker);
    ASSERT_EQ(player.steps(), row.steps);
    ASSERT_EQ(static_cast<std::uint32_t>(player.digest()), row.digest);
  }
}

TEST(GradScalerGolden, CallsInAnyOrder) {
  const std::vector<ProtocolRecord> records = read_protocol_records();
  EXPECT_EQ(records.size(), 79u);
  std::set<std::string> said;
  for (std::size_t i = 0; i < records.size(); ++i) {
    SCOPED_TRACE("record " + std::to_string(i));
    play(records[i], said);
    if (HasFatalFailure()) return;
  }
  EXPECT_EQ(said.size(), 11u);  // all of PyTorch's texts
}

// A step in which `found_inf` is the result of the reduction over ranks.
TEST(GradScalerGolden, TracesThroughTheProtocol) {
  float gradient = 1.0f;
  int steps = 0;
  FunctionOptimizer optimizer(Tensor{&gradient, 1, kFloat32}, [&] { ++steps; });
  int traces = 0;
  for (const StepTrace& trace : read_step_traces()) {
    if (trace.scaler != "torch.amp.GradScaler" &&
        trace.scaler != "megatron.DynamicGradScaler" &&
        trace.scaler != "deepspeed.DynamicLossScaler") {
      continue;
    }
    ++traces;
    const auto make = [&] {
      return LossScaler::from_name(trace.scaler,
                                   scaler_options_from_json(trace.params));
    };
    LossScaler alone = make();
    GradScaler scaler(make());
    scaler.set_found_inf_reduction([&](float found_inf) {
      return found_inf == 0.0f ? found_inf : trace.found_inf_value;
    });
    try {
      for (std::size_t i = 0; i < trace.overflow.size(); ++i) {
        const bool overflow = trace.overflow[i];
        steps = 0;
        gradient = overflow ? std::numeric_limits<float>::infinity() : 1.0f;
        scaler.scale(1.0f);
        const GradScalerStep step = scaler.step(optimizer);
        const ScalerStep expected =
            alone.update(overflow ? trace.found_inf_value : 0.0f);
        ASSERT_EQ(step.found_inf, overflow);
        ASSERT_EQ(step.skipped, expected.skipped);
        ASSERT_EQ(steps, expected.skipped ? 0 : 1);
        ASSERT_EQ(step.scale_before, expected.old_scale);
        ASSERT_EQ(step.scale_after, expected.new_scale);
        ASSERT_EQ(scaler.get_scale(), expected.old_scale);
        ASSERT_EQ(scaler.update().new_scale, expected.new_scale) << trace.id;
        ASSERT_EQ(scaler.get_scale(), expected.new_scale);
      }
    } catch (const ScalerError&) {
      // The trace ends there.
    }
  }
  EXPECT_GT(traces, 100);
}

}  // namespace
}  // namespace swamp::test
