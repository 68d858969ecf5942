// The golden traces of the operators and of the loss scalers.
#include "golden.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "machines.h"
#include "master/scaler/scaler.h"
#include "sample_list.h"
#include "swamp/loss_scaler.h"

namespace swamp::test {
namespace {

// UnscaleRecord is a line of unscale.extra.jsonl, with the rule of torch.
struct UnscaleRecord {
  explicit UnscaleRecord(const Json& line)
      : type(type_of(line.at("dtype"))),
        inv_scale(static_cast<float>(number(line.at("inv_f32")))),
        found_inf(line.at("torch").at(0) != 0),
        input(bit_patterns(line.at("grad"))),
        output(bit_patterns(line.at("torch").at(1))) {}
  ScalarType type;
  float inv_scale;
  bool found_inf;
  std::vector<std::uint64_t> input, output;
};

// Each record alone, and all records of one scale in one list of mixed dtypes.
TEST(UnscaleGolden, EveryRecord) {
  const auto machine = make_machine({});
  std::vector<UnscaleRecord> records;
  for (const Json& line : read_golden("unscale.extra.jsonl")) {
    records.emplace_back(line);
  }
  ASSERT_GE(records.size(), 60u);
  for (std::size_t i = 0; i < records.size(); ++i) {
    SCOPED_TRACE("record " + std::to_string(i + 1));
    const UnscaleRecord& record = records[i];
    SampleList actual, expected;
    actual.add_bits(record.type, record.input);
    expected.add_bits(record.type, record.output);
    const OverflowReport one =
        unscale(actual.tensors(), record.inv_scale, *machine);
    ASSERT_EQ(one.element_count != 0, record.found_inf);
    for (std::size_t e = 0; e < record.output.size(); ++e) {
      // The records promise that a float32 nan is a nan, but not its payload.
      if (record.type == kFloat32 && kFloat32Format.is_nan(record.output[e]) &&
          kFloat32Format.is_nan(actual.get(0, e))) {
        expected.set(0, e, actual.get(0, e));
      }
    }
    ASSERT_TRUE(actual.same_as(expected));

    SampleList together, by_reference;
    bool found = false;
    for (const UnscaleRecord& other : records) {
      if (other.inv_scale != record.inv_scale) continue;
      together.add_bits(other.type, other.input);
      by_reference.add_bits(other.type, other.input);
      found = found || other.found_inf;
    }
    const OverflowReport report = by_reference.unscale(record.inv_scale);
    ASSERT_EQ(report.element_count != 0, found);
    ASSERT_TRUE(same_report(
        unscale(together.tensors(), record.inv_scale, *machine), report));
    ASSERT_TRUE(together.same_as(by_reference));
  }
}

// ---- Loss scalers against the records of the originals that are no update
// traces or checkpoints; those are replayed by tests/cli/replay_test.cpp.

LossScaler make(const std::string& name, const std::string& params) {
  return LossScaler::from_name(name, scaler_options_from_json(params));
}

std::vector<double> state(const LossScaler& scaler) {
  std::vector<double> values = scaler.trackers();
  values.insert(values.begin(), scaler.scale());
  return values;
}

// The rule of torch.amp.GradScaler, which `replay` compares with the traces,
// and the operator are the same.
TEST(UpdateScaleGolden, EveryTrace) {
  int traces = 0;
  for (const StepTrace& trace : read_step_traces()) {
    if (trace.scaler != "torch.amp.GradScaler") continue;
    ++traces;
    const ScalerOptions options = scaler_options_from_json(trace.params);
    const auto number = [&](const char* name) {
      const auto* whole = std::get_if<std::int64_t>(&options.at(name));
      return whole != nullptr ? static_cast<double>(*whole)
                              : std::get<double>(options.at(name));
    };
    LossScaler rule = make(trace.scaler, trace.params);
    auto scale = static_cast<float>(rule.scale());
    std::int32_t tracker = 0;
    for (const bool overflow : trace.overflow) {
      const float found_inf = overflow ? trace.found_inf_value : 0.0f;
      amp_update_scale_(scale, tracker, found_inf, number("growth_factor"),
                        number("backoff_factor"),
                        static_cast<std::int64_t>(number("growth_interval")));
      rule.update(found_inf);
      ASSERT_EQ(state(rule), (std::vector<double>{scale, 1.0 * tracker}))
          << trace.id;
    }
  }
  EXPECT_GE(traces, 50);
}

TEST(LossScalerGolden, Validation) {
  int refused = 0;
  for (const Json& line : read_golden("validation.extra.jsonl")) {
    SCOPED_TRACE(line);
    try {
      const LossScaler scaler =
          make(line.at("scaler"), line.at("params").dump());
      EXPECT_TRUE(line.at("ok").get<bool>());
      std::vector<double> init;  // scale and trackers
      for (const Json& entry : line.at("init")) {
        init.push_back(entry.is_string() ? number(entry) : entry.get<double>());
      }
      EXPECT_EQ(state(scaler), init);
    } catch (const ScalerError& error) {
      ++refused;
      EXPECT_FALSE(line.at("ok").get<bool>());
      EXPECT_EQ(error.type(), line.at("type"));
      EXPECT_EQ(error.message(), line.at("message"));
      EXPECT_EQ(error.status(), SWAMP_INVALID_ARGUMENT);
      EXPECT_NE(std::string(error.what()).find(error.message()),
                std::string::npos);
    }
  }
  EXPECT_EQ(refused, 37);
}

TEST(LossScalerGolden, WindowLists) {
  const std::vector<Json> lines = read_golden("window_lists.extra.jsonl");
  EXPECT_EQ(lines.size(), 21u);
  for (const Json& line : lines) {
    EXPECT_EQ(scaler::mindformers_windows(line.at("max_scale_window"),
                                          line.at("min_scale_window")),
              line.at("list").get<std::vector<double>>())
        << line;
  }
}

// resume() saves in the middle of a trace; the loaded scaler must continue as
// the one that was never stopped.
void resume(const StepTrace& trace) {
  LossScaler straight = make(trace.scaler, trace.params);
  LossScaler resumed = make(trace.scaler, trace.params);
  const std::size_t middle = trace.overflow.size() / 2;
  try {
    for (std::size_t step = 0; step < trace.overflow.size(); ++step) {
      if (step == middle) resumed.load_state_dict(straight.state_dict());
      const float found_inf = trace.overflow[step] ? trace.found_inf_value : 0;
      straight.update(found_inf);
      if (step < middle) continue;
      resumed.update(found_inf);
      ASSERT_EQ(state(resumed), state(straight)) << trace.id << " " << step;
    }
  } catch (const ScalerError&) {
    // The trace ends there.
  }
}

TEST(LossScalerGolden, AnyTraceResumesFromItsOwnCheckpoint) {
  std::set<std::string> scalers;
  for (const StepTrace& trace : read_step_traces()) {
    scalers.insert(trace.scaler);
    resume(trace);
    if (HasFatalFailure()) return;
  }
  EXPECT_EQ(scalers.size(), 30u);
}

}  // namespace
}  // namespace swamp::test
