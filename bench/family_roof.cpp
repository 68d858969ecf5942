// roof/scale and roof/read: what the others are compared with.
#include <cstdint>
#include <iterator>

#include "bench/memory.h"
#include "bench/roof.h"
#include "bench/suite.h"
#include "bench/threads.h"
#include "bench/timed.h"

namespace swamp::bench {
namespace {

std::string roof_name(const char* kind, std::size_t prefetch, std::size_t bytes,
                      int threads) {
  return std::string("roof/") + kind +
         "/prefetch:" + std::to_string(kPrefetchBytes[prefetch]) +
         "/bytes:" + std::to_string(bytes) + threads_name(threads);
}

// Whole lines only; a list may end anywhere.
std::size_t line_floats(std::size_t bytes) {
  return bytes / sizeof(float) / kLineFloats * kLineFloats;
}

// candidates() calls add(prefetch index, threads) for every variant of the
// roof. With more threads the loop on one thread is a candidate too: it wins
// where the data is too small to share. In quick runs three distances must do.
template <class Add>
void candidates(const Suite& suite, int threads, Add add) {
  for (const int one : {1, threads}) {
    for (std::size_t p = 0; p < std::size(kPrefetchBytes); ++p) {
      const int bytes = kPrefetchBytes[p];
      if (suite.quick() && bytes != 0 && bytes < 2048) continue;
      add(p, one);
    }
    if (threads == 1) return;
  }
}

}  // namespace

std::vector<std::string> scale_roof(Suite& suite, std::size_t bytes,
                                    int threads) {
  const std::size_t count = line_floats(bytes);
  const Work work{2.0 * static_cast<double>(count * sizeof(float)), 0};
  std::vector<std::string> names;
  candidates(suite, threads, [&](std::size_t p, int team) {
    names.push_back(roof_name("scale", p, bytes, team));
    suite.add(names.back(), team, work, [=](benchmark::State& state) {
      auto* data = reinterpret_cast<float*>(shared_memory(bytes));
      const ScaleLoop loop = scale_loop(p);
      timed(state, batch_of_bytes(bytes), [=] {
        for_each_part(team, count, kLineFloats,
                      [=](std::size_t begin, std::size_t end) {
                        loop(data + begin, end - begin, kFlipSign);
                      });
      });
    });
  });
  return names;
}

std::vector<std::string> read_roof(Suite& suite, std::size_t bytes,
                                   int threads) {
  const std::size_t count = line_floats(bytes);
  const Work work{static_cast<double>(count * sizeof(float)), 0};
  std::vector<std::string> names;
  candidates(suite, threads, [&](std::size_t p, int team) {
    names.push_back(roof_name("read", p, bytes, team));
    suite.add(names.back(), team, work, [=](benchmark::State& state) {
      const auto* data =
          reinterpret_cast<const std::uint32_t*>(shared_memory(bytes));
      const ReadLoop loop = read_loop(p);
      timed(state, batch_of_bytes(bytes), [=] {
        for_each_part(
            team, count, kLineFloats, [=](std::size_t begin, std::size_t end) {
              benchmark::DoNotOptimize(loop(data + begin, end - begin));
            });
      });
    });
  });
  return names;
}

}  // namespace swamp::bench
