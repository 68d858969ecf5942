// Reading a GradScaler from other threads while it works.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <limits>
#include <thread>
#include <vector>

#include "swamp/grad_scaler.h"

namespace swamp::test {
namespace {

// A reader must see numbers of one moment: a scale that some update() left, and
// a report whose parts belong together.
bool looks_right(const GradScaler& scaler) {
  const double scale = scaler.get_scale();
  int exponent = 0;
  if (std::frexp(scale, &exponent) != 0.5) return false;
  const GradScalerStep step = scaler.last_step();
  if (step.found_inf != step.skipped) return false;
  if (step.found_inf != (step.overflow.element_count != 0)) return false;
  if (step.gradient_name !=
      (step.found_inf ? "a name that is allocated" : "")) {
    return false;
  }
  if (step.found_inf && step.scale_after != step.scale_before / 2) return false;
  GradScaler copy;
  copy.load_state_dict(scaler.state_dict());
  return scaler.get_growth_tracker() >= 0 && scaler.is_enabled() &&
         scaler.get_growth_factor() == 2.0 &&
         scaler.get_backoff_factor() == 0.5 &&
         scaler.get_growth_interval() >= 2;
}

TEST(GradScalerThreads, ReadersWhileItSteps) {
  constexpr int kReaders = 3;
  constexpr int kSteps = 300;
  GradScalerOptions options;
  options.growth_interval = 2;
  GradScaler scaler(options);
  std::vector<float> gradient(1000, 1.0f);
  FunctionOptimizer optimizer(
      Tensor{gradient.data(), gradient.size(), kFloat32},
      [] { std::this_thread::yield(); }, {"a name that is allocated"});

  std::atomic<bool> done{false};
  std::atomic<int> wrong{0};
  std::atomic<int> reads{0};
  std::vector<std::thread> readers;
  for (int reader = 0; reader < kReaders; ++reader) {
    readers.emplace_back([&] {
      do {
        if (!looks_right(scaler)) wrong.fetch_add(1);
        reads.fetch_add(1);
      } while (!done.load());
    });
  }
  while (reads.load() == 0) std::this_thread::yield();
  for (int step = 0; step < kSteps; ++step) {
    gradient[500] =
        step % 3 == 0 ? std::numeric_limits<float>::infinity() : 1.0f;
    scaler.scale(1.0f);
    if (step % 2 == 0) scaler.unscale_(optimizer);
    scaler.step(optimizer);
    scaler.update();
    if (step % 10 == 0) scaler.set_growth_interval(2);
    if (step % 50 == 0) scaler.load_state_dict(scaler.state_dict());
  }
  done.store(true);
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(wrong.load(), 0);
  EXPECT_GE(reads.load(), 1);
}

// No lock is held while the optimizer steps, or ranks are reduced: a reader
// that both wait for gets its answer.
TEST(GradScalerThreads, AReaderDoesNotWaitForTheStep) {
  GradScaler scaler;
  const auto ask = [&] {
    double scale = 0.0;
    std::thread reader([&] { scale = scaler.get_scale(); });
    reader.join();
    return scale;
  };
  double in_step = 0.0;
  double in_reduction = 0.0;
  float gradient = 1.0f;
  FunctionOptimizer optimizer(Tensor{&gradient, 1, kFloat32},
                              [&] { in_step = ask(); });
  scaler.set_found_inf_reduction([&](float found_inf) {
    in_reduction = ask();
    return found_inf;
  });
  scaler.scale(1.0f);
  scaler.step(optimizer);
  EXPECT_EQ(in_step, 65536.0);
  EXPECT_EQ(in_reduction, 65536.0);
}

}  // namespace
}  // namespace swamp::test
