// A spawn uses the caller's threads and floating-point environment, and may be
// called by any thread, also inside parallel regions and after fork().
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <set>
#include <thread>
#include <vector>

#include "runtime/float_environment.h"
#include "support/float_environment_scope.h"
#include "tests/runtime/test_kernels.h"

#ifdef _OPENMP
#include <omp.h>
#endif

#if defined(__SANITIZE_THREAD__)
constexpr const char* kNoFork = "TSan cannot fork with threads";
#elif defined(SWAMP_TEST_EMULATED)
constexpr const char* kNoFork = "qemu-user cannot fork with threads";
#else
constexpr const char* kNoFork = nullptr;
#endif

namespace swamp::test {
namespace {

// sum_of() adds 1 to `count` zeros on `machine` and returns their sum.
std::uint64_t sum_of(Machine& machine, std::size_t count) {
  const Args args{1};
  const Operation operation(kAdd, &args);
  std::vector<std::uint32_t> data(count);
  TestList list(operation);
  list.add(count, {data.data()});
  run(machine, list);
  std::uint64_t sum = 0;
  for (const std::uint32_t value : data) sum += value;
  return sum;
}

TEST(ThreadsTest, EverySlaveHasTheCallersFloatEnvironment) {
  for (const std::string& backend : backends()) {
    SCOPED_TRACE(backend);
    Machine machine(machine_config(backend, "view", 8));
    const Operation operation(kEnvironment, nullptr);
    std::vector<std::uint32_t> data(8);
    TestList list(operation);
    list.add(8, {data.data()});

    const auto own = runtime::read_float_environment();
    const unsigned wanted = static_cast<unsigned>(own) | kFlush | kUp;
    runtime::write_float_environment(wanted);
    run(machine, list);
    const auto after = runtime::read_float_environment();
    runtime::write_float_environment(own);
    EXPECT_EQ(after, wanted);
    EXPECT_EQ(data, std::vector<std::uint32_t>(8, wanted));
    // The threads have their own again.
    run(machine, list);
    EXPECT_EQ(data,
              std::vector<std::uint32_t>(8, static_cast<std::uint32_t>(own)));
  }
}

TEST(ThreadsTest, EightCallersAtOnceOnOneMachine) {
  for (const std::string& backend : backends()) {
    for (const std::string& transfer : transfers()) {
      SCOPED_TRACE(backend + " " + transfer);
      Machine machine(machine_config(backend, transfer, 16));
      std::atomic<int> right{0};
      std::vector<std::thread> callers;
      for (int c = 0; c < 8; ++c) {
        callers.emplace_back([&] {
          for (int round = 0; round < 5; ++round) {
            right += sum_of(machine, 30000) == 30000;
          }
        });
      }
      for (std::thread& caller : callers) caller.join();
      EXPECT_EQ(right, 40);
    }
  }
}

TEST(ThreadsTest, WorksInAForkedChild) {
  if (kNoFork != nullptr) GTEST_SKIP() << kNoFork;
  for (const std::string& backend : backends()) {
    SCOPED_TRACE(backend);
    Machine machine(machine_config(backend, "copy", 4));
    ASSERT_EQ(sum_of(machine, 50000), 50000u);  // the pool is started
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      alarm(300);  // a hang is a failure
      bool good = sum_of(machine, 50000) == 50000;
      {
        // Made, used and destroyed in the child.
        Machine own(machine_config(backend, "view", 4));
        good = good && sum_of(own, 50000) == 50000;
      }
      _exit(good ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
    EXPECT_EQ(sum_of(machine, 50000), 50000u);  // the parent still works
  }
}

TEST(ThreadsTest, ParentsMachineMayBeDestroyedInAForkedChild) {
  if (kNoFork != nullptr) GTEST_SKIP() << kNoFork;
  auto machine =
      std::make_unique<Machine>(machine_config("threads", "view", 4));
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(300);
    machine.reset();
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

#ifdef _OPENMP
TEST(ThreadsTest, ObeysTheCallersThreadCount) {
  Machine machine(machine_config("openmp", "view", 8));
  const int own = omp_get_max_threads();
  omp_set_num_threads(1);
  EXPECT_EQ(machine.impl().backend->worker_count(), 1);
  EXPECT_EQ(sum_of(machine, 50000), 50000u);
  omp_set_num_threads(1000);  // at most the number of CPUs is used
  EXPECT_EQ(machine.impl().backend->worker_count(), omp_get_num_procs());
  EXPECT_EQ(sum_of(machine, 50000), 50000u);
  omp_set_num_threads(own);
}

#if defined(SWAMP_HAS_HWLOC) && !defined(SWAMP_TEST_EMULATED)
// A synthetic topology lifts the limit of one thread for each CPU: the slaves
// of 8 NUMA nodes of 24 cores are as many real threads, which share a launch by
// fixed shares and by claims.
TEST(ThreadsTest, AThreadForEachSlaveOfASyntheticTopology) {
  setenv("HWLOC_SYNTHETIC", "NUMANode:8 Core:24 PU:1", 1);
  MachineConfig config;
  config.backend = "openmp";
  Machine machine(config);
  unsetenv("HWLOC_SYNTHETIC");
  ASSERT_EQ(machine.impl().slaves(), 192);
  const int own = omp_get_max_threads();
  for (const int threads : {2, 64, 192}) {
    SCOPED_TRACE(threads);
    omp_set_num_threads(threads);
    EXPECT_EQ(machine.impl().backend->worker_count(), threads);
    EXPECT_EQ(sum_of(machine, 50000), 50000u);
    std::vector<runtime::Claim> claims(static_cast<std::size_t>(threads));
    static std::atomic<int> runs[1000];
    for (std::atomic<int>& run : runs) run = 0;
    runtime::Launch launch;
    launch.slaves = 1000;
    launch.float_environment = runtime::read_float_environment();
    launch.run_slave = [](const runtime::Launch&, int slave, int) noexcept {
      ++runs[slave];
    };
    machine.impl().backend->run(launch);
    launch.claims = claims.data();
    machine.impl().backend->run(launch);
    for (const std::atomic<int>& run : runs) ASSERT_EQ(run, 2);
  }
  omp_set_num_threads(own);
}
#endif

TEST(ThreadsTest, WorksInsideACallersParallelRegion) {
  for (const std::string& backend : backends()) {
    SCOPED_TRACE(backend);
    Machine machine(machine_config(backend, "copy", 8));
    std::atomic<int> right{0};
#pragma omp parallel num_threads(3)
    right += sum_of(machine, 30000) == 30000;
    EXPECT_EQ(right, 3);
  }
}
#endif

TEST(ThreadsTest, BindingLeavesTheCallerUnbound) {
  cpu_set_t before, after;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  for (const std::string& backend : backends()) {
    MachineConfig config = machine_config(backend, "view", 4);
    config.bind = "core";
    Machine machine(config);
    EXPECT_EQ(sum_of(machine, 50000), 50000u);
    ASSERT_EQ(sched_getaffinity(0, sizeof after, &after), 0);
    EXPECT_TRUE(CPU_EQUAL(&before, &after)) << backend;
  }
}

}  // namespace
}  // namespace swamp::test
