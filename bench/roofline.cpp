// roofline/: the fastest plain loops over memory that a person would write for
// this CPU, without inf, nan, lists or slaves. The other cases are compared
// with them.
#include <cstring>

#include "bench/bench.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace swamp::bench {
namespace {

#define SWAMP_INLINE inline __attribute__((always_inline))

// A cache line as one value of one to four registers of the target, so that the
// loops are vector code even if the optimiser does not vectorise them.
using Line = float __attribute__((vector_size(64), aligned(64), may_alias));
using WordLine =
    std::uint32_t __attribute__((vector_size(64), aligned(64), may_alias));
constexpr std::size_t kLineBytes = 64;
constexpr std::size_t kLineFloats = kLineBytes / sizeof(float);

// Scale and Read take as many lines per turn as the kernels do.
constexpr std::size_t kLines = 4;

template <class T>
SWAMP_INLINE void prefetch(const T* line, int ahead) {
  if (ahead != 0) {
    __builtin_prefetch(reinterpret_cast<const char*>(line) + ahead);
  }
}

// A loop goes over elements [begin, end) of arrays of whole lines. All its
// variants do the same work, and bench/table.py takes the fastest.
//
// Scale multiplies one array of float32 in place.
template <int kAhead>
struct Scale {
  static SWAMP_INLINE void run(std::byte* const* arrays, std::size_t begin,
                               std::size_t end) {
    auto* line = reinterpret_cast<Line*>(arrays[0] + begin * sizeof(float));
    auto* const last = reinterpret_cast<Line*>(arrays[0] + end * sizeof(float));
    for (; last - line >= std::ptrdiff_t{kLines}; line += kLines) {
      for (std::size_t i = 0; i < kLines; ++i) prefetch(line + i, kAhead);
      for (std::size_t i = 0; i < kLines; ++i) line[i] *= kFlipSign;
    }
    for (; line != last; ++line) *line *= kFlipSign;
  }
};

// Read ORs all words, so that the compiler cannot remove a read. Each of the
// four lines has its own accumulator; otherwise every OR would wait for the
// previous one.
template <int kAhead>
struct Read {
  static SWAMP_INLINE void run(std::byte* const* arrays, std::size_t begin,
                               std::size_t end) {
    auto* line = reinterpret_cast<const WordLine*>(arrays[0] + begin * 4);
    auto* const last = reinterpret_cast<const WordLine*>(arrays[0] + end * 4);
    WordLine or0 = {}, or1 = {}, or2 = {}, or3 = {};
    for (; last - line >= std::ptrdiff_t{kLines}; line += kLines) {
      for (std::size_t i = 0; i < kLines; ++i) prefetch(line + i, kAhead);
      or0 |= line[0];
      or1 |= line[1];
      or2 |= line[2];
      or3 |= line[3];
    }
    for (; line != last; ++line) or0 |= *line;
    or0 |= or1 | or2 | or3;
    std::uint32_t all = 0;
    for (std::size_t i = 0; i < kLineFloats; ++i) all |= or0[i];
    asm volatile("" : : "r"(all));
  }
};

template <bool kNonTemporal>
SWAMP_INLINE void store(const Line& value, Line* to) {
#if defined(__SSE2__)
  if constexpr (kNonTemporal) {
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

// PassLoop goes over the arrays of Operands{kIn, kInout, kOut}. It stores what
// it reads into the arrays that it updates or writes, so that the compiler
// cannot remove a read.
template <std::size_t kIn, std::size_t kInout, std::size_t kOut, int kAhead,
          bool kNonTemporal>
struct PassLoop {
  static SWAMP_INLINE void run(std::byte* const* arrays, std::size_t begin,
                               std::size_t end) {
    constexpr std::size_t kUnit = OperandArrays::kUnit;
    constexpr std::size_t kInLines = kIn * kUnit / kLineBytes;
    constexpr std::size_t kOutLines = kOut * kUnit / kLineBytes;
    auto* in = reinterpret_cast<const Line*>(arrays[0] + begin * kIn);
    Line* inout[kInout + 1];
    for (std::size_t s = 0; s < kInout; ++s) {
      inout[s] = reinterpret_cast<Line*>(arrays[1 + s] + begin * sizeof(float));
    }
    auto* out = reinterpret_cast<Line*>(arrays[1 + kInout] + begin * kOut);
    for (std::size_t i = begin; i < end; i += kUnit) {
      for (std::size_t k = 0; k < kInLines; ++k) prefetch(in + k, kAhead);
      for (std::size_t s = 0; s < kInout; ++s) {
        for (std::size_t k = 0; k < 2; ++k) prefetch(inout[s] + k, kAhead);
      }
      Line read[2] = {in[0], in[kInLines - 1]};
      for (std::size_t s = 0; s < kInout; ++s) {
        for (std::size_t k = 0; k < 2; ++k) {
          read[k] = inout[s][k] * 0.5f + read[k];
          inout[s][k] = read[k];
        }
        inout[s] += 2;
      }
      if constexpr (kOutLines == 1) store<kNonTemporal>(read[0] + read[1], out);
      if constexpr (kOutLines == 2) {
        store<kNonTemporal>(read[0], out);
        store<kNonTemporal>(read[1], out + 1);
      }
      in += kInLines;
      out += kOutLines;
    }
#if defined(__SSE2__)
    if constexpr (kNonTemporal) _mm_sfence();
#endif
  }
};

// The same loop compiled for each kind of vector that an x86 may have; the best
// one for this CPU is chosen at run time.
using Loop = void (*)(std::byte* const* arrays, std::size_t begin,
                      std::size_t end);
template <class Body>
void run_plain(std::byte* const* arrays, std::size_t begin, std::size_t end) {
  Body::run(arrays, begin, end);
}
#if defined(__x86_64__) && defined(__GNUC__)
#if defined(__clang__)
#define SWAMP_AVX512 "avx512f"
#else
#define SWAMP_AVX512 "avx512f,prefer-vector-width=512"
#endif
template <class Body>
__attribute__((target(SWAMP_AVX512))) void run_avx512(std::byte* const* arrays,
                                                      std::size_t begin,
                                                      std::size_t end) {
  Body::run(arrays, begin, end);
}
template <class Body>
__attribute__((target("avx2"))) void run_avx2(std::byte* const* arrays,
                                              std::size_t begin,
                                              std::size_t end) {
  Body::run(arrays, begin, end);
}
#endif
template <class Body>
Loop best() {
#if defined(__x86_64__) && defined(__GNUC__)
  if (__builtin_cpu_supports("avx512f")) return run_avx512<Body>;
  if (__builtin_cpu_supports("avx2")) return run_avx2<Body>;
#endif
  return run_plain<Body>;
}

// add_line_loop() registers a variant of Scale or Read.
void add_line_loop(const std::string& name, int ahead, Loop loop,
                   double traffic_of_byte) {
  add({name + "/prefetch:" + std::to_string(ahead), sizes(), thread_counts()},
      [=](State& state, const Run& run) {
        std::byte* const data = shared_memory(run.bytes);
        const std::size_t count =
            run.bytes / kLineBytes * kLineFloats;  // a list may end anywhere
        timed(state, traffic_of_byte * static_cast<double>(run.bytes), [&] {
          for_each_part(run.threads, count, kLineFloats,
                        [&](std::size_t begin, std::size_t end) {
                          loop(&data, begin, end);
                        });
        });
      });
}

// Which distance is best depends on the CPU and on the size.
template <int kAhead>
void add_line_loops() {
  add_line_loop("roofline/scale", kAhead, best<Scale<kAhead>>(), 2);
  add_line_loop("roofline/read", kAhead, best<Read<kAhead>>(), 1);
}

void add_pass_loop(const Operands& operands, int ahead, bool non_temporal,
                   Loop loop) {
  add({"roofline/" + operands.name() + "/prefetch:" + std::to_string(ahead) +
           "/non_temporal:" + std::to_string(non_temporal),
       sizes(), thread_counts()},
      [=](State& state, const Run& run) {
        const OperandArrays arrays(operands, run.bytes);
        std::byte* const memory = scratch_memory(arrays.bytes);
        std::vector<std::byte*> at;
        for (const std::size_t offset : arrays.offsets) {
          at.push_back(memory + offset);
        }
        timed(state, static_cast<double>(arrays.count * operands.traffic()),
              [&] {
                for_each_part(run.threads, arrays.count, OperandArrays::kUnit,
                              [&](std::size_t begin, std::size_t end) {
                                loop(at.data(), begin, end);
                              });
              });
      });
}

template <std::size_t kIn, std::size_t kInout, std::size_t kOut, int kAhead>
void add_pass_loops() {
  const Operands operands{kIn, kInout, kOut};
  add_pass_loop(operands, kAhead, false,
                best<PassLoop<kIn, kInout, kOut, kAhead, false>>());
#if defined(__SSE2__)
  if constexpr (kOut != 0) {
    add_pass_loop(operands, kAhead, true,
                  best<PassLoop<kIn, kInout, kOut, kAhead, true>>());
  }
#endif
}

template <std::size_t kIn, std::size_t kInout, std::size_t kOut>
void add_operands() {
  add_pass_loops<kIn, kInout, kOut, 0>();
  add_pass_loops<kIn, kInout, kOut, 1024>();
  add_pass_loops<kIn, kInout, kOut, 4096>();
}

}  // namespace

OperandArrays::OperandArrays(const Operands& operands, std::size_t wanted_bytes)
    : count(wanted_bytes / (operands.in + 4 * operands.inout + operands.out) /
            kUnit * kUnit) {
  constexpr std::size_t kPage = 4096;
  const auto add_array = [&](std::size_t element_bytes) {
    // Arrays at equal offsets would use the same sets of a cache.
    offsets.push_back(bytes + offsets.size() * 5 * kLineBytes);
    const std::size_t end = offsets.back() + count * element_bytes;
    bytes = (end + kPage - 1) / kPage * kPage;
  };
  add_array(operands.in);
  for (std::size_t s = 0; s < operands.inout; ++s) add_array(4);
  add_array(operands.out);
}

void register_roofline() {
  add_line_loops<0>();
  add_line_loops<512>();
  add_line_loops<1024>();
  add_line_loops<2048>();
  add_line_loops<4096>();
  // The combinations of passes.cpp and row_operators.cpp.
  add_operands<2, 0, 2>();
  add_operands<2, 0, 4>();
  add_operands<4, 0, 2>();
  add_operands<4, 0, 4>();
  add_operands<2, 1, 0>();
  add_operands<4, 1, 0>();
  add_operands<2, 1, 2>();
  add_operands<2, 2, 2>();
  add_operands<4, 2, 0>();
  add_operands<2, 3, 2>();
  add_operands<4, 3, 0>();
  add_operands<4, 3, 2>();
}

}  // namespace swamp::bench
