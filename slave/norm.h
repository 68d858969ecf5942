// The norm kernels: one in stream that is only read. They add up the squares of
// the unscaled elements, in double, into the grain's partial result; like check
// they also flag every incoming element that is inf or nan.
#ifndef SWAMP_SLAVE_NORM_H_
#define SWAMP_SLAVE_NORM_H_

#include <cstdint>

namespace swamp::slave {

struct NormArgs {
  float inv_scale;
};

// NormPartial is what a norm gathers of a grain: lane i has the squares of the
// elements whose index in their tensor is i mod 16, added in their order.
struct NormPartial {
  static constexpr int kLanes = 16;
  double lanes[kLanes];

  // total() adds the lanes as a fixed binary tree: neighbours at a distance of
  // 8, then 4, 2 and 1.
  double total() const noexcept {
    double sum[kLanes];
    for (int i = 0; i < kLanes; ++i) sum[i] = lanes[i];
    for (int distance = kLanes / 2; distance != 0; distance /= 2) {
      for (int i = 0; i < distance; ++i) sum[i] += sum[i + distance];
    }
    return sum[0];
  }
};

}  // namespace swamp::slave

#endif  // SWAMP_SLAVE_NORM_H_
