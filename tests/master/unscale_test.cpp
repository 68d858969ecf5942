// amp_foreach_non_finite_check_and_unscale_(): values, reports, errors. The
// same bits on every machine are in operators_test.cpp.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <new>
#include <vector>

#include "machines.h"
#include "master/launch.h"
#include "sample_list.h"
#include "support/errors.h"
#include "support/guarded_pages.h"
#include "swamp/amp.h"
#include "swamp/float8.h"
#include "swamp/float_formats.h"

namespace swamp::test {
namespace {

const std::vector<MachineShape> kShapes = {{1, 3, 4096}};

std::uint64_t bits_of(double value) {
  std::uint64_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

// found_inf becomes exactly 1 whatever it was, and is never cleared. No early
// exit: every element is multiplied. The test is on the input: what overflows
// in the product is not reported. float64 is multiplied in double.
TEST(Unscale, ValuesAndFoundInf) {
  const float nan = std::nanf("");
  const double tenth = static_cast<double>(0.1f);
  const struct {
    ScalarType type;
    float inv_scale;
    std::vector<std::uint64_t> input, output;
    bool found;
    std::vector<float> before;
  } rows[] = {
      {kFloat32,
       0.5f,
       {0x3f800000, 0x7f800000, 0x40000000},
       {0x3f000000, 0x7f800000, 0x3f800000},
       true,
       {0, 1, 2, -3, nan}},
      {kFloat32, 0.5f, {0x3f800000}, {0x3f000000}, false, {0, 1, 2.5f, -0.0f}},
      {kFloat32, 1.0f, {0x3f800000}, {0x3f800000}, false, {0, 1, 2.5f, -0.0f}},
      {kFloat16, 65536, {0x7bff, 0x3c00}, {0x7c00, 0x7c00}, false, {0}},
      {kBFloat16, 65536, {0x7f7f}, {0x7f80}, false, {0}},
      {kFloat32, 65536, {0x7f7fffff}, {0x7f800000}, false, {0}},
      {kFloat64,
       0.1f,
       {bits_of(1), bits_of(1e300), bits_of(1 + 0x1p-52)},
       {bits_of(tenth), bits_of(1e300 * tenth), bits_of((1 + 0x1p-52) * tenth)},
       false,
       {0}}};
  on_machines(kShapes, false, [&](Machine& machine) {
    for (const auto& row : rows) {
      for (const float before : row.before) {
        SampleList list, expected;
        list.add_bits(row.type, row.input);
        expected.add_bits(row.type, row.output);
        float found_inf = before;
        amp_foreach_non_finite_check_and_unscale_(
            list.tensors(), found_inf, row.inv_scale, nullptr, &machine);
        const float after = row.found ? 1.0f : before;
        EXPECT_EQ(std::memcmp(&found_inf, &after, sizeof after), 0);
        EXPECT_TRUE(list.same_as(expected));
      }
    }
  });
}

// All codes: dequantized, multiplied and rounded again as PyTorch does.
TEST(Unscale, Float8) {
  for (const ScalarType type : {kFloat8E4M3FN, kFloat8E5M2}) {
    for (const float inv_scale : {0.5f, 0.3f, 1e-3f, 7.0f, -0x1p-20f, 1e30f}) {
      std::vector<std::uint8_t> all;
      for (int i = 0; i < 3 * 256 + 5; ++i) {
        all.push_back(static_cast<std::uint8_t>(i));
      }
      std::vector<std::uint8_t> expected(all.size());
      std::vector<float> products(all.size());
      dequantize({all.data(), all.size(), type},
                 {products.data(), all.size(), kFloat32}, inv_scale);
      QuantizeOptions options;
      options.policy = CastPolicy::torch;
      quantize({products.data(), all.size(), kFloat32},
               {expected.data(), all.size(), type}, options);
      on_machines(kShapes, false, [&](Machine& machine) {
        std::vector<std::uint8_t> codes(all.size() + 2, 0xa5);
        std::copy(all.begin(), all.end(), codes.begin() + 1);
        const Tensor tensor{codes.data() + 1, all.size(), type};
        float found_inf = 0;
        OverflowReport report;
        amp_foreach_non_finite_check_and_unscale_(tensor, found_inf, inv_scale,
                                                  &report, &machine);
        EXPECT_EQ(found_inf, 1);
        EXPECT_EQ(report.index, kFloatFormats[type].infinity());
        EXPECT_EQ(report.element_count, type == kFloat8E5M2 ? 24u : 6u);
        EXPECT_EQ(codes.front(), 0xa5);
        EXPECT_EQ(codes.back(), 0xa5);
        EXPECT_TRUE(
            std::equal(expected.begin(), expected.end(), codes.begin() + 1));
      });
    }
  }
}

// Calls without an overflow do not write found_inf, not even the same value.
TEST(Unscale, IsNotTouchedWhenClean) {
  GuardedPages page(2 * sizeof(float));
  auto* values = new (page.begin()) float[2]{0.0f, 0.5f};
  page.make_read_only();
  on_machines(kShapes, false, [&](Machine& machine) {
    SampleList list = mixed_list(3, 0);
    OverflowReport report{1, 2, 3, 4};
    amp_foreach_non_finite_check_and_unscale_(list.tensors(), values[0],
                                              values[1], &report, &machine);
    EXPECT_TRUE(same_report(report, {}));
  });
}

TEST(Unscale, InvScaleOneReadsOnly) {
  constexpr std::size_t kBytes = 64 * 1024;
  GuardedPages pages(kBytes);
  Random random(8);
  std::vector<Tensor> tensors;
  for (const Format* format : kAllFormats) {
    const std::size_t share = kBytes / 8;
    auto* data = pages.begin() + share * static_cast<std::size_t>(format->type);
    fill_any(*format, data, share / format->bytes, random);
    tensors.push_back(
        {data + format->bytes, share / format->bytes - 1, format->type});
  }
  const std::vector<std::byte> before(pages.begin(), pages.end());
  pages.make_read_only();
  on_machines(kShapes, false, [&](Machine& machine) {
    float found_inf = 0.0f;
    OverflowReport report;
    amp_foreach_non_finite_check_and_unscale_(tensors, found_inf, 1.0f, &report,
                                              &machine);
    EXPECT_EQ(found_inf, 1.0f);
    EXPECT_EQ(report.tensor_count, 6u);
    EXPECT_EQ(std::memcmp(pages.begin(), before.data(), before.size()), 0);
  });
}

TEST(Unscale, EmptyListsAndEmptyTensors) {
  on_machines(kShapes, false, [](Machine& machine) {
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

const std::vector<MachineShape> kReportShapes = {
    {1, 1, 16384}, {1, 7, 16384}, {1, 64, 4096}};

SampleList plain_list() {
  SampleList list;
  Random random(17);
  list.add(kFloat32, 100, 1, random);
  list.add(kFloat16, 40001, 1, random);  // divided between slaves
  list.add(kBFloat16, 0, 1, random);
  list.add(kFloat64, 30000, 1, random);
  list.add(kBFloat16, 7, 3, random);
  return list;
}

// plant() puts a nan of the tensor's dtype.
void plant(SampleList& list, std::size_t tensor, std::size_t index) {
  list.set(tensor, index, format_of(list.type(tensor)).quiet_nan());
}

// Each row: the nan that are planted, as tensor and index, and the report. In
// the second one, every grain has one: a tensor that many slaves share counts
// once. In the last, all elements are nan.
TEST(UnscaleReport, LowestPlaceAndCounts) {
  using Places = std::vector<std::pair<std::size_t, std::size_t>>;
  const SampleList clean = plain_list();
  Places all, grains = {{4, 6}};
  for (std::size_t t = 0; t < clean.tensor_count(); ++t) {
    for (std::size_t i = 0; i < clean.element_count(t); ++i) {
      all.push_back({t, i});
      if ((t == 1 || t == 3) && (i % 8192 == 8191 || i == 8192)) {
        grains.push_back({t, i});
      }
    }
  }
  std::vector<std::pair<Places, OverflowReport>> rows = {
      {{}, {}},
      {{{3, 2}, {3, 29999}, {1, 33000}, {1, 20000}}, {1, 20000, 2, 4}},
      {grains, {1, 8191, 3, grains.size()}},
      {all, {0, 0, 4, all.size()}}};
  for (std::size_t t = 0; t < clean.tensor_count(); ++t) {
    const std::size_t count = clean.element_count(t);
    if (count == 0) continue;
    rows.push_back({{{t, 0}}, {t, 0, 1, 1}});
    rows.push_back({{{t, count - 1}}, {t, count - 1, 1, 1}});
  }
  on_machines(kReportShapes, false, [&](Machine& machine) {
    for (const auto& [places, report] : rows) {
      SampleList list = clean;
      for (const auto& [tensor, index] : places) plant(list, tensor, index);
      for (const float inv_scale : {1.0f, 0.5f}) {
        EXPECT_TRUE(
            same_report(unscale(list.tensors(), inv_scale, machine), report));
      }
    }
  });
}

// reduce() by hand: the same tensor in neighbours, with clean slaves between.
TEST(UnscaleReport, ReduceCountsATensorOnce) {
  runtime::SlaveResult results[5];
  const auto flag = [&](int slave, std::uint64_t segment, std::uint64_t index,
                        std::uint64_t count) {
    Result tile;
    tile.flag(index, count);
    results[slave].add(segment, tile);
  };
  EXPECT_EQ(master::reduce(results, 5).flagged_elements, 0u);
  EXPECT_EQ(master::reduce(results, 5).first_segment,
            runtime::SlaveResult::kNone);
  flag(1, 2, 50, 1);
  flag(1, 4, 10, 2);
  flag(3, 4, 900, 3);
  flag(4, 4, 1800, 1);
  flag(4, 5, 0, 1);
  const runtime::SlaveResult all = master::reduce(results, 5);
  EXPECT_EQ(all.first_segment, 2u);
  EXPECT_EQ(all.first_index, 50u);
  EXPECT_EQ(all.flagged_segments, 3u);
  EXPECT_EQ(all.flagged_elements, 8u);
}

// ---- Errors name what is wrong, and come before the first write.

// Good data that would be changed, and found_inf set, if a call wrote anything.
struct Good {
  alignas(8) float data[4] = {1.0f, std::numeric_limits<float>::infinity(),
                              3.0f, 4.0f};
  float found_inf = 0.0f;
  OverflowReport report{5, 6, 7, 8};
};

// expect_refused() expects that `list` fails with all the words, and that
// neither `good` nor the caller's report has changed.
void expect_refused(TensorList list, Good& good, Machine& machine,
                    const std::vector<std::string>& words,
                    swamp_status status = SWAMP_INVALID_ARGUMENT) {
  const Good before = good;
  for (const float inv_scale : {0.5f, 1.0f}) {
    const auto call = [&] {
      amp_foreach_non_finite_check_and_unscale_(list, good.found_inf, inv_scale,
                                                &good.report, &machine);
    };
    EXPECT_TRUE(has_words(error_of(call, status), words));
    EXPECT_EQ(std::memcmp(good.data, before.data, sizeof good.data), 0);
    EXPECT_EQ(good.found_inf, 0.0f);
    EXPECT_TRUE(same_report(good.report, before.report));
  }
}

// A dtype that no C++ enum could hold: as a C caller may pass it.
Tensor with_dtype(std::int32_t dtype, std::size_t count) {
  static float data[4];
  Tensor tensor{data, count, kFloat32};
  std::memcpy(static_cast<void*>(&tensor.dtype), &dtype, sizeof dtype);
  return tensor;
}

// The bad tensor is the third; those before it are good.
TEST(UnscaleErrors, BadTensors) {
  alignas(8) static std::byte memory[64];
  const std::size_t all = ~std::size_t{0};
  const struct {
    Tensor bad;
    std::vector<std::string> words;
    swamp_status status = SWAMP_INVALID_ARGUMENT;
  } rows[] = {
      {with_dtype(99, 4), {"tensors[2].dtype", "99", "expected", "0", "3"}},
      {with_dtype(99, 0), {"tensors[2].dtype", "99"}},
      {with_dtype(-1, 0), {"tensors[2].dtype", "-1", "float64"}},
      {with_dtype(kScalarTypeCount, 1), {"tensors[2].dtype", "14", "expected"}},
      // Known, but not taken.
      {with_dtype(6, 0),
       {"tensors[2].dtype", "6 (float8_e4m3fnuz)"},
       SWAMP_UNSUPPORTED},
      {with_dtype(13, 1),
       {"tensors[2].dtype", "13 (mxint8)", "0 (float16)", "1 (bfloat16)",
        "2 (float32)", "3 (float64)", "5 (float8_e5m2)"},
       SWAMP_UNSUPPORTED},
      {{nullptr, 17, kFloat16}, {"tensors[2].data", "null", "17"}},
      {{memory + 1, 3, kFloat16}, {"tensors[2].data", "misaligned", "2"}},
      {{memory + 3, 3, kBFloat16}, {"tensors[2].data", "misaligned"}},
      {{memory + 2, 3, kFloat32}, {"tensors[2].data", "misaligned", "4"}},
      {{memory + 4, 3, kFloat64}, {"tensors[2].data", "misaligned", "8"}},
      // Counts whose bytes overflow.
      {{memory, all, kFloat16},
       {"tensors[2].count", std::to_string(all), "expected"}},
      {{memory, all / 2 + 1, kFloat16}, {"tensors[2].count"}},
      {{memory, all / 8 + 1, kFloat64}, {"tensors[2].count"}},
      {{memory, all / 4, kFloat64}, {"tensors[2].count"}}};
  on_machines({{1, 2, 16384}}, false, [&](Machine& machine) {
    for (const auto& row : rows) {
      Good good;
      const Tensor list[] = {
          {good.data, 4, kFloat32}, {nullptr, 0, kFloat16}, row.bad};
      expect_refused(list, good, machine, row.words, row.status);
    }
  });
}

TEST(UnscaleErrors, NullListWithACount) {
  const auto machine = make_machine({});
  Good good;
  expect_refused({nullptr, 3}, good, *machine, {"tensors", "null", "3"});
  // Without one it is the empty list.
  amp_foreach_non_finite_check_and_unscale_({nullptr, 0}, good.found_inf, 0.5f,
                                            nullptr, machine.get());
  EXPECT_EQ(good.found_inf, 0.0f);
}

// Every tensor of a long list is validated, by the slaves if these are threads.
// The first one that is bad is named.
TEST(UnscaleErrors, TheIndexIsTheTensors) {
  for (const MachineConfig& config : machine_configs({{1, 8, 65536}}, false)) {
    SCOPED_TRACE(to_text(config));
    const auto machine = make_machine(config);
    Good good;
    std::vector<Tensor> list(1000, Tensor{nullptr, 0, kFloat64});
    list[0] = {good.data, 4, kFloat32};
    list[999] = {nullptr, 1, kFloat64};
    expect_refused(list, good, *machine, {"tensors[999].data"});
    list[500] = with_dtype(kScalarTypeCount, 0);
    expect_refused(list, good, *machine, {"tensors[500].dtype", "14"});
    list[30] = {nullptr, 1, kFloat64};
    expect_refused(list, good, *machine, {"tensors[30].data"});
  }
}

TEST(UnscaleErrors, TooLittleLdmNamesKernelAndBytes) {
  for (MachineConfig config : machine_configs({{1, 2, 1024}}, false)) {
    SCOPED_TRACE(to_text(config));
    const auto machine = make_machine(config);
    Good good;
    const Tensor list[] = {{good.data, 4, kFloat32}};
    if (machine->info().chosen.transfer == "view") {  // needs none
      amp_foreach_non_finite_check_and_unscale_(list, good.found_inf, 0.5f,
                                                nullptr, machine.get());
      EXPECT_EQ(good.data[0], 0.5f);
      continue;
    }
    expect_refused(list, good, *machine,
                   {"SWAMP_LDM_BYTES: got 1024, expected at least ", "kernel ",
                    "_float32"},
                   SWAMP_UNSUPPORTED);
    // A list without elements needs no LDM.
    const Tensor empty[] = {{nullptr, 0, kFloat16}, {nullptr, 0, kFloat64}};
    amp_foreach_non_finite_check_and_unscale_(empty, good.found_inf, 0.5f,
                                              nullptr, machine.get());
  }
}

// Transfer mode check finds arrays that share bytes; reading them is allowed.
TEST(UnscaleErrors, CheckFindsOverlap) {
  for (const MachineConfig& config : machine_configs({{1, 2, 16384}}, false)) {
    if (config.transfer != "check") continue;
    const auto machine = make_machine(config);
    float values[100] = {};
    const Tensor list[] = {{values + 90, 10, kFloat32},
                           {values, 40, kFloat32},
                           {nullptr, 0, kFloat16},
                           {values + 39, 2, kFloat32}};
    float found_inf = 0.0f;
    const auto call = [&] {
      amp_foreach_non_finite_check_and_unscale_(list, found_inf, 0.5f, nullptr,
                                                machine.get());
    };
    EXPECT_TRUE(has_words(error_of(call), {"arrays 1 and 3,"}));
    amp_foreach_non_finite_check_and_unscale_(list, found_inf, 1.0f, nullptr,
                                              machine.get());
    amp_foreach_non_finite_check_and_unscale_({list, 3}, found_inf, 0.5f,
                                              nullptr, machine.get());
  }
}

}  // namespace
}  // namespace swamp::test
