// The roof: the fastest plain loops over memory that a person would write for
// this CPU. They know nothing of inf, nan, lists or slaves.
#ifndef SWAMP_BENCH_ROOF_H_
#define SWAMP_BENCH_ROOF_H_

#include <cstddef>
#include <cstdint>

namespace swamp::bench {

// How far ahead a loop prefetches. Which is best depends on CPU and size, so
// all are measured and the best counts.
inline constexpr int kPrefetchBytes[] = {0, 512, 1024, 2048, 4096};

// A scale loop is `for (x : data) x *= scale`, in place; `count` is a multiple
// of kLineFloats.
using ScaleLoop = void (*)(float* data, std::size_t count, float scale);
// A read loop returns the or of all words, so that none can be left out.
using ReadLoop = std::uint32_t (*)(const std::uint32_t* data,
                                   std::size_t count);

inline constexpr std::size_t kLineFloats = 16;

// The loops for this CPU's widest vectors, chosen at run time. `prefetch` is an
// index into kPrefetchBytes.
ScaleLoop scale_loop(std::size_t prefetch) noexcept;
ReadLoop read_loop(std::size_t prefetch) noexcept;

}  // namespace swamp::bench

#endif  // SWAMP_BENCH_ROOF_H_
