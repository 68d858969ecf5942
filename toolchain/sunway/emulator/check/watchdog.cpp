#include "toolchain/sunway/emulator/check/watchdog.h"

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <thread>

#include "toolchain/sunway/emulator/check/hang.h"
#include "toolchain/sunway/emulator/check/report.h"
#include "toolchain/sunway/emulator/check/slave_check.h"
#include "toolchain/sunway/emulator/clock.h"
#include "toolchain/sunway/emulator/schedule.h"
#include "toolchain/sunway/emulator/settings.h"

namespace swamp::sunway::check {
namespace {

constexpr unsigned long kMillisecond = 1000000;
constexpr auto kTick = std::chrono::milliseconds(5);
constexpr unsigned long kSilence = 20 * kMillisecond;  // costs the turn
// Of the time between two ticks, what counts: what goes beyond it the whole
// process may have had to wait for a processor.
constexpr unsigned long kMostOfTick = 50 * kMillisecond;

// Watch remembers when it saw each slave move.
class Watch {
 public:
  void tick() {
    World& all = world();
    const Lock lock(all.mutex);
    const unsigned long real = nanoseconds();
    now_ += std::min(real - real_, kMostOfTick);
    real_ = real;
    const unsigned long now = now_;
    if (all.live == 0 || is_reporting()) {
      patience_ = kSilence;
      last_move_ = now;
      seen_.clear();
      return;
    }
    look(now);
    if (all.held && now - last_move_ > kSilence) release_slaves();
    Slave* running = all.turn;
    if (running != nullptr && running->wait == nullptr &&
        now - seen_[running].moved > patience_) {
      patience_ = 0;  // the next one will most likely loop there, too
      running->loose = true;
      all.turn = nullptr;
      changed();
    }
    // A slave that waits long for another is no hang: all must have been silent
    // for some time before the longest silence counts.
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
  };

  // Who only waits for its turn could run.
  static bool waits(const Slave& slave) {
    return slave.wait != nullptr && slave.wait->kind != Wait::Kind::turn;
  }

  // look() finds who moved since the last tick, and who has been silent longest
  // of those that do not wait.
  void look(unsigned long now) {
    oldest_ = nullptr;
    for (const Group& group : world().groups) {
      for (const auto& slave : group.slaves) {
        if (!slave->live) {
          seen_.erase(slave.get());
          continue;
        }
        Seen& seen = seen_.emplace(slave.get(), Seen{0, now}).first->second;
        const std::uint64_t progress = slave->check->progress();
        if (progress != seen.progress || waits(*slave)) {
          if (progress != seen.progress) last_move_ = now;
          seen = {progress, now};
        } else if (oldest_ == nullptr || seen.moved < seen_[oldest_].moved) {
          oldest_ = slave.get();
        }
      }
    }
  }

  std::map<const Slave*, Seen> seen_;
  const Slave* oldest_ = nullptr;
  unsigned long real_ = nanoseconds();
  unsigned long now_ = real_;
  unsigned long last_move_ = real_;
  unsigned long patience_ = kSilence;
};

}  // namespace

void restart_watchdog() {
  // The process's signals are for the program's own threads. Those that a
  // thread causes itself stay unblocked: blocking them would bypass any
  // handler.
  sigset_t blocked;
  sigset_t own;
  sigfillset(&blocked);
  for (const int signal :
       {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS}) {
    sigdelset(&blocked, signal);
  }
  pthread_sigmask(SIG_SETMASK, &blocked, &own);
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
