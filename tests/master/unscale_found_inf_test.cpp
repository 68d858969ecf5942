// found_inf and what is written: the semantics of the operator.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <new>

#include "machines.h"
#include "sample_list.h"
#include "support/guarded_pages.h"

namespace swamp::test {
namespace {

const std::vector<MachineShape> kShapes = {{1, 3, 4096}};

// on_machines() runs `body` on every backend x transfer.
template <class Body>
void on_machines(Body body) {
  for (const MachineConfig& config : machine_configs(kShapes, false)) {
    SCOPED_TRACE(to_text(config));
    body(*make_machine(config));
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(UnscaleFoundInf, IsExactlyOneWhateverItWasBefore) {
  on_machines([](Machine& machine) {
    for (const float before : {0.0f, 1.0f, 2.0f, -3.0f, std::nanf("")}) {
      float data[] = {1.0f, std::numeric_limits<float>::infinity(), 2.0f};
      const Tensor tensor{data, 3, kFloat32};
      float found_inf = before;
      amp_foreach_non_finite_check_and_unscale_({&tensor, 1}, found_inf, 0.5f,
                                                nullptr, &machine);
      EXPECT_EQ(found_inf, 1.0f);
      // No early exit: all is multiplied.
      EXPECT_EQ(data[0], 0.5f);
      EXPECT_EQ(data[1], std::numeric_limits<float>::infinity());
      EXPECT_EQ(data[2], 1.0f);
    }
  });
}

TEST(UnscaleFoundInf, IsNeverClearedByCleanCalls) {
  on_machines([](Machine& machine) {
    for (const float before : {0.0f, 1.0f, 2.5f, -0.0f}) {
      float data[] = {1.0f};
      const Tensor tensor{data, 1, kFloat32};
      for (const float inv_scale : {0.5f, 1.0f}) {
        float found_inf = before;
        amp_foreach_non_finite_check_and_unscale_({&tensor, 1}, found_inf,
                                                  inv_scale, nullptr, &machine);
        EXPECT_EQ(std::memcmp(&found_inf, &before, sizeof before), 0);
      }
    }
  });
}

// Clean calls do not even write the value that is there already.
TEST(UnscaleFoundInf, IsNotTouchedWhenClean) {
  GuardedPages page(2 * sizeof(float));
  auto* values = new (page.begin()) float[2]{0.0f, 0.5f};
  page.make_read_only();
  on_machines([&](Machine& machine) {
    SampleList list = mixed_list(3, 0);
    OverflowReport report{1, 2, 3, 4};
    amp_foreach_non_finite_check_and_unscale_(list.tensors(), values[0],
                                              values[1], &report, &machine);
    EXPECT_TRUE(same_report(report, {}));
  });
}

TEST(UnscaleFoundInf, InvScaleOneReadsOnly) {
  constexpr std::size_t kBytes = 64 * 1024;
  GuardedPages pages(kBytes);
  Random random(8);
  std::vector<Tensor> tensors;
  for (const Format* format : kFormats) {
    const std::size_t share = kBytes / 4;
    auto* data = pages.begin() + share * static_cast<std::size_t>(format->type);
    fill_any(*format, data, share / format->bytes, random);
    tensors.push_back(
        {data + format->bytes, share / format->bytes - 1, format->type});
  }
  const std::vector<std::byte> before(pages.begin(), pages.end());
  pages.make_read_only();
  on_machines([&](Machine& machine) {
    float found_inf = 0.0f;
    OverflowReport report;
    amp_foreach_non_finite_check_and_unscale_(tensors, found_inf, 1.0f, &report,
                                              &machine);
    EXPECT_EQ(found_inf, 1.0f);
    EXPECT_EQ(report.tensor_count, 4u);
    EXPECT_EQ(std::memcmp(pages.begin(), before.data(), before.size()), 0);
  });
}

// The test is on the input: what overflows in the product is not reported.
TEST(UnscaleFoundInf, OverflowOfTheProductIsNotReported) {
  on_machines([](Machine& machine) {
    SampleList list;
    list.add_bits(kFloat16, {0x7bff, 0x3c00});
    list.add_bits(kBFloat16, {0x7f7f});
    list.add_bits(kFloat32, {0x7f7fffff});
    float found_inf = 0.0f;
    OverflowReport report;
    amp_foreach_non_finite_check_and_unscale_(list.tensors(), found_inf,
                                              65536.0f, &report, &machine);
    EXPECT_EQ(found_inf, 0.0f);
    EXPECT_EQ(report.element_count, 0u);
    EXPECT_EQ(list.get(0, 0), 0x7c00u);
    EXPECT_EQ(list.get(0, 1), 0x7c00u);
    EXPECT_EQ(list.get(1, 0), 0x7f80u);
    EXPECT_EQ(list.get(2, 0), 0x7f800000u);
  });
}

TEST(UnscaleFoundInf, Float64IsMultipliedInDouble) {
  on_machines([](Machine& machine) {
    double data[] = {1.0, 1e300, 0x1.0000000000001p0};
    const float inv_scale = 0.1f;
    const Tensor tensor{data, 3, kFloat64};
    float found_inf = 0.0f;
    amp_foreach_non_finite_check_and_unscale_({&tensor, 1}, found_inf,
                                              inv_scale, nullptr, &machine);
    EXPECT_EQ(data[0], static_cast<double>(0.1f));
    EXPECT_EQ(data[1], 1e300 * static_cast<double>(0.1f));
    EXPECT_EQ(data[2], 0x1.0000000000001p0 * static_cast<double>(0.1f));
    EXPECT_EQ(found_inf, 0.0f);
  });
}

TEST(UnscaleFoundInf, EmptyListsAndEmptyTensors) {
  on_machines([](Machine& machine) {
    for (const float inv_scale : {1.0f, 0.5f}) {
      float found_inf = 7.0f;
      OverflowReport report{1, 2, 3, 4};
      amp_foreach_non_finite_check_and_unscale_({}, found_inf, inv_scale,
                                                &report, &machine);
      EXPECT_EQ(found_inf, 7.0f);
      EXPECT_TRUE(same_report(report, {}));

      const Tensor empty[] = {{nullptr, 0, kFloat16},
                              {nullptr, 0, kFloat64},
                              {&found_inf, 0, kFloat32}};
      report = {1, 2, 3, 4};
      amp_foreach_non_finite_check_and_unscale_(empty, found_inf, inv_scale,
                                                &report, &machine);
      EXPECT_EQ(found_inf, 7.0f);
      EXPECT_TRUE(same_report(report, {}));
    }
  });
}

TEST(UnscaleFoundInf, StickyOverCalls) {
  on_machines([](Machine& machine) {
    float bad[] = {std::nanf("")};
    float good[] = {4.0f};
    const Tensor first{bad, 1, kFloat32};
    const Tensor second{good, 1, kFloat32};
    float found_inf = 0.0f;
    amp_foreach_non_finite_check_and_unscale_({&first, 1}, found_inf, 0.5f,
                                              nullptr, &machine);
    amp_foreach_non_finite_check_and_unscale_({&second, 1}, found_inf, 0.5f,
                                              nullptr, &machine);
    amp_foreach_non_finite_check_and_unscale_({&second, 1}, found_inf, 0.5f,
                                              nullptr, &machine);
    EXPECT_EQ(found_inf, 1.0f);
    EXPECT_EQ(good[0], 1.0f);
  });
}

}  // namespace
}  // namespace swamp::test
