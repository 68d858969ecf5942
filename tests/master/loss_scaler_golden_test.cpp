// Loss scalers against the records of the originals that are no update traces;
// those are replayed by tests/cli/replay_test.cpp.
#include <gtest/gtest.h>

#include <set>

#include "golden.h"
#include "master/scaler/scaler.h"
#include "swamp/loss_scaler.h"

namespace swamp::test {
namespace {

LossScaler make(const std::string& name, const std::string& params) {
  return LossScaler::from_name(name, scaler_options_from_json(params));
}

std::vector<double> state(const LossScaler& scaler) {
  std::vector<double> values = scaler.trackers();
  values.insert(values.begin(), scaler.scale());
  return values;
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

TEST(LossScalerGolden, CheckpointsOfTheOriginals) {
  const std::vector<CheckpointRecord> records = read_checkpoint_records();
  EXPECT_EQ(records.size(), 5u);
  for (const CheckpointRecord& record : records) {
    LossScaler scaler = make(record.scaler, record.params);
    scaler.load_state_dict(record.state_dict);
    EXPECT_EQ(state(scaler), record.init) << record.id;
  }
}

// resume() saves in the middle of a trace; the loaded scaler must go on as the
// one that was never stopped.
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
