// scan_non_finite: the same statistics on every machine, and its errors.
#include "swamp/scan.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "machines.h"
#include "runtime/memory_check.h"
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

// A list of all dtypes at odd places: float8 begins at any byte of a word.
SampleList scan_list(std::size_t planted) {
  Random random(41 + planted);
  SampleList list;
  for (std::size_t t = 0; t < 90; ++t) {
    const auto type = static_cast<ScalarType>(t % 6);
    std::size_t count = random.below(300);
    if (t % 9 == 4) count = 8000 + random.below(30000);
    if (t % 11 == 7) count = 0;
    list.add(type, count, random.below(8), random);
  }
  for (std::size_t i = 0; i < planted;) {
    const std::size_t t = random.below(list.tensor_count());
    if (list.element_count(t) == 0) continue;
    const Format& format = format_of(list.type(t));
    list.set(t, random.below(list.element_count(t)),
             random.below(2) * format.sign() |
                 (i % 2 == 0 ? format.infinity() : format.quiet_nan()));
    ++i;
  }
  return list;
}

TEST(Scan, SameBitsOnEveryMachine) {
  struct Case {
    SampleList list;
    std::vector<TensorStatistics> expected;
  };
  std::vector<Case> cases;
  for (const std::size_t planted : {0u, 60u}) {
    Case made{scan_list(planted), {}};
    std::uint64_t found = 0;
    for (const Tensor& tensor : made.list.tensors()) {
      made.expected.push_back(expected_of(tensor));
      found += made.expected.back().non_finite_count();
    }
    ASSERT_EQ(found != 0, planted != 0);
    cases.push_back(std::move(made));
  }
  const std::size_t reports = runtime::report_count();
  const std::vector<MachineShape> shapes = {
      {1, 1, 4096}, {1, 2, 4096}, {1, 64, 16384}, {6, 64, 4096}};
  on_machines(shapes, true, [&](Machine& machine) {
    for (Case& one : cases) {
      const SampleList before = one.list;
      std::vector<TensorStatistics> out(one.expected.size());
      std::memset(static_cast<void*>(out.data()), 0x77,
                  out.size() * sizeof out[0]);
      scan_non_finite(one.list.tensors(), out.data(), &machine);
      for (std::size_t t = 0; t < out.size(); ++t) {
        EXPECT_TRUE(same(out[t], one.expected[t])) << "tensor " << t;
      }
      EXPECT_TRUE(one.list.same_as(before));
    }
  });
  EXPECT_EQ(runtime::report_count(), reports);  // of transfer check
}

TEST(Scan, AddCombinesConsecutiveParts) {
  SampleList list = scan_list(60);
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
