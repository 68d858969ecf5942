#include "bench/roof.h"

namespace swamp::bench {
namespace {

#define SWAMP_INLINE inline __attribute__((always_inline))

// A line of memory as one value, so that the loop is vector code whatever the
// optimiser thinks of it: one to four registers of the target.
using FloatLine = float __attribute__((vector_size(64), aligned(4), may_alias));
using WordLine =
    std::uint32_t __attribute__((vector_size(64), aligned(4), may_alias));

// As many lines a turn as the kernels take; the rest one by one.
constexpr std::size_t kLines = 4;

template <int kPrefetch, class Line>
SWAMP_INLINE void prefetch(const Line* line) {
  if constexpr (kPrefetch != 0) {
    __builtin_prefetch(reinterpret_cast<const char*>(line) + kPrefetch);
  }
}

template <int kPrefetch>
SWAMP_INLINE void scale_lines(float* data, std::size_t count, float scale) {
  auto* line = reinterpret_cast<FloatLine*>(data);
  auto* const end = line + count / kLineFloats;
  for (; end - line >= std::ptrdiff_t{kLines}; line += kLines) {
    for (std::size_t i = 0; i < kLines; ++i) prefetch<kPrefetch>(line + i);
    for (std::size_t i = 0; i < kLines; ++i) line[i] *= scale;
  }
  for (; line != end; ++line) *line *= scale;
}

// Each of the four lines has an accumulator of its own: one would make every
// or wait for the one before.
template <int kPrefetch>
SWAMP_INLINE std::uint32_t read_lines(const std::uint32_t* data,
                                      std::size_t count) {
  auto* line = reinterpret_cast<const WordLine*>(data);
  auto* const end = line + count / kLineFloats;
  WordLine sum0 = {}, sum1 = {}, sum2 = {}, sum3 = {};
  for (; end - line >= std::ptrdiff_t{kLines}; line += kLines) {
    for (std::size_t i = 0; i < kLines; ++i) prefetch<kPrefetch>(line + i);
    sum0 |= line[0];
    sum1 |= line[1];
    sum2 |= line[2];
    sum3 |= line[3];
  }
  for (; line != end; ++line) sum0 |= *line;
  sum0 |= sum1 | sum2 | sum3;
  std::uint32_t all = 0;
  for (std::size_t i = 0; i < kLineFloats; ++i) all |= sum0[i];
  return all;
}

// The same loops, compiled for each kind of vector that an x86 may have.
#if defined(__x86_64__) && defined(__GNUC__)
#if defined(__clang__)
#define SWAMP_AVX512 "avx512f"
#else
#define SWAMP_AVX512 "avx512f,prefer-vector-width=512"
#endif
template <int kPrefetch>
__attribute__((target(SWAMP_AVX512))) void scale_avx512(float* data,
                                                        std::size_t count,
                                                        float scale) {
  scale_lines<kPrefetch>(data, count, scale);
}
template <int kPrefetch>
__attribute__((target(SWAMP_AVX512))) std::uint32_t read_avx512(
    const std::uint32_t* data, std::size_t count) {
  return read_lines<kPrefetch>(data, count);
}
template <int kPrefetch>
__attribute__((target("avx2"))) void scale_avx2(float* data, std::size_t count,
                                                float scale) {
  scale_lines<kPrefetch>(data, count, scale);
}
template <int kPrefetch>
__attribute__((target("avx2"))) std::uint32_t read_avx2(
    const std::uint32_t* data, std::size_t count) {
  return read_lines<kPrefetch>(data, count);
}
#endif

template <int kPrefetch>
void scale_plain(float* data, std::size_t count, float scale) {
  scale_lines<kPrefetch>(data, count, scale);
}
template <int kPrefetch>
std::uint32_t read_plain(const std::uint32_t* data, std::size_t count) {
  return read_lines<kPrefetch>(data, count);
}

struct Loops {
  ScaleLoop scale;
  ReadLoop read;
};

template <int kPrefetch>
Loops best_loops() noexcept {
#if defined(__x86_64__) && defined(__GNUC__)
  if (__builtin_cpu_supports("avx512f")) {
    return {scale_avx512<kPrefetch>, read_avx512<kPrefetch>};
  }
  if (__builtin_cpu_supports("avx2")) {
    return {scale_avx2<kPrefetch>, read_avx2<kPrefetch>};
  }
#endif
  return {scale_plain<kPrefetch>, read_plain<kPrefetch>};
}

Loops loops(std::size_t prefetch) noexcept {
  static const Loops all[] = {
      best_loops<kPrefetchBytes[0]>(), best_loops<kPrefetchBytes[1]>(),
      best_loops<kPrefetchBytes[2]>(), best_loops<kPrefetchBytes[3]>(),
      best_loops<kPrefetchBytes[4]>()};
  return all[prefetch];
}

}  // namespace

ScaleLoop scale_loop(std::size_t prefetch) noexcept {
  return loops(prefetch).scale;
}
ReadLoop read_loop(std::size_t prefetch) noexcept {
  return loops(prefetch).read;
}

}  // namespace swamp::bench
