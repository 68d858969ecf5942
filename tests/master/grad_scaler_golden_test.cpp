// GradScaler against the originals: recorded calls on torch.amp.GradScaler, and
// the golden traces of all loss scalers driven through the whole protocol.
#include <gtest/gtest.h>

#include <limits>
#include <set>

#include "golden.h"
#include "recorded_scaler.h"
#include "swamp/grad_scaler.h"

namespace swamp::test {
namespace {

// play() compares every row of a record with what our scaler does.
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
  EXPECT_EQ(records.size(), 70u);
  std::set<std::string> said;
  for (std::size_t i = 0; i < records.size(); ++i) {
    SCOPED_TRACE("record " + std::to_string(i));
    play(records[i], said);
    if (HasFatalFailure()) return;
  }
  EXPECT_EQ(said.size(), 11u);  // every text that PyTorch has for them
}

// A step whose finding is `found_inf` on all ranks, by way of the reduction.
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

// What the originals' own rows say, without LossScaler between.
TEST(GradScalerGolden, RowsOfTorch) {
  float gradient = 1.0f;
  FunctionOptimizer optimizer(Tensor{&gradient, 1, kFloat32}, [] {});
  for (const ScalerTrace& trace : read_scaler_traces()) {
    GradScalerOptions options;
    options.init_scale = trace.init.scale;
    options.growth_factor = trace.growth_factor;
    options.backoff_factor = trace.backoff_factor;
    options.growth_interval = trace.growth_interval;
    GradScaler scaler(options);
    auto row = trace.rows.begin();
    for (std::size_t i = 0; i < trace.overflow.size(); ++i) {
      gradient =
          trace.overflow[i] ? std::numeric_limits<float>::quiet_NaN() : 1.0f;
      scaler.scale(1.0f);
      scaler.step(optimizer);
      scaler.update();
      if (row == trace.rows.end() ||
          row->step != static_cast<std::int64_t>(i)) {
        continue;
      }
      ASSERT_EQ(scaler.get_scale(), row->scale) << trace.id << " " << i;
      ASSERT_EQ(scaler.get_growth_tracker(), row->tracker) << trace.id;
      ++row;
    }
    EXPECT_EQ(row, trace.rows.end()) << trace.id;
  }
}

}  // namespace
}  // namespace swamp::test
