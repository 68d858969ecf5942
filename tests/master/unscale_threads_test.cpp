// Any thread may call, also several at once on one machine.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "machines.h"
#include "sample_list.h"
#include "swamp/error.h"

namespace swamp::test {
namespace {

constexpr int kThreads = 8;
constexpr int kRounds = 5;

// run_threads() starts all threads at the same time.
template <class Body>
void run_threads(Body body) {
  std::atomic<int> waiting{kThreads};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      waiting.fetch_sub(1);
      while (waiting.load() != 0) std::this_thread::yield();
      body(t);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

class UnscaleThreads : public testing::TestWithParam<MachineConfig> {};

TEST_P(UnscaleThreads, EachWithACopyOfTheList) {
  const auto machine = make_machine(GetParam());
  const SampleList list = mixed_list(5, 6);
  SampleList expected = list;
  const OverflowReport report = expected.unscale(0.25f);
  std::atomic<int> good{0};
  run_threads([&](int) {
    for (int round = 0; round < kRounds; ++round) {
      SampleList own = list;
      float found_inf = 0.0f;
      OverflowReport found;
      amp_foreach_non_finite_check_and_unscale_(own.tensors(), found_inf, 0.25f,
                                                &found, machine.get());
      if (found_inf == 1.0f && own.same_as(expected) &&
          same_report(found, report)) {
        good.fetch_add(1);
      }
    }
  });
  EXPECT_EQ(good.load(), kThreads * kRounds);
}

// Checking only reads, so all may look at one list. Half of the threads have
// another list, with an error, and one without inf.
TEST_P(UnscaleThreads, AllOnOneListAndErrorsBetween) {
  const auto machine = make_machine(GetParam());
  SampleList list = mixed_list(6, 4);
  SampleList clean = mixed_list(6, 0);
  const std::vector<Tensor> shared = list.tensors();
  const std::vector<Tensor> clean_tensors = clean.tensors();
  std::vector<Tensor> broken = shared;
  broken.push_back({nullptr, 1, kFloat32});
  const OverflowReport report = SampleList(list).unscale(1.0f);
  std::atomic<int> good{0};
  run_threads([&](int thread) {
    for (int round = 0; round < kRounds; ++round) {
      float found_inf = 0.0f;
      OverflowReport found;
      const int kind = (thread + round) % 3;
      bool threw = false;
      try {
        amp_foreach_non_finite_check_and_unscale_(kind == 0   ? shared
                                                  : kind == 1 ? clean_tensors
                                                              : broken,
                                                  found_inf, 1.0f, &found,
                                                  machine.get());
      } catch (const Error&) {
        threw = true;
      }
      const bool right =
          kind == 0   ? found_inf == 1.0f && same_report(found, report)
          : kind == 1 ? found_inf == 0.0f && same_report(found, {})
                      : found_inf == 0.0f;
      if (right && threw == (kind == 2)) good.fetch_add(1);
    }
  });
  EXPECT_EQ(good.load(), kThreads * kRounds);
}

INSTANTIATE_TEST_SUITE_P(All, UnscaleThreads,
                         testing::ValuesIn(machine_configs({{1, 4, 16384}},
                                                           false)),
                         [](const testing::TestParamInfo<MachineConfig>& it) {
                           return it.param.backend + "_" + it.param.transfer;
                         });

}  // namespace
}  // namespace swamp::test
