#include "bench/suite.h"

#include "bench/threads.h"

namespace swamp::bench {

void Suite::add(const std::string& name, int threads, const Work& work,
                Body body) {
  if (results_.declared(name)) return;
  results_.declare(name, work);
  benchmark::RegisterBenchmark(name.c_str(), [threads, work,
                                              body = std::move(body)](
                                                 benchmark::State& state) {
    const ThreadsScope scope(threads);
    body(state);
    const auto iterations = static_cast<double>(state.iterations());
    if (work.bytes != 0) {
      state.SetBytesProcessed(
          static_cast<std::int64_t>(work.bytes * iterations));
    }
    if (work.items != 0) {
      state.SetItemsProcessed(
          static_cast<std::int64_t>(work.items * iterations));
    }
  })->UseRealTime();
}

std::vector<Size> sizes(const Options& options) {
  return {{"L1", 16 * 1024},
          {"L2", 512 * 1024},
          {"L3", 8 * kMib},
          {"memory", options.memory_bytes}};
}

std::string threads_name(int threads) {
  return "/threads:" + std::to_string(threads);
}

std::string threads_text(int threads) {
  return std::to_string(threads) + (threads == 1 ? " thread" : " threads");
}

}  // namespace swamp::bench
