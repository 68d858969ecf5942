// The operator against the golden records of torch's rule.
#include <gtest/gtest.h>

#include "golden.h"
#include "machines.h"
#include "sample_list.h"

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
        // The records promise that a nan is a nan, not which.
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
    float found_inf = 0.0f;
    OverflowReport found_report;
    amp_foreach_non_finite_check_and_unscale_(actual.tensors(), found_inf,
                                              leader.inv_scale, &found_report,
                                              machine.get());
    ASSERT_EQ(found_inf, found ? 1.0f : 0.0f);
    ASSERT_TRUE(same_report(found_report, report));
    ASSERT_TRUE(actual.same_as(expected));
  }
}

}  // namespace
}  // namespace swamp::test
