#include "bench/stream_roof.h"

#include <cstdint>
#include <cstring>

#include "bench/memory.h"
#include "bench/threads.h"
#include "bench/timed.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace swamp::bench {
namespace {

#define SWAMP_INLINE inline __attribute__((always_inline))

// A line of memory as one value: one to four registers of the target.
using Line = float __attribute__((vector_size(64), aligned(64), may_alias));

constexpr std::size_t kLineBytes = 64;
constexpr std::size_t kPage = 4096;
constexpr int kPrefetch[] = {0, 1024, 4096};

template <bool kPast>
SWAMP_INLINE void store(const Line& value, Line* to) {
#if defined(__SSE2__)
  if constexpr (kPast) {
    __m128i parts[4];
    std::memcpy(parts, &value, sizeof parts);
    for (int i = 0; i < 4; ++i) {
      _mm_stream_si128(reinterpret_cast<__m128i*>(to) + i, parts[i]);
    }
    return;
  }
#endif
  *to = value;
}

// Loop is the pass over kStreamUnit elements after the other. What is read goes
// into the arrays that move, so that nothing can be left out.
template <std::size_t kIn, std::size_t kInout, std::size_t kOut, int kAhead,
          bool kPast>
SWAMP_INLINE void stream_lines(std::byte* const* arrays, std::size_t begin,
                               std::size_t end, float scale) {
  constexpr std::size_t kInLines = kIn * kStreamUnit / kLineBytes;
  constexpr std::size_t kOutLines = kOut * kStreamUnit / kLineBytes;
  auto* in = reinterpret_cast<const Line*>(arrays[0] + begin * kIn);
  Line* inout[kInout + 1];
  for (std::size_t s = 0; s < kInout; ++s) {
    inout[s] = reinterpret_cast<Line*>(arrays[1 + s] + begin * 4);
  }
  auto* out = reinterpret_cast<Line*>(arrays[1 + kInout] + begin * kOut);
  for (std::size_t i = begin; i < end; i += kStreamUnit) {
    if constexpr (kAhead != 0) {
      constexpr std::size_t kLines = kAhead / kLineBytes;
      for (std::size_t k = 0; k < kInLines; ++k) {
        __builtin_prefetch(in + kLines + k);
      }
      for (std::size_t s = 0; s < kInout; ++s) {
        for (std::size_t k = 0; k < 2; ++k) {
          __builtin_prefetch(inout[s] + kLines + k);
        }
      }
    }
    Line read[2] = {in[0], in[kInLines - 1]};
    for (std::size_t s = 0; s < kInout; ++s) {
      for (std::size_t k = 0; k < 2; ++k) {
        read[k] = inout[s][k] * scale + read[k];
        inout[s][k] = read[k];
      }
      inout[s] += 2;
    }
    if constexpr (kOutLines == 1) store<kPast>(read[0] + read[1], out);
    if constexpr (kOutLines == 2) {
      store<kPast>(read[0], out);
      store<kPast>(read[1], out + 1);
    }
    in += kInLines;
    out += kOutLines;
  }
#if defined(__SSE2__)
  if constexpr (kPast) _mm_sfence();
#endif
}

using StreamLoop = void (*)(std::byte* const* arrays, std::size_t begin,
                            std::size_t end, float scale);

#if defined(__x86_64__) && defined(__GNUC__)
#if defined(__clang__)
#define SWAMP_AVX512 "avx512f"
#else
#define SWAMP_AVX512 "avx512f,prefer-vector-width=512"
#endif
template <std::size_t kIn, std::size_t kInout, std::size_t kOut, int kAhead,
          bool kPast>
__attribute__((target(SWAMP_AVX512))) void stream_avx512(
    std::byte* const* arrays, std::size_t begin, std::size_t end, float scale) {
  stream_lines<kIn, kInout, kOut, kAhead, kPast>(arrays, begin, end, scale);
}
template <std::size_t kIn, std::size_t kInout, std::size_t kOut, int kAhead,
          bool kPast>
__attribute__((target("avx2"))) void stream_avx2(std::byte* const* arrays,
                                                 std::size_t begin,
                                                 std::size_t end, float scale) {
  stream_lines<kIn, kInout, kOut, kAhead, kPast>(arrays, begin, end, scale);
}
#endif
template <std::size_t kIn, std::size_t kInout, std::size_t kOut, int kAhead,
          bool kPast>
void stream_plain(std::byte* const* arrays, std::size_t begin, std::size_t end,
                  float scale) {
  stream_lines<kIn, kInout, kOut, kAhead, kPast>(arrays, begin, end, scale);
}

template <std::size_t kIn, std::size_t kInout, std::size_t kOut, int kAhead,
          bool kPast>
StreamLoop best_loop() {
#if defined(__x86_64__) && defined(__GNUC__)
  if (__builtin_cpu_supports("avx512f")) {
    return stream_avx512<kIn, kInout, kOut, kAhead, kPast>;
  }
  if (__builtin_cpu_supports("avx2")) {
    return stream_avx2<kIn, kInout, kOut, kAhead, kPast>;
  }
#endif
  return stream_plain<kIn, kInout, kOut, kAhead, kPast>;
}

struct Variant {
  int prefetch;
  bool past;
  StreamLoop loop;
};

template <std::size_t kIn, std::size_t kInout, std::size_t kOut>
std::vector<Variant> variants() {
  std::vector<Variant> all{
      {kPrefetch[0], false,
       best_loop<kIn, kInout, kOut, kPrefetch[0], false>()},
      {kPrefetch[1], false,
       best_loop<kIn, kInout, kOut, kPrefetch[1], false>()},
      {kPrefetch[2], false,
       best_loop<kIn, kInout, kOut, kPrefetch[2], false>()}};
#if defined(__SSE2__)
  if (kOut != 0) {
    all.push_back({kPrefetch[0], true,
                   best_loop<kIn, kInout, kOut, kPrefetch[0], true>()});
    all.push_back({kPrefetch[2], true,
                   best_loop<kIn, kInout, kOut, kPrefetch[2], true>()});
  }
#endif
  return all;
}

std::vector<Variant> variants_of(const Streams& streams) {
  const std::string name = streams.name();
#define SWAMP_STREAMS(in, inout, out) \
  if (name == Streams{in, inout, out}.name()) return variants<in, inout, out>();
  SWAMP_STREAMS(2, 0, 4)
  SWAMP_STREAMS(4, 0, 2)
  SWAMP_STREAMS(4, 0, 4)
  SWAMP_STREAMS(2, 1, 0)
  SWAMP_STREAMS(4, 1, 0)
  SWAMP_STREAMS(2, 1, 2)
  SWAMP_STREAMS(2, 2, 2)
  SWAMP_STREAMS(4, 2, 0)
  SWAMP_STREAMS(2, 3, 2)
  SWAMP_STREAMS(4, 3, 0)
  SWAMP_STREAMS(4, 3, 2)
#undef SWAMP_STREAMS
  return {};
}

}  // namespace

StreamArrays::StreamArrays(const Streams& streams, std::size_t count)
    : bytes(0) {
  const auto add = [&](std::size_t element_bytes) {
    // Arrays in step with each other would meet in the same set of a cache.
    offsets.push_back(bytes + offsets.size() * 5 * kLineBytes);
    const std::size_t needed = offsets.back() - bytes + count * element_bytes;
    bytes += (needed + kPage - 1) / kPage * kPage;
  };
  add(streams.in);
  for (std::size_t s = 0; s < streams.inout; ++s) add(4);
  add(streams.out);
}

std::vector<std::string> stream_roof(Suite& suite, const Streams& streams,
                                     std::size_t bytes, int threads) {
  const std::size_t count = stream_count(bytes, streams.bytes());
  const StreamArrays arrays(streams, count);
  const Work work{static_cast<double>(count * streams.traffic()), 0};
  std::vector<std::string> names;
  for (const Variant& variant : variants_of(streams)) {
    names.push_back("roof/" + streams.name() +
                    "/prefetch:" + std::to_string(variant.prefetch) +
                    (variant.past ? "/past_caches" : "") +
                    "/bytes:" + std::to_string(bytes) + threads_name(threads));
    suite.add(names.back(), threads, work, [=](benchmark::State& state) {
      const PristineMemory memory(arrays.bytes);
      std::vector<std::byte*> at;
      for (const std::size_t offset : arrays.offsets) {
        at.push_back(memory.data() + offset);
      }
      timed(state, batch_of_bytes(bytes), [&] {
        for_each_part(threads, count, kStreamUnit,
                      [&](std::size_t begin, std::size_t end) {
                        variant.loop(at.data(), begin, end, 0.5f);
                      });
      });
    });
  }
  return names;
}

}  // namespace swamp::bench
