// The scan kernels: one in stream that is only read. They count inf, nan and
// finite elements and find the extremes of the finite ones, into the segment's
// partial result; like check they also flag every inf and nan.
#ifndef SWAMP_SLAVE_SCAN_H_
#define SWAMP_SLAVE_SCAN_H_

#include <cstdint>
#include <cstring>

namespace swamp::slave {

struct ScanArgs {};

// order_key() maps doubles to integers of the same order, -0 below +0.
// Integers, because comparing doubles would depend on the float environment.
inline std::int64_t order_key(double value) noexcept {
  std::int64_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits < 0 ? bits ^ 0x7fffffffffffffff : bits;
}

inline double from_order_key(std::int64_t key) noexcept {
  if (key < 0) key ^= 0x7fffffffffffffff;
  double value;
  std::memcpy(&value, &key, sizeof value);
  return value;
}

// ScanPartial is what a scan gathers of a segment; all zero: nothing yet.
struct ScanPartial {
  std::uint64_t inf_count;
  std::uint64_t nan_count;
  std::uint64_t finite_count;
  std::uint64_t first_nonfinite;  // where there is one
  std::int64_t min_key;           // of the finite elements, where there are any
  std::int64_t max_key;

  // add() takes in what was found in elements behind those of this one.
  void add(const ScanPartial& later) noexcept {
    if (inf_count + nan_count == 0) first_nonfinite = later.first_nonfinite;
    inf_count += later.inf_count;
    nan_count += later.nan_count;
    if (later.finite_count == 0) return;
    if (finite_count == 0 || later.min_key < min_key) min_key = later.min_key;
    if (finite_count == 0 || later.max_key > max_key) max_key = later.max_key;
    finite_count += later.finite_count;
  }
};

}  // namespace swamp::slave

#endif  // SWAMP_SLAVE_SCAN_H_
