#include "runtime/sunway/check/watchdog.h"

#include <signal.h>

#include <chrono>
#include <cstdint>
#include <thread>

#include "runtime/sunway/check/hang.h"
#include "runtime/sunway/check/slave_check.h"
#include "runtime/sunway/schedule.h"
#include "runtime/sunway/settings.h"

namespace swamp::sunway::check {
namespace {

constexpr auto kTick = std::chrono::milliseconds(5);
constexpr int kSilentTicks = 4;  // 20 ms

// Watch remembers what it saw a tick ago.
class Watch {
 public:
  void tick() {
    World& all = world();
    const Lock lock(all.mutex);
    if (all.live == 0) {
      still_ = 0;
      patience_ = kSilentTicks;
      return;
    }
    const std::uint64_t moved = progress();
    still_ = moved == moved_ ? still_ + 1 : 0;
    moved_ = moved;
    if (still_ < patience_) return;
    if (all.held) {
      release_slaves();
      return;
    }
    if (all.turn != nullptr && all.turn->wait == nullptr) {
      all.turn->loose = true;
      all.turn = nullptr;
      patience_ = 1;  // the next one will most likely loop there, too
      changed();
    }
    const auto timeout = std::chrono::seconds(settings().timeout_seconds);
    if (still_ * kTick < timeout) return;
    for (const Group& group : all.groups) {
      for (const auto& slave : group.slaves) {
        if (slave->live && slave->wait == nullptr) {
          report_silence(*slave, settings().timeout_seconds);
        }
      }
    }
  }

 private:
  static std::uint64_t progress() {
    std::uint64_t sum = 0;
    for (const Group& group : world().groups) {
      for (const auto& slave : group.slaves) {
        if (slave->check) sum += slave->check->progress();
      }
    }
    return sum;
  }

  std::uint64_t moved_ = 0;
  std::int64_t still_ = 0;
  std::int64_t patience_ = kSilentTicks;
};

}  // namespace

void start_watchdog() {
  static const bool started = [] {
    sigset_t blocked;
    sigset_t own;
    sigfillset(&blocked);
    pthread_sigmask(SIG_SETMASK, &blocked, &own);
    std::thread([] {
      Watch watch;
      for (;;) {
        std::this_thread::sleep_for(kTick);
        watch.tick();
      }
    }).detach();
    pthread_sigmask(SIG_SETMASK, &own, nullptr);
    return true;
  }();
  (void)started;
}

}  // namespace swamp::sunway::check
