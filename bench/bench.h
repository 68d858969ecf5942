// What the cases of swamp_bench share: memory, threads, lists, machines, and
// the timed loop.
#ifndef SWAMP_BENCH_BENCH_H_
#define SWAMP_BENCH_BENCH_H_

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "swamp/machine.h"
#include "swamp/product.h"
#include "swamp/tensor.h"

#if defined(SWAMP_HAS_OPENMP)
#include <omp.h>
#endif

namespace swamp {

namespace runtime {
struct Tuning;
}

namespace bench {

using benchmark::State;

// Each family registers its cases; main() calls them after it has read the
// command line.
void register_roofline();
void register_unscale();
void register_passes();
void register_rows();
void register_products();
void register_transfer();
void register_spawn();
void register_threshold();
void register_claims();
void register_tuning();
void register_critical_path();  // instead of all others

// ---- Memory ----------------------------------------------------------------

inline constexpr std::size_t kKib = 1024;
inline constexpr std::size_t kMib = 1024 * kKib;

// memory_bytes() is the size of the cases "in memory" (--memory_mib); longer
// lists are left out.
std::size_t memory_bytes();
// sizes() are one size for each cache level of common CPUs (L1, L2, L3) and
// memory_bytes().
inline constexpr std::size_t kL2Bytes = 512 * kKib;
std::vector<std::int64_t> sizes();

// shared_memory() returns the memory that all cases work on, so that the
// roofline and the operators use the same pages. The address never changes.
//
// Every 4 bytes are 1.0f at first. Cases multiply by -1 (a multiplication that
// cannot be skipped and whose results do not drift) in any dtype and order.
// That flips bits 15 and 31 only, and the result is a normal number or zero
// in all four dtypes, so that no case slows down another one by inf or
// subnormals.
std::byte* shared_memory(std::size_t bytes);
// scratch_memory() is the same memory for a case that leaves other values in
// it: the next user gets it filled again.
std::byte* scratch_memory(std::size_t bytes);

inline constexpr float kFlipSign = -1.0f;  // inv_scale of the unscale cases
inline constexpr float kOnlyCheck = 1.0f;  // inv_scale of the check cases

// ---- Threads ---------------------------------------------------------------

#if defined(SWAMP_HAS_OPENMP)
inline int max_threads() noexcept { return omp_get_max_threads(); }
inline void set_threads(int threads) noexcept { omp_set_num_threads(threads); }
#else
inline int max_threads() noexcept { return 1; }
inline void set_threads(int) noexcept {}
#endif

// all_threads() is the number of threads at the start of the process;
// thread_counts() is 1 and that number, or only the latter if the chosen
// backend does not obey OpenMP.
int all_threads();
std::vector<std::int64_t> thread_counts();

// for_each_part() splits [0, count) into one contiguous part per thread, in
// multiples of `unit`, and calls part(begin, end) on each thread.
template <class Part>
void for_each_part(int threads, std::size_t count, std::size_t unit,
                   Part part) {
#if defined(SWAMP_HAS_OPENMP)
  if (threads > 1) {
    const std::size_t units = count / unit;
    const auto edge = [&](int thread) {
      return thread == threads ? count
                               : units * static_cast<std::size_t>(thread) /
                                     static_cast<std::size_t>(threads) * unit;
    };
#pragma omp parallel for num_threads(threads) schedule(static, 1)
    for (int thread = 0; thread < threads; ++thread) {
      part(edge(thread), edge(thread + 1));
    }
    return;
  }
#endif
  static_cast<void>(threads);
  static_cast<void>(unit);
  part(std::size_t{0}, count);
}

// ---- Cases -----------------------------------------------------------------

// Case is a case to register. Its name gets "/bytes:N" and "/threads:N" for
// every pair of the two lists; without `threads` it runs once, on all of them.
struct Case {
  std::string name;
  std::vector<std::int64_t> bytes = {};
  std::vector<std::int64_t> threads = {};
  // The label of the case: the name that bench/table.py compares it with.
  // Components KEY:VALUE that the label lacks are taken from the case.
  std::string against = {};
};
struct Run {
  std::size_t bytes;  // 0 without
  int threads;
};
void add(const Case& what, std::function<void(State&, const Run&)> body);

// timed() measures pass(), which reads and writes `traffic` bytes. One pass
// runs before, untimed: threads wake up, caches get warm. Short passes run in
// batches: Google Benchmark chooses the number of iterations by its first try,
// and if that is interrupted it settles on a single, cold pass.
inline constexpr std::size_t kSpawnBatch = 20;
template <class Pass>
void timed(State& state, double traffic, Pass pass) {
  constexpr double kBatchBytes = 8.0 * kMib;
  const auto batch = static_cast<benchmark::IterationCount>(std::clamp(
      kBatchBytes / std::max(traffic, 1.0), 1.0, double{kSpawnBatch}));
  pass();
  if (state.error_occurred()) return;
  while (state.KeepRunningBatch(batch)) {
    for (benchmark::IterationCount i = 0; i < batch; ++i) pass();
    benchmark::ClobberMemory();
  }
  if (traffic > 0) {
    state.SetBytesProcessed(static_cast<std::int64_t>(
        traffic * static_cast<double>(state.iterations())));
  }
}

// ---- Lists and machines ----------------------------------------------------

struct Dtype {
  const char* name;
  ScalarType dtype;
  std::size_t bytes;
};
inline constexpr Dtype kDtypes[] = {{"float32", kFloat32, 4},
                                    {"float16", kFloat16, 2},
                                    {"bfloat16", kBFloat16, 2},
                                    {"float64", kFloat64, 8}};

using List = std::vector<Tensor>;
using Counts = std::vector<std::size_t>;

// make_list() lays tensors of these counts into shared memory, one after the
// other from `offset` on, each in cache lines of its own, as allocators do it.
List make_list(const Dtype& dtype, const Counts& counts,
               std::size_t offset = 0);
// list_bytes() is the shared memory that the list takes, element_bytes() the
// size of its elements.
std::size_t list_bytes(const Dtype& dtype, const Counts& counts);
std::size_t element_bytes(const Dtype& dtype, const Counts& counts);

// kept_machine() makes a machine once and keeps it; `tune` may change its
// tuning. `key` distinguishes machines of equal configuration.
Machine& kept_machine(
    const std::string& key, const MachineConfig& config,
    const std::function<void(runtime::Tuning&)>& tune = nullptr);
MachineConfig transfer_config(const std::string& transfer);

// run_unscale() measures the operator on the default machine through the C ABI;
// with a machine, through the C++ API, on another of the lists every time.
void run_unscale(State& state, const List& list, float inv_scale);
void run_unscale(State& state, Machine& machine, const std::vector<List>& lists,
                 float inv_scale);

// run_pass() measures the pass of that name ("step/adam/float32", see
// passes.cpp) over arrays of `bytes` together; `machine` may be null.
void run_pass(State& state, const std::string& pass, std::size_t bytes,
              Machine* machine);

// ProductShape is out[m, n] = a[m, k] * b[k, n], `batch` times. In memory a or
// b may be transposed.
struct ProductShape {
  std::size_t batch, m, n, k;
  bool a_transposed, b_transposed;

  std::size_t elements() const { return batch * (m * k + k * n + m * n); }
};
struct ProductArrays {
  Matrices a, b, out;
};
// product_arrays() places the matrices of a product one after another.
ProductArrays product_arrays(std::byte* memory, const ProductShape& shape,
                             ScalarType dtype);

// ---- The roofline of passes over several arrays ----------------------------

// Operands is what a pass does to its arrays: one is read, some of float32 are
// updated in place, one is written; `in` and `out` are bytes of an element, 2,
// 4 or 0 for none.
struct Operands {
  std::size_t in;
  std::size_t inout;
  std::size_t out;

  // The bytes that one element moves, read and written each counted. The read
  // of a line before a part of it is written is not: a non-temporal store does
  // without.
  std::size_t traffic() const { return in + 8 * inout + out; }
  bool reads_only() const { return inout == 0 && out == 0; }
  std::string name() const {
    return "in:" + std::to_string(in) + "/inout:" + std::to_string(inout) +
           "/out:" + std::to_string(out);
  }
};

// OperandArrays places the arrays of a pass, `bytes` together, each on a page
// of its own and at another distance from a multiple of 4 KiB.
struct OperandArrays {
  static constexpr std::size_t kUnit = 32;  // divides `count`: whole lines
  OperandArrays(const Operands& operands, std::size_t wanted_bytes);
  std::size_t count;                 // elements of each
  std::size_t bytes = 0;             // of memory, all of them
  std::vector<std::size_t> offsets;  // in, inout ..., out
};

}  // namespace bench
}  // namespace swamp

#endif  // SWAMP_BENCH_BENCH_H_
