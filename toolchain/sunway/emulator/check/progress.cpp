// A slave that reads the same few words again and again waits in a loop. It
// yields the turn, and the watchdog, a thread of its own, ends a program in
// which no slave has made progress for a while.
#include "toolchain/sunway/emulator/check/progress.h"

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <thread>

#include "toolchain/sunway/emulator/check/host_check.h"
#include "toolchain/sunway/emulator/check/slave_check.h"
#include "toolchain/sunway/emulator/host_process.h"
#include "toolchain/sunway/emulator/report.h"
#include "toolchain/sunway/emulator/schedule.h"
#include "toolchain/sunway/emulator/transfer.h"

namespace swamp::sunway::check {
namespace {

constexpr int kReadsBeforeYield = 100;
// A word that is read again more often than this, in a row, is waited for.
constexpr int kReadsOfWait = 16;
constexpr int kLongestSleepMs = 64;

}  // namespace

bool Progress::PolledWords::insert(std::uintptr_t word,
                                   bool is_volatile) noexcept {
  if (count_ == 0 && !is_volatile) return false;
  std::size_t place = word / 4 * 0x9e3779b97f4a7c15u >> 57;
  while (places_[place] != 0 && places_[place] != word) {
    place = (place + 1) % places_.size();
  }
  if (places_[place] == word) return true;
  if (count_ == kMost) {
    clear();
    return insert(word, is_volatile);
  }
  places_[place] = word;
  ++count_;
  return false;
}

void Progress::begin_call() noexcept {
  slave_.loop_pc = nullptr;
  polled_.clear();
  accesses_ = 0;
}

void Progress::count_access(std::uintptr_t word) {
  ++accesses_;
  if (const int left = probes_.load(std::memory_order_relaxed); left != 0) {
    (void)probed_.insert(word, true);
    if (left == 1) accesses_ = kAccessesBeforeYield;
    const bool ends = probed_.full() || left == 1;
    if (ends) probed_.clear();
    probes_.store(ends ? 0 : left - 1, std::memory_order_relaxed);
  }
  (void)yields();
}

bool Progress::yields() {
  if (accesses_ < kAccessesBeforeYield) return false;
  accesses_ = 0;
  (void)yield_turn(slave_);
  return true;
}

void Progress::wrote(std::uintptr_t word) {
  advance();
  polled_.clear();
  count_access(word);
}

bool Progress::read_again(std::uintptr_t word, const void* pc,
                          bool is_volatile) {
  count_access(word);
  const bool repeated = word == last_read_ || polled_.insert(word, is_volatile);
  if (repeated) {
    slave_.loop_pc = pc;
    repeated_read();
  } else {
    repeated_reads_ = 0;
    sleep_ms_ = 1;
    slave_.loop_pc = nullptr;
    advance();
  }
  last_read_ = word;
  return repeated && repeated_reads_ > kReadsOfWait;
}

void Progress::repeated_read() {
  if (++repeated_reads_ <= kReadsBeforeYield) return;
  repeated_reads_ = 0;
  if (yield_turn(slave_)) return;
  // No other slave can run. Sleep, so that the host threads get a processor.
  sleep_ms_ = std::min(2 * sleep_ms_, kLongestSleepMs);
  std::this_thread::sleep_for(std::chrono::milliseconds(sleep_ms_ / 2));
}

namespace {

// report_silence() is for a slave that loops without a call.
[[noreturn]] void report_silence(const Slave& slave, int seconds) {
  const bool polls = slave.loop_pc != nullptr;
  end_with(
      {"hang", polls ? slave.loop_pc : slave.last_pc, &slave,
       std::string(polls ? "" : "this is its last call; ") + "for " +
           std::to_string(seconds) +
           " s it has only read the same addresses again: it waits for "
           "something that cannot happen (SWAMP_CHECK_TIMEOUT sets the time)",
       polls ? slave.last_pc : nullptr});
}

constexpr unsigned long kMillisecond = 1000000;
constexpr auto kTick = std::chrono::milliseconds(5);
// A slave that makes no progress for this time loses the turn. A launch begins
// after this time if the master does not wait, or after the longest one while
// its accesses are examined.
constexpr unsigned long kSilence = 20 * kMillisecond;
constexpr unsigned long kLongestPending = 300 * kMillisecond;
// A slave that has hardly run loses the turn after this time.
constexpr unsigned long kLongSilence = 500 * kMillisecond;
// More than this between two ticks is not counted: the whole process may have
// waited for a processor.
constexpr unsigned long kMostOfTick = 50 * kMillisecond;

// Watch records when each slave last made progress.
class Watch {
 public:
  void tick() {
    Machine& all = machine();
    const Lock lock(all.mutex);
    const unsigned long real = nanoseconds();
    now_ += std::min(real - real_, kMostOfTick);
    real_ = real;
    const unsigned long now = now_;
    if (all.live == 0 || all.exiting != 0 || is_reporting()) {
      silence_limit_ = kSilence;
      last_move_ = now;
      seen_.clear();
      live_ = all.live;
      return;
    }
    update(now);
    if (all.live > live_) last_move_ = now;  // the master launches more slaves
    live_ = all.live;
    if (all.launch_pending &&
        now - last_move_ > (wants_to_wait() ? kLongestPending : kSilence)) {
      release_slaves();
    }
    Slave* running = all.turn;
    if (running != nullptr) check_of(*running)->probe();
    if (running != nullptr && running->wait == nullptr &&
        !running->keeps_turn && now - seen_[running].moved > silence_limit_ &&
        has_run(*running, now)) {
      silence_limit_ = 0;  // the next slave will probably loop there, too
      take_turn_from(*running);
      changed();
    }
    // One slave that waits long for another is not a hang: it is one if no
    // slave has made progress for some time.
    const unsigned long timeout =
        static_cast<unsigned long>(settings().timeout_seconds) * 1000 *
        kMillisecond;
    if (oldest_ != nullptr && now - last_move_ > timeout / 2 &&
        now - seen_[oldest_].moved > timeout) {
      report_silence(*oldest_, settings().timeout_seconds);
    }
  }

 private:
  struct Seen {
    std::uint64_t progress = 0;
    unsigned long moved = 0;
    unsigned long cpu = 0;  // the CPU time of the slave's thread then
  };

  // has_run() returns whether the slave made no progress although it had a
  // processor: on a busy computer it may have waited for one.
  bool has_run(const Slave& slave, unsigned long now) {
    const Seen& seen = seen_[&slave];
    return silence_limit_ == 0 || now - seen.moved > kLongSilence ||
           cpu_time(slave) - seen.cpu > kSilence / 2;
  }

  // A slave that waits for its turn only is able to run.
  static bool waits(const Slave& slave) {
    return slave.wait != nullptr && slave.wait->kind != Wait::Kind::turn;
  }

  // update() finds which slaves made progress since the last tick and, of those
  // that do not wait, the one that made none for longest.
  void update(unsigned long now) {
    oldest_ = nullptr;
    for (const Group& group : machine().groups) {
      for (const auto& slave : group.slaves) {
        if (!slave->live()) {
          seen_.erase(slave.get());
          continue;
        }
        Seen& seen = seen_.emplace(slave.get(), Seen{0, now}).first->second;
        const std::uint64_t progress = check_of(*slave)->progress();
        if (progress != seen.progress || waits(*slave)) {
          if (progress != seen.progress) last_move_ = now;
          seen = {progress, now,
                  slave.get() == machine().turn ? cpu_time(*slave) : 0};
        } else if (oldest_ == nullptr || seen.moved < seen_[oldest_].moved) {
          oldest_ = slave.get();
        }
      }
    }
  }

  std::map<const Slave*, Seen> seen_;
  const Slave* oldest_ = nullptr;
  int live_ = 0;  // slaves at the last tick
  unsigned long real_ = nanoseconds();
  unsigned long now_ = real_;
  unsigned long last_move_ = real_;
  unsigned long silence_limit_ = kSilence;
};

}  // namespace

void restart_watchdog() {
  const sigset_t own = block_signals();
  std::thread([] {
    Watch watch;
    for (;;) {
      std::this_thread::sleep_for(kTick);
      watch.tick();
    }
  }).detach();
  pthread_sigmask(SIG_SETMASK, &own, nullptr);
}

void start_watchdog() {
  static const bool started = [] {
    restart_watchdog();
    return true;
  }();
  (void)started;
}

}  // namespace swamp::sunway::check
