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
#include "master/cli/text.h"
#include "support/formats.h"
#include "swamp/float_formats.h"
#include "swamp/grad_scaler.h"

namespace swamp::test {
namespace {

// ---- The calls of tests/golden/grad_scaler/record.py, on swamp's GradScaler.

// Boom is thrown by an optimizer's step() if `throws` is set.
struct Boom {};

// set() gives an element the value, or the nearest of its type.
void set(Elements& elements, std::size_t i, double value) {
  const Format& format = format_of(elements.tensor().dtype);
  std::uint64_t bits = test::bits_of(format, static_cast<float>(value));
  if (format.type == kFloat64) std::memcpy(&bits, &value, sizeof bits);
  elements.set_bits(i, bits);
}

class RecordedOptimizer : public Optimizer {
 public:
  explicit RecordedOptimizer(std::vector<Elements> list)
      : arrays(std::move(list)) {
    fill(0);
  }
  RecordedOptimizer(const RecordedOptimizer&) = delete;

  void fill(int kind) {
    for (std::size_t t = 0; t < arrays.size(); ++t) {
      for (std::size_t i = 0; i < arrays[t].count(); ++i) {
        set(arrays[t], i,
            1.25 * static_cast<double>(i + 1) - static_cast<double>(t));
      }
    }
    if (kind == 1) set(arrays.front(), 0, HUGE_VAL);
    if (kind == 2) set(arrays.back(), arrays.back().count() - 1, std::nan(""));
    list_.clear();
    if (kind == 3) return;  // no gradients
    for (Elements& array : arrays) list_.push_back(array.tensor());
  }
  TensorList gradients() override { return list_; }
  void step() override {
    if (throws) {
      throws = false;
      throw Boom();
    }
    ++steps;
  }

  std::vector<Elements> arrays;
  int steps = 0;
  bool throws = false;

 private:
  std::vector<Tensor> list_;
};

class Player {
 public:
  explicit Player(const Json& options)
      : options_{options.at(0), options.at(1), options.at(2), options.at(3),
                 options.at(4)},
        scaler_(options_) {
    optimizers_.emplace_back(std::vector<Elements>{{kFloat32, 4}});
    optimizers_.emplace_back(
        std::vector<Elements>{{kBFloat16, 3}, {kFloat64, 2}});
    optimizers_.emplace_back(std::vector<Elements>{{kFloat16, 2}});
    for (const Format* format : kFormats)
      outputs_.emplace_back(format->type, 2);
  }

  // call() makes a call: its name, the index of an optimizer, and a number.
  void call(const std::string& name, double number) {
    RecordedOptimizer* optimizer = nullptr;
    if (name.size() > 1) {
      optimizer = &optimizers_.at(static_cast<std::size_t>(name[1] - '0'));
    }
    switch (name[0]) {
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
        throw std::logic_error("no such call: " + name);
    }
  }
  // digest() returns a hash of all losses, outputs and gradients.
  std::uint64_t digest() const {
    std::uint64_t digest = cli::kDigestStart;
    const auto add_number = [&](double value) {
      if (std::isnan(value)) value = std::numeric_limits<double>::quiet_NaN();
      digest = cli::add_to_digest(digest, cli::little_endian_bytes(&value, 1));
    };
    const auto add = [&](const Elements& array) {
      for (std::size_t i = 0; i < array.count(); ++i)
        add_number(array.value(i));
    };
    add_number(static_cast<double>(loss_));
    add_number(wide_loss_);
    for (const Elements& output : outputs_) add(output);
    for (const RecordedOptimizer& optimizer : optimizers_) {
      for (const Elements& array : optimizer.arrays) add(array);
    }
    return digest;
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
    std::vector<Elements> outputs;
    std::vector<Tensor> list;
    for (const Format* format : kFormats) {
      outputs.emplace_back(format->type, 2);
      set(outputs.back(), 0, number);
      set(outputs.back(), 1, 1.5);
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
  std::vector<Elements> outputs_;
};

// play() compares every row of a record with swamp's scaler. A row is an error
// or -1, the scale, its tracker, the steps of each optimizer, and the digest.
void play(const Json& record, const Json& errors, std::set<std::string>& said) {
  Player player(record.at("options"));
  for (std::size_t i = 0; i < record.at("rows").size(); ++i) {
    const Json &call = record.at("ops").at(i), &row = record.at("rows").at(i);
    SCOPED_TRACE("call " + std::to_string(i) + " " + call.dump());
    Json error = {"", ""};
    try {
      player.call(call.at(0), call.size() > 1 ? call.at(1).get<double>() : 0);
    } catch (const ScalerError& thrown) {
      error = {thrown.type(), thrown.message()};
      said.insert(thrown.message());
    } catch (const Boom&) {
      error = {"Boom", "boom"};
    }
    const Json& number = row.at(0);
    ASSERT_EQ(error, number < 0 ? Json({"", ""})
                                : errors.at(number.get<std::size_t>()));
    ASSERT_EQ(player.scaler().get_scale(), row.at(1));
    ASSERT_EQ(player.scaler().get_growth_tracker(), row.at(2));
    ASSERT_EQ(player.steps(), row.at(3).get<std::vector<int>>());
    ASSERT_EQ(static_cast<std::uint32_t>(player.digest()),
              std::stoul(row.at(4).get<std::string>(), nullptr, 16));
  }
}

TEST(GradScalerGolden, CallsInAnyOrder) {
  Json errors;
  std::set<std::string> said;
  int records = 0;
  for (const Json& line : read_golden("grad_scaler/protocol.jsonl")) {
    if (line.contains("errors")) {
      errors = line.at("errors");
      continue;
    }
    SCOPED_TRACE("record " + std::to_string(records++));
    play(line, errors, said);
    if (HasFatalFailure()) return;
  }
  EXPECT_EQ(records, 79);
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
