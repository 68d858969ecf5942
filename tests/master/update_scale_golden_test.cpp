// amp_update_scale_() replays the golden traces of torch's GradScaler.
#include <gtest/gtest.h>

#include <cstring>

#include "golden.h"
#include "swamp/amp.h"

namespace swamp::test {
namespace {

// Digest is FNV-1a-64 over little-endian doubles.
class Digest {
 public:
  void add(double value) {
    std::uint64_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    for (int i = 0; i < 8; ++i) {
      hash_ = (hash_ ^ ((bits >> (8 * i)) & 0xffu)) * 0x100000001b3u;
    }
  }
  std::uint64_t hash() const { return hash_; }

 private:
  std::uint64_t hash_ = 0xcbf29ce484222325u;
};

void replay(const ScalerTrace& trace) {
  auto scale = static_cast<float>(trace.init.scale);
  auto tracker = static_cast<std::int32_t>(trace.init.tracker);
  double last_scale = scale;
  std::size_t row = 0;
  std::size_t digest = 0;
  Digest sum;
  for (std::size_t step = 0; step < trace.overflow.size(); ++step) {
    const float found_inf = trace.overflow[step] ? trace.found_inf_value : 0.0f;
    amp_update_scale_(scale, tracker, found_inf, trace.growth_factor,
                      trace.backoff_factor, trace.growth_interval);
    sum.add(scale);
    sum.add(tracker);
    const auto now = static_cast<std::int64_t>(step);
    if (row < trace.rows.size() && trace.rows[row].step == now) {
      ASSERT_EQ(scale, trace.rows[row].scale) << "step " << step;
      ASSERT_EQ(tracker, trace.rows[row].tracker) << "step " << step;
      last_scale = scale;
      ++row;
    } else {
      ASSERT_EQ(scale, last_scale) << "step " << step;
    }
    if (digest < trace.digests.size() && trace.digests[digest].step == now) {
      ASSERT_EQ(sum.hash(), trace.digests[digest].hash) << "step " << step;
      ++digest;
    }
  }
  ASSERT_EQ(row, trace.rows.size());
  ASSERT_EQ(digest, trace.digests.size());
}

TEST(UpdateScaleGolden, EveryTrace) {
  const std::vector<ScalerTrace> traces = read_scaler_traces();
  ASSERT_GE(traces.size(), 50u);
  for (const ScalerTrace& trace : traces) {
    SCOPED_TRACE(trace.id);
    ASSERT_FALSE(trace.digests.empty());
    replay(trace);
    if (testing::Test::HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace swamp::test
