// What a user without swamp would write: a plain OpenMP loop, or Eigen, for
// each pass and tensor; and rooflines: memory traffic, multiply-adds.
#include <omp.h>

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#ifdef __SSE2__
#include <immintrin.h>
#endif

#include "master/cli/predict/predict.h"

namespace {

enum Type { kFloat16 = 0, kBFloat16 = 1, kFloat32 = 2 };

// The beginning of swamp_tensor.
struct Tensor {
  void* data;
  std::size_t count;
  int dtype;
};

// Lists of a step; `copies` are float32 gradients, `model` may be null.
struct Lists {
  std::size_t count;
  const Tensor *masters, *gradients, *exp_avgs, *exp_avg_sqs, *model, *copies;
};

struct Numbers {
  float inv_scale, max_norm, lr, beta1, beta2, eps, weight_decay;
  std::int64_t step;
};

float* floats(const Tensor& tensor) { return static_cast<float*>(tensor.data); }

float widen(const std::uint16_t* from, Type type) {
  if (type == kFloat16) {
    _Float16 half;
    std::memcpy(&half, from, sizeof half);
    return static_cast<float>(half);
  }
  const std::uint32_t bits = std::uint32_t{*from} << 16;
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

std::uint16_t narrow(float value, Type type) {
  if (type == kFloat16) {
    const _Float16 half = static_cast<_Float16>(value);
    std::uint16_t bits;
    std::memcpy(&bits, &half, sizeof bits);
    return bits;
  }
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// The five passes, each as a loop over one tensor.
template <Type kType>
bool unscale(const Tensor& from, float* to, float inv_scale) {
  const auto count = static_cast<std::ptrdiff_t>(from.count);
  int bad = 0;
#pragma omp parallel for simd reduction(| : bad)
  for (std::ptrdiff_t i = 0; i < count; ++i) {
    const float value =
        kType == kFloat32
            ? floats(from)[i]
            : widen(static_cast<const std::uint16_t*>(from.data) + i, kType);
    bad |= !(std::fabs(value) <= 3.4028235e38f);
    to[i] = value * inv_scale;
  }
  return bad != 0;
}

double squares(const float* values, std::ptrdiff_t count) {
  double sum = 0;
#pragma omp parallel for simd reduction(+ : sum)
  for (std::ptrdiff_t i = 0; i < count; ++i) {
    sum += static_cast<double>(values[i]) * values[i];
  }
  return sum;
}

void scale(float* values, std::ptrdiff_t count, float by) {
#pragma omp parallel for simd
  for (std::ptrdiff_t i = 0; i < count; ++i) values[i] *= by;
}

void adamw(float* p, const float* g, float* m, float* v, std::ptrdiff_t count,
           const Numbers& n) {
  const float step_size =
      n.lr / (1 - std::pow(n.beta1, static_cast<float>(n.step)));
  const float correction =
      std::sqrt(1 - std::pow(n.beta2, static_cast<float>(n.step)));
#pragma omp parallel for simd
  for (std::ptrdiff_t i = 0; i < count; ++i) {
    p[i] *= 1 - n.lr * n.weight_decay;
    m[i] = n.beta1 * m[i] + (1 - n.beta1) * g[i];
    v[i] = n.beta2 * v[i] + (1 - n.beta2) * g[i] * g[i];
    p[i] -= step_size * m[i] / (std::sqrt(v[i]) / correction + n.eps);
  }
}

template <Type kType>
void round_to(const float* from, void* to, std::ptrdiff_t count) {
  auto* out = static_cast<std::uint16_t*>(to);
#pragma omp parallel for simd
  for (std::ptrdiff_t i = 0; i < count; ++i) out[i] = narrow(from[i], kType);
}

// A line of a cache, at any address.
constexpr int kWords = 16;
using Words = std::uint32_t __attribute__((vector_size(64)));
using Line __attribute__((aligned(1), may_alias)) = Words;
using Word __attribute__((aligned(1), may_alias)) = std::uint32_t;
constexpr std::uint32_t kOnes = 0x3f803f80;  // two of bfloat16
using Floats = float __attribute__((vector_size(64)));

enum Access { kRead = 0, kUpdate = 1, kWrite = 2 };

// An array of a roofline.
struct Stream {
  void* data;
  std::size_t bytes;
  int access;
};

// Where block `block` of `blocks` begins, at a line.
std::size_t part(std::size_t bytes, std::size_t block, std::size_t blocks) {
  if (block == blocks) return bytes;
  return bytes / blocks * block / 64 * 64;
}

void read(const char* at, std::size_t bytes, std::size_t ahead, Words& seen) {
  std::size_t i = 0;
  for (; i + 64 <= bytes; i += 64) {
    if (ahead != 0) __builtin_prefetch(at + i + ahead);
    seen |= *reinterpret_cast<const Line*>(at + i);
  }
  for (; i + 4 <= bytes; i += 4) {
    seen[0] |= *reinterpret_cast<const Word*>(at + i);
  }
}

void update(char* at, std::size_t bytes, std::size_t ahead, Words nothing) {
  std::size_t i = 0;
  for (; i + 64 <= bytes; i += 64) {
    if (ahead != 0) __builtin_prefetch(at + i + ahead, 1);
    *reinterpret_cast<Line*>(at + i) |= nothing;
  }
  for (; i + 4 <= bytes; i += 4) {
    *reinterpret_cast<Word*>(at + i) |= nothing[0];
  }
}

void write(char* at, std::size_t bytes, bool non_temporal) {
  std::size_t i = 0;
#ifdef __SSE2__
  if (non_temporal && reinterpret_cast<std::uintptr_t>(at) % 16 == 0) {
    const __m128i four = _mm_set1_epi32(kOnes);
    for (; i + 16 <= bytes; i += 16) {
      _mm_stream_si128(reinterpret_cast<__m128i*>(at + i), four);
    }
  }
#endif
  for (; i + 64 <= bytes; i += 64) {
    *reinterpret_cast<Line*>(at + i) = Words{} + kOnes;
  }
  for (; i + 4 <= bytes; i += 4) *reinterpret_cast<Word*>(at + i) = kOnes;
}

using Array = Eigen::Map<Eigen::ArrayXf>;
template <class Half>
using HalfArray = Eigen::Map<Eigen::Array<Half, Eigen::Dynamic, 1>>;

Array array(float* data, std::ptrdiff_t count) { return {data, count}; }

template <class Half>
HalfArray<Half> halves(const Tensor& tensor) {
  return {static_cast<Half*>(tensor.data),
          static_cast<std::ptrdiff_t>(tensor.count)};
}

}  // namespace

extern "C" {

// Writes the elements of the model's parameters, at most `most`, and returns
// how many there are.
std::size_t model_counts(const char* name, std::uint64_t* counts,
                         std::size_t most) {
  const std::vector<std::uint64_t> all = swamp::cli::model_counts(name);
  const std::size_t count = std::min(most, all.size());
  std::copy_n(all.begin(), count, counts);
  return count;
}

// Returns 1 if it found inf or nan.
int naive_step(const Lists* lists, const Numbers* numbers) {
  const Lists& l = *lists;
  const Numbers& n = *numbers;
  bool bad = false;
  for (std::size_t t = 0; t < l.count; ++t) {
    const Tensor& g = l.gradients[t];
    float* to = floats(l.copies[t]);
    bad |= g.dtype == kFloat32    ? unscale<kFloat32>(g, to, n.inv_scale)
           : g.dtype == kBFloat16 ? unscale<kBFloat16>(g, to, n.inv_scale)
                                  : unscale<kFloat16>(g, to, n.inv_scale);
  }
  if (bad) return 1;
  const auto count = [&](std::size_t t) {
    return static_cast<std::ptrdiff_t>(l.masters[t].count);
  };
  if (n.max_norm > 0) {
    double sum = 0;
    for (std::size_t t = 0; t < l.count; ++t) {
      sum += squares(floats(l.copies[t]), count(t));
    }
    const double by = n.max_norm / (std::sqrt(sum) + 1e-6);
    for (std::size_t t = 0; by < 1 && t < l.count; ++t) {
      scale(floats(l.copies[t]), count(t), static_cast<float>(by));
    }
  }
  for (std::size_t t = 0; t < l.count; ++t) {
    float* p = floats(l.masters[t]);
    adamw(p, floats(l.copies[t]), floats(l.exp_avgs[t]),
          floats(l.exp_avg_sqs[t]), count(t), n);
    if (l.model == nullptr) continue;
    if (l.model[t].dtype == kBFloat16) {
      round_to<kBFloat16>(p, l.model[t].data, count(t));
    } else {
      round_to<kFloat16>(p, l.model[t].data, count(t));
    }
  }
  return 0;
}

// The same in array expressions; Eigen runs them on one thread.
int eigen_step(const Lists* lists, const Numbers* numbers) {
  const Lists& l = *lists;
  const Numbers& n = *numbers;
  const auto count = [&](std::size_t t) {
    return static_cast<std::ptrdiff_t>(l.masters[t].count);
  };
  bool finite = true;
  for (std::size_t t = 0; t < l.count; ++t) {
    const Tensor& g = l.gradients[t];
    Array to = array(floats(l.copies[t]), count(t));
    if (g.dtype == kFloat32) {
      to = array(floats(g), count(t)) * n.inv_scale;
    } else if (g.dtype == kBFloat16) {
      to = halves<Eigen::bfloat16>(g).cast<float>() * n.inv_scale;
    } else {
      to = halves<Eigen::half>(g).cast<float>() * n.inv_scale;
    }
    finite = finite && to.isFinite().all();
  }
  if (!finite) return 1;
  if (n.max_norm > 0) {
    double sum = 0;
    for (std::size_t t = 0; t < l.count; ++t) {
      sum += array(floats(l.copies[t]), count(t)).cast<double>().square().sum();
    }
    const auto by = static_cast<float>(n.max_norm / (std::sqrt(sum) + 1e-6));
    for (std::size_t t = 0; by < 1 && t < l.count; ++t) {
      array(floats(l.copies[t]), count(t)) *= by;
    }
  }
  const float step_size =
      n.lr / (1 - std::pow(n.beta1, static_cast<float>(n.step)));
  const float correction =
      std::sqrt(1 - std::pow(n.beta2, static_cast<float>(n.step)));
  for (std::size_t t = 0; t < l.count; ++t) {
    Array p = array(floats(l.masters[t]), count(t));
    const Array g = array(floats(l.copies[t]), count(t));
    Array m = array(floats(l.exp_avgs[t]), count(t));
    Array v = array(floats(l.exp_avg_sqs[t]), count(t));
    m = n.beta1 * m + (1 - n.beta1) * g;
    v = n.beta2 * v + (1 - n.beta2) * g.square();
    p = p * (1 - n.lr * n.weight_decay) -
        step_size * m / (v.sqrt() / correction + n.eps);
    if (l.model == nullptr) continue;
    if (l.model[t].dtype == kBFloat16) {
      halves<Eigen::bfloat16>(l.model[t]) = p.cast<Eigen::bfloat16>();
    } else {
      halves<Eigen::half>(l.model[t]) = p.cast<Eigen::half>();
    }
  }
  return 0;
}

// How many threads all functions use.
void naive_set_threads(int threads) { omp_set_num_threads(threads); }

// The memory traffic of a pass over `groups` groups of `arrays` arrays each: it
// reads, reads and writes, or only writes them. A thread has a run of groups,
// in blocks of `bytes` of the largest array. Values stay as they are, except of
// arrays that are only written. Prefetches `ahead` bytes, and writes those with
// `non_temporal` without reading their lines first. Returns a combination of
// the values read.
std::uint32_t naive_traffic(const Stream* streams, std::size_t groups,
                            std::size_t arrays, std::size_t bytes,
                            std::size_t ahead, int non_temporal) {
  const auto blocks_of = [&](std::size_t group) {
    std::size_t largest = 0;
    for (std::size_t i = 0; i < arrays; ++i) {
      largest = std::max(largest, streams[group * arrays + i].bytes);
    }
    return (largest + bytes - 1) / bytes;
  };
  std::size_t total = 0;
  for (std::size_t group = 0; group < groups; ++group) {
    total += blocks_of(group);
  }
  std::uint32_t all = 0;
#pragma omp parallel reduction(| : all)
  {
    const auto thread = static_cast<std::size_t>(omp_get_thread_num());
    const auto threads = static_cast<std::size_t>(omp_get_num_threads());
    const std::size_t first = total * thread / threads;
    const std::size_t last = total * (thread + 1) / threads;
    Words seen = {};
    Words nothing = {};
    asm volatile("" : "+m"(nothing));  // or the compiler would drop the update
    std::size_t before = 0;            // blocks of the groups before
    for (std::size_t group = 0; group < groups && before < last; ++group) {
      const Stream* s = streams + group * arrays;
      const std::size_t blocks = blocks_of(group);
      const std::size_t end_block = std::min(last - before, blocks);
      for (std::size_t block = first > before ? first - before : 0;
           block < end_block; ++block) {
        for (std::size_t i = 0; i < arrays; ++i) {
          const std::size_t begin = part(s[i].bytes, block, blocks);
          const std::size_t end = part(s[i].bytes, block + 1, blocks);
          char* at = static_cast<char*>(s[i].data) + begin;
          if (s[i].access == kRead) {
            read(at, end - begin, ahead, seen);
          } else if (s[i].access == kUpdate) {
            update(at, end - begin, ahead, nothing);
          } else {
            write(at, end - begin, non_temporal != 0);
          }
        }
      }
      before += blocks;
    }
    for (int i = 0; i < kWords; ++i) all |= seen[i];
#ifdef __SSE2__
    _mm_sfence();
#endif
  }
  return all;
}

// naive_multiply_adds() computes floating-point operations as fused
// multiply-adds of registers: of float32, or with `bfloat16` of pairs of
// bfloat16 by AVX512-BF16. Returns 0 if the CPU has no such instruction.
int naive_multiply_adds(double flops, int bfloat16) {
  constexpr int kChains = 12;
#ifndef __AVX512BF16__
  if (bfloat16 != 0) return 0;
#endif
  const double step = 2.0 * kChains * kWords * (bfloat16 != 0 ? 2 : 1);
  const auto steps = static_cast<std::size_t>(flops / step);
#pragma omp parallel
  {
    Floats sum[kChains] = {};
    Floats a = {}, b = {};
    a += 0.5f;
    b += 1.0f;
    // The compiler must not know that the chains are equal.
    for (Floats& one : sum) asm volatile("" : "+v"(one));
#ifdef __AVX512BF16__
    if (bfloat16 != 0) {
      __m512bh x = _mm512_cvtne2ps_pbh(a, a), y = _mm512_cvtne2ps_pbh(b, b);
#pragma omp for schedule(static) nowait
      for (std::size_t i = 0; i < steps; ++i) {
        asm("" : "+v"(x));
        for (Floats& one : sum) one = _mm512_dpbf16_ps(one, x, y);
      }
    }
#endif
    if (bfloat16 == 0) {
#pragma omp for schedule(static) nowait
      for (std::size_t i = 0; i < steps; ++i) {
        asm("" : "+v"(a));
        for (Floats& one : sum) one = one * a + b;
      }
    }
    for (Floats& one : sum) asm volatile("" : "+v"(one));
  }
  return 1;
}

}  // extern "C"
