// Memory: none is asked for once warm, and when there is none a call says so
// and has changed nothing.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "counting_new.h"
#include "runtime/machine_impl.h"
#include "swamp/amp.h"
#include "swamp/c_api.h"

namespace swamp::test {
namespace {

struct Case {
  std::string backend, transfer;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  const MachineInfo info = Machine().info();
  for (const std::string& backend : info.backends) {
    for (const std::string& transfer : info.transfers) {
      all.push_back({backend, transfer});
    }
  }
  return all;
}

swamp_config c_config(const Case& one) {
  swamp_config config = {};
  config.struct_size = sizeof config;
  config.backend = one.backend.c_str();
  config.transfer = one.transfer.c_str();
  config.slaves_per_group = 8;
  config.ldm_bytes = 16384;
  return config;
}

// Data is 100 tensors of 5000 floats.
struct Data {
  Data() : values(500000, 8.0f) {
    for (std::size_t i = 0; i < 100; ++i) {
      tensors.push_back({values.data() + 5000 * i, 5000, kFloat32});
    }
  }
  std::vector<float> values;
  std::vector<Tensor> tensors;
};

TEST(AllocationTest, NoneOnceWarm) {
  for (const Case& one : cases()) {
    SCOPED_TRACE(one.backend + " " + one.transfer);
    MachineConfig config;
    config.backend = one.backend;
    config.transfer = one.transfer;
    config.slaves_per_group = 8;
    Machine machine(config);
    Data data;
    float found_inf = 0.0f;
    const auto call = [&] {
      amp_foreach_non_finite_check_and_unscale_(data.tensors, found_inf, -1.0f,
                                                nullptr, &machine);
    };
    call();
    call();
    const std::size_t before = allocations();
    for (int i = 0; i < 10; ++i) call();
    const std::size_t taken = allocations() - before;
    if (one.transfer != "check") {
      EXPECT_EQ(taken, 0u);
    }
  }
}

// Fails the first allocation, then the second, and so on until the call gets
// through. A new thread each time, because a thread keeps its memory.
TEST(AllocationTest, UnscaleWithoutMemoryChangesNothing) {
  for (const Case& one : cases()) {
    SCOPED_TRACE(one.backend + " " + one.transfer);
    const swamp_config config = c_config(one);
    swamp_machine* machine = nullptr;
    ASSERT_EQ(swamp_machine_create(&config, &machine), SWAMP_OK);
    bool done = false;
    std::size_t failures = 0;
    for (std::size_t allowed = 0; !done; ++allowed) {
      ASSERT_LT(allowed, 1000u);
      Data data;
      float found_inf = 0.0f;
      const float inv_scale = 0.5f;
      swamp_status status = SWAMP_OK;
      std::string text;
      std::thread([&] {
        fail_after(allowed);
        status = swamp_amp_foreach_non_finite_check_and_unscale(
            machine, data.tensors.data(), data.tensors.size(), &found_inf,
            &inv_scale);
        fail_never();
        text = swamp_last_error();
      }).join();
      done = status == SWAMP_OK;
      failures += !done;
      if (!done) {
        ASSERT_EQ(status, SWAMP_OUT_OF_MEMORY) << text;
        ASSERT_NE(text, "");
      }
      ASSERT_EQ(data.values, std::vector<float>(500000, done ? 4.0f : 8.0f));
    }
    EXPECT_GE(failures, 3u);  // segments, ranges, results at least
    swamp_machine_destroy(machine);
  }
}

TEST(AllocationTest, MachineWithoutMemoryIsNotMade) {
  for (const Case& one : cases()) {
    SCOPED_TRACE(one.backend + " " + one.transfer);
    const swamp_config config = c_config(one);
    swamp_machine* machine = nullptr;
    swamp_status status = SWAMP_OUT_OF_MEMORY;
    std::size_t allowed = 0;
    for (; status != SWAMP_OK; ++allowed) {
      ASSERT_LT(allowed, 10000u);
      machine = nullptr;
      fail_after(allowed);
      status = swamp_machine_create(&config, &machine);
      fail_never();
      if (status == SWAMP_OK) break;
      ASSERT_EQ(status, SWAMP_OUT_OF_MEMORY) << swamp_last_error();
      ASSERT_EQ(machine, nullptr);
    }
    EXPECT_GE(allowed, 3u);
    swamp_machine_destroy(machine);
  }
}

}  // namespace
}  // namespace swamp::test
