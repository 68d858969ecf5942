// Errors name what is wrong, and come before the first write.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <string>

#include "machines.h"
#include "sample_list.h"
#include "support/errors.h"

namespace swamp::test {
namespace {

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
      {with_dtype(6, 1), {"tensors[2].dtype", "6", "expected"}},
      // Known, but not taken.
      {with_dtype(4, 0),
       {"tensors[2].dtype", "4 (float8_e4m3fn)"},
       SWAMP_UNSUPPORTED},
      {with_dtype(4, 1),
       {"4 (float8_e4m3fn)", "0 (float16)", "1 (bfloat16)", "2 (float32)",
        "3 (float64)"},
       SWAMP_UNSUPPORTED},
      {with_dtype(5, 1),
       {"tensors[2].dtype", "5 (float8_e5m2)", "float64"},
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

// Every tensor of a long list is validated.
TEST(UnscaleErrors, TheIndexIsTheTensors) {
  const auto machine = make_machine({});
  Good good;
  std::vector<Tensor> list(1000, Tensor{nullptr, 0, kFloat64});
  list[0] = {good.data, 4, kFloat32};
  list[999] = {nullptr, 1, kFloat64};
  expect_refused(list, good, *machine, {"tensors[999].data"});
  list[500] = with_dtype(7, 0);
  expect_refused(list, good, *machine, {"tensors[500].dtype", "7"});
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
                    "_float32"});
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

// A failed call has no effect on the next one.
TEST(UnscaleErrors, TheNextCallIsFine) {
  for (const MachineConfig& config : machine_configs({{1, 2, 16384}}, false)) {
    const auto machine = make_machine(config);
    Good good;
    const Tensor bad[] = {{good.data, 4, kFloat32}, {nullptr, 1, kFloat32}};
    EXPECT_THROW(amp_foreach_non_finite_check_and_unscale_(
                     bad, good.found_inf, 0.5f, nullptr, machine.get()),
                 Error);
    amp_foreach_non_finite_check_and_unscale_({bad, 1}, good.found_inf, 0.5f,
                                              &good.report, machine.get());
    EXPECT_EQ(good.data[0], 0.5f);
    EXPECT_EQ(good.data[3], 2.0f);
    EXPECT_EQ(good.found_inf, 1.0f);
    EXPECT_TRUE(same_report(good.report, {0, 1, 1, 1}));
  }
}

}  // namespace
}  // namespace swamp::test
