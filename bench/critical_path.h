// SlavesInTurn measures how evenly a launch loads many slaves on a computer
// with few cores: a launch is plain data, so one thread runs the slaves one
// after another and takes the time of each.
#ifndef SWAMP_BENCH_CRITICAL_PATH_H_
#define SWAMP_BENCH_CRITICAL_PATH_H_

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
// least time of each slave counts, because other programs only add time.
class SlavesInTurn final : public runtime::Backend {
 public:
  explicit SlavesInTurn(int slaves) : slaves_(slaves) {}

  void begin() {
    next_ = 0;
    inside_ = 0;
    begin_ = Clock::now();
  }
  void end() {
    const double outside = seconds_since(begin_) - inside_;
    master_ = calls_++ == 0 ? outside : std::min(master_, outside);
  }

  void run(const runtime::Launch& launch) override {
    const Clock::time_point before = Clock::now();
    if (next_ == launches_.size()) launches_.emplace_back();
    std::vector<double>& least = launches_[next_++];
    const auto count = static_cast<std::size_t>(launch.slaves);
    least.resize(count, 1e30);
    for (int i = 0; i < launch.slaves; ++i) {
      const Clock::time_point slave = Clock::now();
      runtime::run_slaves(launch, i, i + 1, 0);
      double& time = least[static_cast<std::size_t>(i)];
      time = std::min(time, seconds_since(slave));
    }
    inside_ += seconds_since(before);
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
  Clock::time_point begin_;
  double inside_ = 0;
  double master_ = 0;
};

}  // namespace swamp::bench

#endif  // SWAMP_BENCH_CRITICAL_PATH_H_
