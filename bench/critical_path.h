// SlavesInTurn measures how evenly a launch loads many slaves on a computer
// with few cores: a launch is plain data, so one thread runs the slaves one
// after another and takes the time of each.
#ifndef SWAMP_BENCH_CRITICAL_PATH_H_
#define SWAMP_BENCH_CRITICAL_PATH_H_

#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <utility>
#include <vector>

#include "runtime/backend.h"

namespace swamp::bench {

using Clock = std::chrono::steady_clock;
inline double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Times is the time that passed, to which other programs add, and the processor
// time of the calling thread, to which only the question for it adds.
struct Times {
  double passed, processor;

  static Times now() {
    const double processor = processor_now();
    return {seconds_since({}), processor};
  }
  // until_now() returns the times since these. No question for the processor
  // time is part of what passed.
  Times until_now() const {
    const double now = seconds_since({});
    return {now - passed, processor_now() - processor};
  }
  double least() const { return std::min(passed, processor); }

 private:
  static double processor_now() {
    timespec used{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return static_cast<double>(used.tv_sec) +
           1e-9 * static_cast<double>(used.tv_nsec);
  }
};

// CriticalPath is what a call takes on `slaves` slaves that run at the same
// time and do not slow each other down.
struct CriticalPath {
  int slaves = 0;
  std::size_t launches = 0;  // of more than one slave
  double sum = 0;            // seconds of all slaves together
  double longest = 0;        // seconds of the slowest slave, of all launches
  double master = 0;         // seconds outside of the slaves' functions

  // balance() returns sum / (slaves * longest): 1 if all are equally slow.
  double balance() const { return sum / (slaves * longest); }
  // seconds() returns the predicted time if a spawn and join take `barrier`.
  double seconds(double barrier) const {
    return master + longest + static_cast<double>(launches) * barrier;
  }
};

// SlavesInTurn is a backend of one thread. A call is measured several times,
// each time between begin() and end(), and must make the same launches: the
// least time of each slave counts.
class SlavesInTurn final : public runtime::Backend {
 public:
  explicit SlavesInTurn(int slaves) : slaves_(slaves) {}

  void begin() {
    next_ = 0;
    begin_ = Times::now();
  }
  void end() {
    const double outside = begin_.until_now().least();
    master_ = calls_++ == 0 ? outside : std::min(master_, outside);
  }

  void run(const runtime::Launch& launch) override {
    const Times before = Times::now();
    if (next_ == launches_.size()) launches_.emplace_back();
    std::vector<double>& least = launches_[next_++];
    const auto count = static_cast<std::size_t>(launch.slaves);
    least.resize(count, 1e30);
    for (int i = 0; i < launch.slaves; ++i) {
      const Times slave = Times::now();
      runtime::run_slaves(launch, i, i + 1, 0);
      double& time = least[static_cast<std::size_t>(i)];
      time = std::min(time, slave.until_now().least());
    }
    // As if it took no time.
    const Times spent = before.until_now();
    begin_ = {begin_.passed + spent.passed, begin_.processor + spent.processor};
  }

  // As many workers, so that run_parts() divides what the master prepares.
  int worker_count() const noexcept override { return slaves_; }

  CriticalPath path() const {
    CriticalPath path;
    path.slaves = slaves_;
    path.master = master_;
    for (const std::vector<double>& launch : launches_) {
      double longest = 0;
      for (const double time : launch) {
        path.sum += time;
        longest = std::max(longest, time);
      }
      path.longest += longest;
      path.launches += launch.size() > 1 ? 1 : 0;
    }
    return path;
  }

 private:
  int slaves_;
  std::vector<std::vector<double>> launches_;  // the least time of each slave
  std::size_t next_ = 0;                       // launch of this call
  int calls_ = 0;
  Times begin_{};  // of this call, later by what its launches took
  double master_ = 0;
};

}  // namespace swamp::bench

#endif  // SWAMP_BENCH_CRITICAL_PATH_H_
