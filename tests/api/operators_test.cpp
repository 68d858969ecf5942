// The operators through the public C++ API.
#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <stdexcept>
#include <type_traits>
#include <vector>

#include "swamp/swamp.h"

namespace swamp::test {
namespace {

TEST(Operators, ListsOfAllKinds) {
  float data[] = {2.0f, 4.0f};
  float found_inf = 0.0f;
  const Tensor array[] = {{data, 2, kFloat32}};
  amp_foreach_non_finite_check_and_unscale_(array, found_inf, 0.5f);
  const std::vector<Tensor> vector(array, array + 1);
  amp_foreach_non_finite_check_and_unscale_(vector, found_inf, 0.5f);
  amp_foreach_non_finite_check_and_unscale_(array[0], found_inf, 0.5f);
  amp_foreach_non_finite_check_and_unscale_({{data, 2, kFloat32}}, found_inf,
                                            0.5f);
  amp_foreach_non_finite_check_and_unscale_(std::array<Tensor, 1>{array[0]},
                                            found_inf, 4.0f);
  amp_foreach_non_finite_check_and_unscale_({array, 1}, found_inf, 0.5f);
  amp_foreach_non_finite_check_and_unscale_({}, found_inf, 0.5f);
  EXPECT_EQ(data[0], 0.25f);
  EXPECT_EQ(data[1], 0.5f);
  EXPECT_EQ(found_inf, 0.0f);
}

TEST(Operators, OneTrainingStep) {
  Machine machine;
  float scale = 1024.0f;
  std::int32_t tracker = 0;
  std::vector<double> gradient = {1024.0, 2048.0};
  const Tensor tensor{gradient.data(), gradient.size(), kFloat64};
  float found_inf = 0.0f;
  OverflowReport report;
  amp_foreach_non_finite_check_and_unscale_({&tensor, 1}, found_inf,
                                            1.0f / scale, &report, &machine);
  EXPECT_EQ(gradient, (std::vector<double>{1.0, 2.0}));
  EXPECT_EQ(amp_update_scale_(scale, tracker, found_inf, 2.0, 0.5, 1), 2048.0f);

  gradient[1] = std::numeric_limits<double>::infinity();
  amp_foreach_non_finite_check_and_unscale_({&tensor, 1}, found_inf,
                                            1.0f / scale, &report, &machine);
  EXPECT_EQ(report.index, 1u);
  EXPECT_EQ(amp_update_scale_(scale, tracker, found_inf, 2.0, 0.5, 1), 1024.0f);
}

// Errors cross the border of the library as themselves and as std's.
TEST(Operators, ErrorsAreCaughtByType) {
  const Tensor bad{nullptr, 1, kFloat32};
  float found_inf = 0.0f;
  EXPECT_THROW(
      amp_foreach_non_finite_check_and_unscale_({&bad, 1}, found_inf, 0.5f),
      Error);
  EXPECT_THROW(
      amp_foreach_non_finite_check_and_unscale_({&bad, 1}, found_inf, 0.5f),
      std::runtime_error);
  static_assert(std::is_base_of_v<std::runtime_error, Error>);
  static_assert(std::is_same_v<Tensor, swamp_tensor>);
}

}  // namespace
}  // namespace swamp::test
