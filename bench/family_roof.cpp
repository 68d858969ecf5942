// roof/scale and roof/read: what the others are compared with.
#include <cstdint>
#include <iterator>

#include "bench/memory.h"
#include "bench/roof.h"
#include "bench/suite.h"
#include "bench/threads.h"

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

}  // namespace

std::vector<std::string> scale_roof(Suite& suite, std::size_t bytes,
                                    int threads) {
  const std::size_t count = line_floats(bytes);
  const Work work{2.0 * static_cast<double>(count * sizeof(float)), 0};
  std::vector<std::string> names;
  for (std::size_t p = 0; p < std::size(kPrefetchBytes); ++p) {
    names.push_back(roof_name("scale", p, bytes, threads));
    suite.add(names.back(), threads, work, [=](benchmark::State& state) {
      auto* data = reinterpret_cast<float*>(shared_memory(bytes));
      const ScaleLoop loop = scale_loop(p);
      for (auto _ : state) {
        for_each_part(threads, count, kLineFloats,
                      [=](std::size_t begin, std::size_t end) {
                        loop(data + begin, end - begin, kFlipSign);
                      });
        benchmark::ClobberMemory();
      }
    });
  }
  return names;
}

std::vector<std::string> read_roof(Suite& suite, std::size_t bytes,
                                   int threads) {
  const std::size_t count = line_floats(bytes);
  const Work work{static_cast<double>(count * sizeof(float)), 0};
  std::vector<std::string> names;
  for (std::size_t p = 0; p < std::size(kPrefetchBytes); ++p) {
    names.push_back(roof_name("read", p, bytes, threads));
    suite.add(names.back(), threads, work, [=](benchmark::State& state) {
      const auto* data =
          reinterpret_cast<const std::uint32_t*>(shared_memory(bytes));
      const ReadLoop loop = read_loop(p);
      for (auto _ : state) {
        for_each_part(
            threads, count, kLineFloats,
            [=](std::size_t begin, std::size_t end) {
              benchmark::DoNotOptimize(loop(data + begin, end - begin));
            });
        benchmark::ClobberMemory();
      }
    });
  }
  return names;
}

}  // namespace swamp::bench
