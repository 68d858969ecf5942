// How many threads a case runs on. Only OpenMP lets a caller say it.
#ifndef SWAMP_BENCH_THREADS_H_
#define SWAMP_BENCH_THREADS_H_

#include <cstddef>
#include <vector>

#if defined(SWAMP_HAS_OPENMP)
#include <omp.h>
#endif

namespace swamp::bench {

#if defined(SWAMP_HAS_OPENMP)
inline int max_threads() noexcept { return omp_get_max_threads(); }
inline void set_threads(int threads) noexcept { omp_set_num_threads(threads); }
#else
inline int max_threads() noexcept { return 1; }
inline void set_threads(int) noexcept {}
#endif

// thread_counts() is "1 and all".
inline std::vector<int> thread_counts() {
  static const int all = max_threads();
  return all > 1 ? std::vector<int>{1, all} : std::vector<int>{1};
}

// ThreadsScope sets the caller's number of threads for the time of one case.
class ThreadsScope {
 public:
  explicit ThreadsScope(int threads) noexcept : before_(max_threads()) {
    set_threads(threads);
  }
  ~ThreadsScope() { set_threads(before_); }
  ThreadsScope(const ThreadsScope&) = delete;
  ThreadsScope& operator=(const ThreadsScope&) = delete;

 private:
  int before_;
};

// for_each_part() splits [0, count) into one contiguous part a thread, in units
// of `unit`, and calls part(begin, end) on each thread for its own.
template <class Part>
void for_each_part(int threads, std::size_t count, std::size_t unit,
                   Part part) {
  if (threads == 1) {
    part(std::size_t{0}, count);
    return;
  }
#if defined(SWAMP_HAS_OPENMP)
  const std::size_t units = count / unit;
  const auto edge = [&](int thread) {
    if (thread == threads) return count;
    return units * static_cast<std::size_t>(thread) /
           static_cast<std::size_t>(threads) * unit;
  };
#pragma omp parallel for num_threads(threads) schedule(static, 1)
  for (int thread = 0; thread < threads; ++thread) {
    part(edge(thread), edge(thread + 1));
  }
#else
  static_cast<void>(unit);
#endif
}

}  // namespace swamp::bench

#endif  // SWAMP_BENCH_THREADS_H_
