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

TEST(UnscaleGolden, EveryRecordOnEveryMachine) {
  const std::vector<UnscaleRecord> records = read_unscale_records();
  ASSERT_GE(records.size(), 60u);
  for (const MachineConfig& config :
       machine_configs({{1, 1, 2048}, {1, 3, 4096}, {6, 64, 4096}}, false)) {
    SCOPED_TRACE(to_text(config));
    const auto machine = make_machine(config);
    for (std::size_t i = 0; i < records.size(); ++i) {
      SCOPED_TRACE("record " + std::to_string(i + 1));
      const UnscaleRecord& record = records[i];
      SampleList actual, expected;
      actual.add_bits(record.type, record.input);
      expected.add_bits(record.type, record.output);
      float found_inf = 0.0f;
      amp_foreach_non_finite_check_and_unscale_(actual.tensors(), found_inf,
                                                record.inv_scale, nullptr,
                                                machine.get());
      ASSERT_EQ(found_inf, record.found_inf ? 1.0f : 0.0f);
      if (record.type == kFloat32) {
        // The records promise that a nan is a nan, but not its payload.
        for (std::size_t e = 0; e < record.output.size(); ++e) {
          if (kFloat32Format.is_nan(record.output[e]) &&
              kFloat32Format.is_nan(actual.get(0, e))) {
            expected.set(0, e, actual.get(0, e));
          }
        }
      }
      ASSERT_TRUE(actual.same_as(expected));
    }
  }
}

// All records of one scale in one list of mixed dtypes.
TEST(UnscaleGolden, RecordsOfOneScaleTogether) {
  const std::vector<UnscaleRecord> records = read_unscale_records();
  const auto machine = make_machine({});
  for (const UnscaleRecord& leader : records) {
    SampleList actual, expected;
    bool found = false;
    for (const UnscaleRecord& record : records) {
      if (record.inv_scale != leader.inv_scale) continue;
      actual.add_bits(record.type, record.input);
      expected.add_bits(record.type, record.input);
      found = found || record.found_inf;
    }
    const OverflowReport report = expected.unscale(leader.inv_scale);
    ASSERT_EQ(report.element_count != 0, found);
    ASSERT_TRUE(same_report(
        unscale(actual.tensors(), leader.inv_scale, *machine), report));
    ASSERT_TRUE(actual.same_as(expected));
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
  for (const ValidationRecord& record : read_validation_records()) {
    SCOPED_TRACE(record.scaler + " " + record.params);
    try {
      const LossScaler scaler = make(record.scaler, record.params);
      EXPECT_TRUE(record.ok);
      EXPECT_EQ(state(scaler), record.init);
    } catch (const ScalerError& error) {
      ++refused;
      EXPECT_FALSE(record.ok);
      EXPECT_EQ(error.type(), record.type);
      EXPECT_EQ(error.message(), record.message);
      EXPECT_EQ(error.status(), SWAMP_INVALID_ARGUMENT);
      EXPECT_NE(std::string(error.what()).find(record.message),
                std::string::npos);
    }
  }
  EXPECT_EQ(refused, 37);
}

TEST(LossScalerGolden, WindowLists) {
  const std::vector<WindowListRecord> records = read_window_lists();
  EXPECT_EQ(records.size(), 21u);
  for (const WindowListRecord& record : records) {
    EXPECT_EQ(scaler::mindformers_windows(record.max, record.min), record.list)
        << record.max << " " << record.min;
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
