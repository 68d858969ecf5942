// Memory: nothing is allocated once warm, and a call without memory fails and
// changes nothing.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "runtime/machine_impl.h"
#include "support/operators.h"
#include "swamp/amp.h"
#include "swamp/c_api.h"
#include "swamp/error.h"
#include "swamp/float_formats.h"
#include "swamp/foreach.h"
#include "swamp/mixed_precision.h"

#if defined(__GNUC__) && !defined(__clang__)
// g++ does not see that both operators below are replaced.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
#endif

// This executable's operator new counts, and fails above the limit.
namespace {

constexpr std::size_t kUnlimited = ~std::size_t{0};
std::atomic<std::size_t> count{0};
std::atomic<std::size_t> limit{kUnlimited};
std::atomic<std::size_t> all_bytes{0};

void* allocate(std::size_t bytes, std::size_t alignment) noexcept {
  if (count.fetch_add(1) >= limit.load()) return nullptr;
  all_bytes.fetch_add(bytes);
  const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  return std::aligned_alloc(alignment, rounded == 0 ? alignment : rounded);
}

void* allocate_or_throw(std::size_t bytes, std::size_t alignment) {
  void* memory = allocate(bytes, alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

constexpr std::size_t kDefault = alignof(std::max_align_t);

}  // namespace

void* operator new(std::size_t bytes) {
  return allocate_or_throw(bytes, kDefault);
}
void* operator new[](std::size_t bytes) {
  return allocate_or_throw(bytes, kDefault);
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return allocate(bytes, kDefault);
}
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept {
  return allocate(bytes, kDefault);
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return allocate_or_throw(bytes, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  return allocate_or_throw(bytes, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t bytes, std::align_val_t alignment,
                   const std::nothrow_t&) noexcept {
  return allocate(bytes, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment,
                     const std::nothrow_t&) noexcept {
  return allocate(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}

namespace swamp::test {

namespace {

// The number of allocations so far, by any thread, and the sum of their bytes,
// whether they were freed or not.
std::size_t allocations() { return count.load(); }
std::size_t allocated_bytes() { return all_bytes.load(); }

// After `allowed` more allocations, all fail.
void fail_after(std::size_t allowed) { limit.store(count.load() + allowed); }
void fail_never() { limit.store(kUnlimited); }

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

MachineConfig config_of(const Case& one) {
  MachineConfig config;
  config.backend = one.backend;
  config.transfer = one.transfer;
  config.slaves_per_group = 8;
  return config;
}

// expect_none_once_warm() calls twice, then counts.
template <class Call>
void expect_none_once_warm(Call call) {
  call();
  call();
  const std::size_t before = allocations();
  for (int i = 0; i < 10; ++i) call();
  EXPECT_EQ(allocations() - before, 0u);
}

// for_each_machine() leaves out check, which allocates.
template <class Body>
void for_each_machine(Body body) {
  for (const Case& one : cases()) {
    if (one.transfer == "check") continue;
    SCOPED_TRACE(one.backend + " " + one.transfer);
    Machine machine(config_of(one));
    body(machine);
  }
}

// StepData is a model of a few tensors, one of them float32, and the other
// arrays of a step.
struct StepData {
  StepData() {
    for (std::size_t i = 0; i < 8; ++i) {
      const std::size_t count = 1000 + 9000 * i;
      weights.emplace_back(count, bfloat16_from_float(1.0f));
      gradients.emplace_back(count, bfloat16_from_float(2.0f));
      for (auto* list : {&masters, &exp_avgs, &exp_avg_sqs}) {
        list->emplace_back(count, 1.0f);
      }
      model.push_back({weights[i].data(), count, kBFloat16});
      grads.push_back({gradients[i].data(), count, kBFloat16});
      params.push_back({masters[i].data(), count, kFloat32});
      m.push_back({exp_avgs[i].data(), count, kFloat32});
      v.push_back({exp_avg_sqs[i].data(), count, kFloat32});
    }
  }
  ParameterGroup group() const {
    ParameterGroup all;
    for (std::size_t i = 0; i < model.size(); ++i) {
      all.parameters.push_back({"p" + std::to_string(i), model[i], grads[i]});
    }
    return all;
  }
  std::vector<std::vector<std::uint16_t>> weights, gradients;
  std::vector<std::vector<float>> masters, exp_avgs, exp_avg_sqs;
  std::vector<Tensor> model, grads, params, m, v;
};

TEST(AllocationTest, PassesOfAnOptimizerNeedNoneOnceWarm) {
  for_each_machine([](Machine& machine) {
    StepData data;
    expect_none_once_warm([&] {
      float found_inf = 0;
      amp_foreach_non_finite_check_and_unscale_(data.grads, found_inf, -1.0f,
                                                nullptr, &machine);
      EXPECT_GT(foreach_norm(data.grads, 0.5f, &found_inf, nullptr, &machine),
                0);
      AdamStep step;
      step.step = 1;
      foreach_adam_(data.params, data.grads, data.m, data.v, data.model, step,
                    {}, &machine);
      foreach_cast_(data.model, data.params, 1, &machine);
      foreach_accumulate_(data.m, data.grads, 1, &machine);
    });
  });
}

TEST(AllocationTest, StepsOfAMixedPrecisionOptimizerNeedNoneOnceWarm) {
  for (const bool fused : {true, false}) {
    for (const bool shard : {false, true}) {
      SCOPED_TRACE(testing::Message()
                   << "fused " << fused << " shard " << shard);
      StepData data;
      MixedPrecisionOptions options;
      options.bf16 = true;
      options.loss_scale = 2;
      options.clip_grad = 1;
      options.fused = fused;
      options.shard = shard;
      options.communicator = &Communicator::alone();
      MixedPrecisionOptimizer optimizer({data.group()}, options);
      expect_none_once_warm([&] { EXPECT_TRUE(optimizer.step().success); });
    }
  }
}

// The first calls of a thread allocate, in total, at most a hundredth of the
// tensors' bytes plus a MiB.
TEST(AllocationTest, CallsNeedLittleMemory) {
  const std::vector<float> values(5000000, 1.0f);
  auto* const data = const_cast<float*>(values.data());  // only read
  for (const std::size_t count :
       {std::size_t{16}, std::size_t{5000}, std::size_t{5000000}}) {
    std::vector<Tensor> tensors;
    const std::size_t most =
        std::min<std::size_t>(values.size() / count, 10000);
    for (std::size_t i = 0; i < most; ++i) {
      tensors.push_back({data + i * count, count, kFloat32});
    }
    for (const Case& one : cases()) {
      if (one.transfer == "check") continue;
      SCOPED_TRACE(one.backend + " " + one.transfer + " " +
                   std::to_string(count));
      MachineConfig config = config_of(one);
      config.core_groups = 6;
      config.ldm_bytes = 8192;
      Machine machine(config);
      std::size_t taken = 0;
      std::thread([&] {
        const std::size_t before = allocated_bytes();
        float found_inf = 0;
        amp_foreach_non_finite_check_and_unscale_(tensors, found_inf, 1.0f,
                                                  nullptr, &machine);
        foreach_norm(tensors, 1, nullptr, nullptr, &machine);
        taken = allocated_bytes() - before;
      }).join();
      EXPECT_GT(taken, 0u);
      EXPECT_LE(taken, most * count * sizeof(float) / 100 + (1u << 20));
    }
  }
}

// is_one_launch() returns whether an operator has written nothing if it fails:
// of several launches, the earlier ones have written when a later one fails.
// The later launches of the norms' backward, and of channels in blocks, have
// other slaves, whose LDM needs memory unless transfers are views.
bool is_one_launch(const OperatorCase& one, const std::string& transfer) {
  const auto has = [&](const char* text) {
    return one.operation.find(text) != std::string::npos;
  };
  return !has("attention") && !has("norm_both") && !has("moe_rows") &&
         !has("quantize_blocks") &&
         !((has("norm_backward") || has("channel_norm")) &&
           transfer != "view");
}

// Fails the first allocation, then the second, and so on until the call
// succeeds. A new thread each time, because a thread keeps its memory. Each
// operator runs on one of the machines.
TEST(AllocationTest, CallsWithoutMemoryChangeNothing) {
  const std::vector<Case> all = cases();
  Machine plain;
  std::size_t next = 0;
  for (const OperatorCase* one : one_of_each()) {
    const Case& on = all[next++ % all.size()];
    SCOPED_TRACE(one->name() + " " + on.backend + " " + on.transfer);
    MachineConfig config = config_of(on);
    config.ldm_bytes = one->ldm_bytes();
    Machine machine(config);
    SeededCall call(*one);
    call.run(plain);
    const auto expected = call.results();
    bool done = false;
    std::size_t failures = 0;
    for (std::size_t allowed = 0; !done; ++allowed) {
      ASSERT_LT(allowed, 1000u);
      swamp_status status = SWAMP_OK;
      std::thread([&] {
        fail_after(allowed);
        try {
          call.run(machine);
        } catch (const Error& error) {
          status = error.status();
        } catch (const std::bad_alloc&) {  // of the test
          status = SWAMP_OUT_OF_MEMORY;
        }
        fail_never();
      }).join();
      done = status == SWAMP_OK;
      failures += !done;
      EXPECT_TRUE(done || status == SWAMP_OUT_OF_MEMORY) << status;
      EXPECT_TRUE(done ? call.gives(expected)
                       : !is_one_launch(*one, on.transfer) ||
                             call.is_untouched())
          << allowed;
    }
    EXPECT_GE(failures, 3u);  // segments, ranges, results at least
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
