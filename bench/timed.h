// The timed loop of every case.
#ifndef SWAMP_BENCH_TIMED_H_
#define SWAMP_BENCH_TIMED_H_

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstddef>

namespace swamp::bench {

// Passes that take no time to speak of come in batches. Google Benchmark
// chooses the number of iterations by its first try; when that try is
// interrupted, it would settle on a single, cold pass.
inline constexpr std::size_t kSpawnBatch = 20;
constexpr std::size_t batch_of_bytes(std::size_t bytes) noexcept {
  constexpr std::size_t kBatchBytes = std::size_t{4} << 20;
  return std::clamp<std::size_t>(kBatchBytes / std::max<std::size_t>(bytes, 1),
                                 1, kSpawnBatch);
}

// kOutOfTime is the error of a repetition that came after the deadline, and was
// left out. They are shuffled, so those before it still cover most cases.
inline constexpr const char* kOutOfTime = "out of time";
inline auto deadline = std::chrono::steady_clock::time_point::max();

// timed_batches() measures pass(), which does a batch. One goes before, untimed:
// threads wake up, plans and caches get warm. SkipWithError() in a pass ends the
// case.
template <class Pass>
void timed_batches(benchmark::State& state, std::size_t batch, Pass pass) {
  if (std::chrono::steady_clock::now() > deadline) {
    // Google Benchmark insists on equal iterations in all repetitions.
    while (
        state.KeepRunningBatch(static_cast<benchmark::IterationCount>(batch))) {
    }
    state.SkipWithError(kOutOfTime);
    return;
  }
  pass();
  if (state.error_occurred()) return;
  while (
      state.KeepRunningBatch(static_cast<benchmark::IterationCount>(batch))) {
    pass();
    benchmark::ClobberMemory();
  }
}

// timed() measures pass(), which comes `batch` times in a row; one goes before.
template <class Pass>
void timed(benchmark::State& state, std::size_t batch, Pass pass) {
  bool warm = false;
  timed_batches(state, batch, [&] {
    for (std::size_t i = warm ? 0 : batch - 1; i < batch; ++i) pass();
    warm = true;
  });
}

}  // namespace swamp::bench

#endif  // SWAMP_BENCH_TIMED_H_
