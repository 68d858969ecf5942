// The same bits on every machine: backend x transfer x ISA x slaves,
// scratchpads of all sizes, guarded pages, several calling threads.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "machines.h"
#include "runtime/machine_impl.h"
#include "runtime/memory_check.h"
#include "sample_list.h"
#include "support/float_environment_scope.h"
#include "support/guarded_pages.h"
#include "swamp/error.h"

namespace swamp::test {
namespace {

const std::vector<MachineShape> kShapes = {
    {1, 1, 2048}, {1, 2, 4096}, {1, 64, 16384}, {6, 64, 4096}};

TEST(UnscaleCross, SameBitsOnEveryMachine) {
  struct Case {
    SampleList list, expected;
    OverflowReport report;
    float inv_scale;
  };
  std::vector<Case> cases;
  for (const auto& [planted, inv_scale] :
       {std::pair<std::size_t, float>{0, 0.7f}, {9, 1e-3f}, {5, 1.0f}}) {
    Case made{mixed_list(11 + planted, planted), {}, {}, inv_scale};
    made.expected = made.list;
    made.report = made.expected.unscale(inv_scale);
    ASSERT_EQ(made.report.element_count != 0, planted != 0);
    cases.push_back(std::move(made));
  }
  const std::size_t reports = runtime::report_count();
  on_machines(kShapes, true, [&](Machine& machine) {
    for (const Case& one : cases) {
      SCOPED_TRACE("inv_scale " + std::to_string(one.inv_scale));
      expect_unscaled(machine, one.list, one.expected, one.report,
                      one.inv_scale);
    }
  });
  EXPECT_EQ(runtime::report_count(), reports);  // of transfer check
}

// The master alone computes the same bits as a spawn.
TEST(UnscaleCross, DefaultTuningOfEveryBackend) {
  const SampleList list = mixed_list(21, 7);
  SampleList expected = list;
  const OverflowReport report = expected.unscale(0.3f);
  SampleList small;
  Random random(5);
  small.add(kFloat16, 33, 1, random);
  small.add(kFloat64, 3, 1, random);
  SampleList small_expected = small;
  small_expected.unscale(0.3f);
  for (const MachineConfig& config : machine_configs(kShapes, false)) {
    SCOPED_TRACE(to_text(config));
    Machine machine(config);
    expect_unscaled(machine, list, expected, report, 0.3f);
    expect_unscaled(machine, small, small_expected, {}, 0.3f);
  }
}

// Every slave computes in the caller's float environment and leaves its own
// thread's as it was.
TEST(UnscaleCross, CallersFloatEnvironmentReachesEverySlave) {
  const SampleList list = mixed_list(31, 3);
  const std::vector<MachineConfig> configs = machine_configs(kShapes, false);
  SampleList plain = list;
  const OverflowReport report = plain.unscale(0x1.8p-6f);
  for (const FloatEnvironment& environment : kFloatEnvironments) {
    SCOPED_TRACE(environment.name);
    SampleList expected = list;
    {
      const ControlScope scope(environment.control);
      expected.unscale(0x1.8p-6f);
    }
    ASSERT_EQ(environment.control == 0, bool{expected.same_as(plain)});
    for (const MachineConfig& config : configs) {
      if (config.slaves_per_group != 64) continue;
      SCOPED_TRACE(to_text(config));
      const auto machine = make_machine(config);
      {
        const ControlScope scope(environment.control);
        expect_unscaled(*machine, list, expected, report, 0x1.8p-6f);
      }
      expect_unscaled(*machine, list, plain, report, 0x1.8p-6f);
      if (HasFailure()) return;
    }
  }
}

constexpr std::size_t kBytes[] = {2, 2, 4, 8};  // by ScalarType

// No byte outside of a tensor is read or written, in any transfer mode: every
// tensor ends, or begins, at a protected page. GuardedList is a tensor of every
// dtype x count x edge of its pages.
class GuardedList {
 public:
  GuardedList() {
    for (const ScalarType type : {kFloat16, kBFloat16, kFloat32, kFloat64}) {
      const std::size_t bytes = kBytes[type];
      for (const std::size_t count : {1u, 2u, 3u, 17u, 100u, 1023u, 20001u}) {
        for (const bool at_end : {false, true}) {
          pages_.push_back(std::make_unique<GuardedPages>(count * bytes));
          GuardedPages& pages = *pages_.back();
          std::byte* data =
              at_end ? pages.end() - count * bytes : pages.begin();
          std::memset(pages.begin(), 0x3c, pages.bytes());
          tensors_.push_back({data, count, type});
        }
      }
    }
  }

  const std::vector<Tensor>& tensors() const { return tensors_; }

  // slack_is_untouched() compares the bytes of the pages outside the tensors.
  bool slack_is_untouched() const {
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      const auto* data = static_cast<const std::byte*>(tensors_[i].data);
      const std::byte* end =
          data + tensors_[i].count * kBytes[tensors_[i].dtype];
      for (const std::byte* at = pages_[i]->begin(); at < data; ++at) {
        if (*at != std::byte{0x3c}) return false;
      }
      for (const std::byte* at = end; at < pages_[i]->end(); ++at) {
        if (*at != std::byte{0x3c}) return false;
      }
    }
    return true;
  }

 private:
  std::vector<std::unique_ptr<GuardedPages>> pages_;
  std::vector<Tensor> tensors_;
};

TEST(UnscaleGuard, NothingOutsideOfTheTensorsIsTouched) {
  on_machines({{1, 3, 4096}, {1, 64, 65536}}, true, [](Machine& machine) {
    const GuardedList list;
    for (const float inv_scale : {-1.0f, 1.0f}) {
      EXPECT_TRUE(same_report(unscale(list.tensors(), inv_scale, machine), {}));
    }
    EXPECT_TRUE(list.slack_is_untouched());
    for (const Tensor& tensor : list.tensors()) {
      const auto* data = static_cast<const unsigned char*>(tensor.data);
      const std::size_t bytes = kBytes[tensor.dtype];
      for (std::size_t i = 0; i < tensor.count * bytes; ++i) {
        // The sign, in one byte of each element, and nothing else.
        const std::size_t sign =
            __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? bytes - 1 : 0;
        ASSERT_EQ(data[i], i % bytes == sign ? 0xbc : 0x3c);
      }
    }
  });
}

// LDM and tiles of all sizes: a list is either an error or has the right bits.
MachineConfig serial(const char* transfer, std::size_t ldm_bytes) {
  MachineConfig config;
  config.backend = "serial";
  config.transfer = transfer;
  config.core_groups = 1;
  config.slaves_per_group = 5;
  config.ldm_bytes = ldm_bytes;
  return config;
}

class UnscaleLdm : public testing::TestWithParam<const char*> {
 protected:
  UnscaleLdm() : list_(mixed_list(41, 5)), expected_(list_) {
    expected_report_ = expected_.unscale(0.7f);
    EXPECT_GT(expected_report_.element_count, 0u);
  }

  void expect_contract(Machine& machine) {
    expect_unscaled(machine, list_, expected_, expected_report_, 0.7f);
  }

  SampleList list_, expected_;
  OverflowReport expected_report_;
  std::size_t reports_ = runtime::report_count();
};

TEST_P(UnscaleLdm, EverySizeIsRefusedOrRight) {
  int refused = 0;
  int right = 0;
  for (std::size_t bytes = 1024; bytes < 4096;
       bytes += bytes % 3 == 0 ? 61 : 67) {
    SCOPED_TRACE(std::to_string(bytes) + " bytes of LDM");
    const auto machine = make_machine(serial(GetParam(), bytes));
    try {
      expect_contract(*machine);
      ++right;
    } catch (const Error&) {
      EXPECT_EQ(right, 0) << "more LDM than what was enough before";
      ++refused;
    }
    if (HasFailure()) return;
  }
  EXPECT_GT(refused, 0);
  EXPECT_GT(right, 20);
  EXPECT_EQ(runtime::report_count(), reports_);
}

TEST_P(UnscaleLdm, TilesOfAnySize) {
  for (const std::size_t tile_bytes :
       {std::size_t{0}, std::size_t{1}, std::size_t{129}, std::size_t{1000},
        std::size_t{8192}, std::size_t{65536}, ~std::size_t{0} / 2}) {
    SCOPED_TRACE(std::to_string(tile_bytes) + " bytes a tile");
    const auto machine = make_machine(serial(GetParam(), 64 * 1024));
    machine->impl().tuning.tile_bytes = tile_bytes;
    expect_contract(*machine);
  }
  EXPECT_EQ(runtime::report_count(), reports_);
}

INSTANTIATE_TEST_SUITE_P(All, UnscaleLdm, testing::Values("copy", "check"),
                         [](const testing::TestParamInfo<const char*>& it) {
                           return std::string(it.param);
                         });

// Any thread may call, also several at once on one machine.
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

// Checking only reads, so all threads may use one list. Half of them also use a
// list with an error and one without inf.
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
