// product/: matrix products, and depthwise/: direct convolutions, compared with
// roofline/multiply_adds: as many float32 multiply-adds in registers.
// generate/: what a model reads for one token, weights, keys and values,
// compared with roofline/read.
#include "swamp/product.h"

#include "bench/bench.h"
#include "slave/kernel.h"
#include "swamp/attention.h"
#include "swamp/convolution.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace swamp::bench {
namespace {

struct Shape : ProductShape {
  const char* name;
};
// The layers of a GPT, as in bench/peers/rows.py.
constexpr Shape kShapes[] = {{{1, 1024, 3072, 768, false, true}, "forward"},
                             {{1, 1024, 768, 3072, false, false}, "gradient_x"},
                             {{1, 3072, 768, 1024, true, false}, "gradient_w"},
                             {{1, 512, 50304, 768, false, true}, "logits"},
                             {{48, 1024, 1024, 64, false, true}, "heads"},
                             {{1, 64, 64, 64, false, false}, "64x64x64"},
                             {{1, 8192, 64, 64, false, false}, "8192x64x64"},
                             {{1, 1, 3072, 768, false, true}, "1_row"},
                             {{1, 8, 3072, 768, false, true}, "8_rows"}};

// set_flops() makes the floating-point operations of a pass a rate.
void set_flops(State& state, double flops) {
  state.counters["flops"] =
      benchmark::Counter(flops, benchmark::Counter::kIsIterationInvariantRate);
}

void run(State& state, const Shape& shape, const Dtype& dtype) {
  const std::size_t bytes = shape.elements() * dtype.bytes;
  const ProductArrays arrays =
      product_arrays(scratch_memory(bytes), shape, dtype.dtype);
  timed(state, static_cast<double>(bytes),
        [&] { product(arrays.out, arrays.a, arrays.b); });
  set_flops(state, 2.0 * static_cast<double>(shape.batch * shape.m * shape.n *
                                             shape.k));
}

// depthwise() convolves 8 images of 64 channels and 28 x 28 positions, or
// computes the gradient of the weight.
void depthwise(State& state, std::size_t kernel, bool last, bool is_weight,
               const Dtype& dtype) {
  constexpr std::size_t kImages = 8, kChannels = 64, kSize = 28;
  const ConvolutionDimension axis{
      kSize, kSize, kernel, 1, 1, -static_cast<long>(kernel / 2), 1};
  const Convolution of{kImages, kChannels,   kChannels, kChannels, axis,
                       axis,    dtype.dtype, last,      last};
  const std::size_t count = kImages * kChannels * kSize * kSize,
                    weights = kChannels * kernel * kernel;
  std::byte* const x = scratch_memory((2 * count + weights) * sizeof(float));
  std::byte* const y = x + count * sizeof(float);
  std::byte* const weight = y + count * sizeof(float);
  timed(state, static_cast<double>(2 * count * dtype.bytes), [&] {
    if (is_weight) {
      convolve_weight(of, x, y, weight);
    } else {
      convolve(of, x, weight, nullptr, y);
    }
  });
  set_flops(state, 2.0 * static_cast<double>(count * kernel * kernel));
}

#if defined(__x86_64__)
constexpr std::size_t kChains = 12;  // hide the latency

// multiply_adds() adds in kChains registers and returns its operations.
__attribute__((target("avx512f"))) double multiply_adds_avx512(
    std::size_t steps) {
  const __m512 half = _mm512_set1_ps(0.5f);
  __m512 sum[kChains];
  for (__m512& one : sum) one = half;
  for (std::size_t i = 0; i < steps; ++i) {
    for (__m512& one : sum) {
      one = _mm512_fmadd_ps(one, half, half);
      asm volatile("" : "+v"(one));  // the chains stay apart
    }
  }
  return 2.0 * 16 * kChains * static_cast<double>(steps);
}
__attribute__((target("avx2,fma"))) double multiply_adds_avx2(
    std::size_t steps) {
  const __m256 half = _mm256_set1_ps(0.5f);
  __m256 sum[kChains];
  for (__m256& one : sum) one = half;
  for (std::size_t i = 0; i < steps; ++i) {
    for (__m256& one : sum) {
      one = _mm256_fmadd_ps(one, half, half);
      asm volatile("" : "+v"(one));
    }
  }
  return 2.0 * 8 * kChains * static_cast<double>(steps);
}

void register_multiply_adds() {
  const auto multiply_adds = __builtin_cpu_supports("avx512f")
                                 ? multiply_adds_avx512
                                 : multiply_adds_avx2;
  if (!__builtin_cpu_supports("fma")) return;
  add({"roofline/multiply_adds", {}, thread_counts()},
      [=](State& state, const Run& r) {
        constexpr std::size_t kSteps = 100000;
        const auto threads = static_cast<std::size_t>(r.threads);
        timed(state, 8.0 * kMib, [&] {
          for_each_part(r.threads, kSteps * threads, 1,
                        [&](std::size_t begin, std::size_t end) {
                          multiply_adds(end - begin);
                        });
        });
        set_flops(state, multiply_adds(1) * kSteps * r.threads);
      });
}
#else
void register_multiply_adds() {}
#endif

}  // namespace

ProductArrays product_arrays(std::byte* memory, const ProductShape& shape,
                             ScalarType dtype) {
  const auto matrices = [&](std::size_t rows, std::size_t columns,
                            bool transposed) {
    if (transposed) std::swap(rows, columns);
    const auto made =
        Matrices::dense(memory, shape.batch, rows, columns, dtype);
    memory += shape.batch * rows * columns * kScalarTypeBytes[dtype];
    return transposed ? made.transposed() : made;
  };
  const Matrices a = matrices(shape.m, shape.k, shape.a_transposed);
  const Matrices b = matrices(shape.k, shape.n, shape.b_transposed);
  return {a, b, matrices(shape.m, shape.n, false)};
}

// one_row() multiplies one row by the transposed matrix of `bytes`.
void one_row(State& state, const Dtype& dtype, std::size_t bytes) {
  constexpr std::size_t kColumns = 4096;
  const ProductShape shape{1,        1,     bytes / (kColumns * dtype.bytes),
                           kColumns, false, true};
  const ProductArrays arrays = product_arrays(
      scratch_memory(shape.elements() * dtype.bytes), shape, dtype.dtype);
  timed(state, static_cast<double>(bytes),
        [&] { product(arrays.out, arrays.a, arrays.b); });
}

// one_query() is attention of one query of 8 heads; its keys and values have
// `bytes`.
void one_query(State& state, const Dtype& dtype, std::size_t bytes) {
  constexpr std::size_t kHeads = 8, kColumns = 64;
  const std::size_t keys = bytes / (2 * kHeads * kColumns * dtype.bytes);
  std::byte* memory = scratch_memory(bytes + kMib / 2);
  const auto heads = [&](std::size_t rows) {
    const Heads made{memory, 1, kHeads, rows, kColumns, dtype.dtype};
    memory += kHeads * rows * kColumns * dtype.bytes;
    return made;
  };
  const Heads q = heads(1), k = heads(keys), v = heads(keys), out = heads(1);
  float lse[kHeads];
  timed(state, static_cast<double>(bytes),
        [&] { attention(q, k, v, out, lse, {}); });
}

void register_products() {
  register_multiply_adds();
  for (const Dtype& dtype : kDtypes) {
    if (dtype.dtype == kFloat64) continue;
    for (const auto& [name, call] :
         {std::pair("product", one_row), std::pair("attention", one_query)}) {
      add({std::string("generate/") + name + "/" + dtype.name,
           {8 * kMib, static_cast<std::int64_t>(memory_bytes())},
           thread_counts(),
           "roofline/read"},
          [&dtype, call = call](State& state, const Run& r) {
            call(state, dtype, r.bytes);
          });
    }
  }
  for (const std::size_t kernel : {std::size_t{3}, std::size_t{7}}) {
    for (const Dtype& dtype : kDtypes) {
      for (const int kind : {0, 1, 2, 3}) {
        if (dtype.dtype == kFloat64) continue;
        const bool last = kind % 2 != 0, is_weight = kind >= 2;
        add({"depthwise/" + std::to_string(kernel) +
                 (last ? "/channels_last" : "/channels_first") +
                 (is_weight ? "/gradient_w/" : "/forward/") + dtype.name,
             {},
             thread_counts(),
             "roofline/multiply_adds"},
            [=, &dtype](State& state, const Run&) {
              depthwise(state, kernel, last, is_weight, dtype);
            });
      }
    }
  }
  for (const Shape& shape : kShapes) {
    for (const Dtype& dtype : kDtypes) {
      if (dtype.dtype == kFloat64) continue;
      if (shape.elements() * dtype.bytes > memory_bytes()) continue;
      add({std::string("product/") + shape.name + "/" + dtype.name,
           {},
           thread_counts(),
           "roofline/multiply_adds"},
          [&shape, &dtype](State& state, const Run&) {
            run(state, shape, dtype);
          });
    }
  }
}

}  // namespace swamp::bench
