// amp_update_scale_() in the cases of PyTorch's own operator.
#include <gtest/gtest.h>

#include <climits>
#include <cmath>
#include <cstdint>
#include <limits>

#include "swamp/amp.h"

namespace swamp::test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

struct Row {
  float scale;
  std::int32_t tracker;
  float found_inf;
  std::int64_t interval;
  float new_scale;
  std::int32_t new_tracker;
  double growth = 2.0, backoff = 0.5;
};

void expect_row(const Row& row) {
  SCOPED_TRACE(testing::Message()
               << row.scale << " " << row.tracker << " found " << row.found_inf
               << " interval " << row.interval << " factors " << row.growth
               << " " << row.backoff);
  float scale = row.scale;
  std::int32_t tracker = row.tracker;
  const float returned = amp_update_scale_(
      scale, tracker, row.found_inf, row.growth, row.backoff, row.interval);
  if (std::isnan(row.new_scale)) {
    EXPECT_TRUE(std::isnan(scale) && std::isnan(returned));
  } else {
    EXPECT_EQ(scale, row.new_scale);
    EXPECT_EQ(returned, row.new_scale);
  }
  EXPECT_EQ(tracker, row.new_tracker);
}

TEST(UpdateScale, Rows) {
  for (const Row& row : {
           // test_grad_scaling_update_scale of PyTorch.
           Row{4, 0, 0, 2, 4, 1, 2.0, 0.25},
           {4, 1, 0, 2, 8, 0, 2.0, 0.25},
           {8, 0, 1, 2, 2, 0, 2.0, 0.25},
           // Anything but zero counts as found.
           {8, 1, 2, 2, 4, 0},
           {8, 1, -1, 2, 4, 0},
           {8, 1, 1e-45f, 2, 4, 0},
           {8, 1, kInf, 2, 4, 0},
           {8, 1, -kInf, 2, 4, 0},
           {8, 1, std::nanf(""), 2, 4, 0},
           {8, 1, -0.0f, 2, 16, 0},
           // Growth to infinity is guarded; the factor may be infinite, or nan.
           {0x1p127f, 0, 0, 1, 0x1p127f, 0},
           {0x1p127f, 4, 0, 5, 0x1p127f, 0},
           {1e38f, 0, 0, 1, 1e38f, 0, 16.0},
           {1, 0, 0, 1, 1, 0, double{kInf}},
           {1, 0, 0, 1, 1, 0, kNan},
           {0x1p126f, 0, 0, 1, 0x1p127f, 0},
           // Backoff is not.
           {1, 3, 1, 9, kInf, 0, 2.0, double{kInf}},
           {1, 3, 1, 9, static_cast<float>(kNan), 0, 2.0, kNan},
           {0x1p-149f, 3, 1, 9, 0, 0},
           // A scale of 0 stays.
           {0, 3, 1, 9, 0, 0},
           {0, 0, 0, 1, 0, 0},
           {-0.0f, 0, 0, 2, 0, 1},
           // Equality, not "at least", in 64 bits.
           {4, 10, 0, 5, 4, 11},
           {4, 10, 1, 5, 2, 0},
           {4, 0, 0, 0, 4, 1},
           {4, 0, 0, -3, 4, 1},
           {4, 0, 0, (std::int64_t{1} << 32) + 1, 4, 1},
           {4, 6, 0, std::int64_t{1} << 40, 4, 7},
           {4, -1, 0, 0, 8, 0},
           // The tracker's end does not trap.
           {4, INT32_MAX, 0, 2000, 4, INT32_MIN},
           {4, INT32_MAX, 1, 2000, 2, 0},
           {4, INT32_MAX - 1, 0, INT32_MAX, 8, 0},
           {4, INT32_MAX, 0, std::int64_t{INT32_MAX} + 1, 4, INT32_MIN},
       }) {
    expect_row(row);
  }
}

// float * double is formed in double: factors that no float can hold would
// otherwise round twice.
TEST(UpdateScale, ProductsAreFormedInDouble) {
  std::uint32_t differing = 0;
  for (int i = 1; i < 2000; ++i) {
    const float scale = 3.3f * static_cast<float>(i);
    const auto grown = static_cast<float>(static_cast<double>(scale) * 1.1);
    const auto backed = static_cast<float>(static_cast<double>(scale) * 0.7);
    expect_row({scale, 0, 0, 1, grown, 0, 1.1, 0.7});
    expect_row({scale, 0, 1, 1, backed, 0, 1.1, 0.7});
    if (grown != scale * 1.1f) ++differing;
  }
  EXPECT_GT(differing, 100u);  // the test can distinguish the two
}

}  // namespace
}  // namespace swamp::test
