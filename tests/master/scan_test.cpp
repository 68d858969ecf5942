// scan_non_finite: statistics of parts, and its errors. The same bits on every
// machine are in operators_test.cpp.
#include "swamp/scan.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "sample_list.h"
#include "slave/kernel_args.h"
#include "slave/reference_table.h"
#include "support/errors.h"

namespace swamp::test {
namespace {

// expected_of() computes one tensor by the scalar reference, in one tile.
TensorStatistics expected_of(const Tensor& tensor) {
  slave::ScanPartial partial{};
  Result result;
  void* const operands[] = {tensor.data};
  slave::reference::reference_of(KernelFamily::scan, {tensor.dtype})(
      nullptr, Tile{operands, tensor.count, 0, &partial}, result);
  TensorStatistics out;
  out.count = tensor.count;
  out.inf_count = partial.inf_count;
  out.nan_count = partial.nan_count;
  out.first_non_finite = partial.first_nonfinite;
  if (partial.finite_count != 0) {
    out.min = slave::from_order_key(partial.min_key);
    out.max = slave::from_order_key(partial.max_key);
    out.absmax = std::fmax(std::fabs(out.min), std::fabs(out.max));
  }
  return out;
}

bool same(const TensorStatistics& a, const TensorStatistics& b) {
  return std::memcmp(&a, &b, sizeof a) == 0;  // also the sign of zero
}

TEST(Scan, AddCombinesConsecutiveParts) {
  SampleList list = mixed_list(41, 60);
  for (const Tensor& tensor : list.tensors()) {
    const std::size_t cut = tensor.count / 3;
    const std::size_t bytes = format_of(tensor.dtype).bytes;
    if (tensor.count == 0) continue;
    const Tensor parts[] = {{tensor.data, cut, tensor.dtype},
                            {static_cast<std::byte*>(tensor.data) + cut * bytes,
                             tensor.count - cut, tensor.dtype}};
    TensorStatistics out[2];
    scan_non_finite(parts, out);
    TensorStatistics all;
    all.add(out[0]);
    all.add(out[1]);
    EXPECT_TRUE(same(all, expected_of(tensor)));
  }
}

TEST(Scan, ErrorsNameTheTensorAndChangeNothing) {
  float good[4] = {1, 2, 3, 4};
  const auto expect_bad = [&](Tensor bad,
                              std::initializer_list<std::string> words) {
    const Tensor list[] = {{good, 4, kFloat32}, bad};
    TensorStatistics out[2];
    out[0].count = 77;
    expect_refused([&] { scan_non_finite(list, out); }, words);
    EXPECT_EQ(out[0].count, 77u);
  };
  Tensor unknown{good, 1, kFloat32};
  const int next = static_cast<int>(kScalarTypeCount);
  std::memcpy(static_cast<void*>(&unknown.dtype), &next, sizeof next);
  expect_bad(unknown, {"tensors[1].dtype", "14", "5 (float8_e5m2)"});
  expect_bad({nullptr, 3, kFloat8E5M2}, {"tensors[1].data", "null", "3"});
  expect_bad({reinterpret_cast<std::byte*>(good) + 1, 1, kFloat16},
             {"tensors[1].data", "misaligned"});
  expect_bad({good, ~std::size_t{0}, kFloat8E4M3FN}, {"tensors[1].count"});
  const Tensor list[] = {{good, 4, kFloat32}};
  EXPECT_THROW(scan_non_finite(list, nullptr), Error);
  scan_non_finite({}, nullptr);  // an empty list needs no output
}

}  // namespace
}  // namespace swamp::test
