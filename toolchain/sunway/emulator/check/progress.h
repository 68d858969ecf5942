// Finds programs that cannot continue: Progress distinguishes a slave that
// works from one that only polls, and the watchdog reports if none works.
#ifndef SWAMP_SUNWAY_EMULATOR_CHECK_PROGRESS_H_
#define SWAMP_SUNWAY_EMULATOR_CHECK_PROGRESS_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "toolchain/sunway/emulator/machine.h"

namespace swamp::sunway::check {

// Progress belongs to one slave. Only count() may be called by other threads.
class Progress {
 public:
  explicit Progress(Slave& slave) : slave_(slave) {}

  // count() changes whenever the slave does more than read the same few words
  // repeatedly.
  std::uint64_t count() const noexcept {
    return count_.load(std::memory_order_relaxed);
  }
  void advance() noexcept {
    count_.store(count() + 1, std::memory_order_relaxed);
  }
  // begin_call() is for a call of the run-time library.
  void begin_call() noexcept;
  // read() is for a read by the slave's own instruction. It counts as progress
  // unless the word was read before; repeated reads yield the turn now and
  // then. Returns whether there were so many that the slave waits for the word.
  bool read(std::uintptr_t word, const void* pc, bool is_volatile) {
    if (is_volatile || polls() || word == last_read_ ||
        accesses_ + 1 >= kAccessesBeforeYield) {
      return read_again(word, pc, is_volatile);
    }
    read_many(word, 1);
    return false;
  }
  // read_many() is for a loop that reads this number of words.
  void read_many(std::uintptr_t last, unsigned long words) noexcept {
    accesses_ += words;
    repeated_reads_ = 0;
    sleep_ms_ = 1;
    slave_.loop_pc = nullptr;
    last_read_ = last;
    advance();
  }
  // yields() yields the turn and returns true after too many accesses without a
  // call: a wait may look like work.
  bool yields();
  // wrote() is for a write by the slave's own instruction.
  void wrote(std::uintptr_t word);
  // probe() makes the slave look, for its next accesses, whether they are to a
  // few words only, as in a wait; if so it yields the turn. Any thread may call
  // it.
  void probe() noexcept { probes_ = kProbes; }
  // polls() returns whether all accesses must be passed on: they may be those
  // of a wait.
  bool polls() const noexcept {
    return !polled_.empty() || probes_.load(std::memory_order_relaxed) != 0;
  }
  // forget_reads() lets the next read of each word count as progress again.
  void forget_reads() noexcept { polled_.clear(); }
  // works() is for a call that no waiting slave makes: the next read is not a
  // repeated one.
  void works() noexcept {
    last_read_ = 0;
    repeated_reads_ = 0;
  }
  std::uintptr_t last_read() const noexcept { return last_read_; }

 private:
  // PolledWords is the set of words that were read since the last store or
  // call, beginning with the first volatile one: a loop over plain data is
  // computation, not polling.
  class PolledWords {
   public:
    // insert() returns whether the word was there already.
    bool insert(std::uintptr_t word, bool is_volatile) noexcept;
    void clear() noexcept {
      if (count_ == 0) return;
      places_.fill(0);
      count_ = 0;
    }

    bool empty() const noexcept { return count_ == 0; }
    bool full() const noexcept { return count_ == kMost; }

   private:
    static constexpr std::size_t kMost = 96;
    std::array<std::uintptr_t, 128> places_{};  // open addressing; 0: free
    std::size_t count_ = 0;
  };

  static constexpr int kProbes = 4096;
  // After this many accesses without a call the slave yields the turn even if
  // it seems to work.
  static constexpr unsigned long kAccessesBeforeYield = 100000;

  bool read_again(std::uintptr_t word, const void* pc, bool is_volatile);
  void count_access(std::uintptr_t word);
  void repeated_read();

  Slave& slave_;
  std::atomic<std::uint64_t> count_{0};
  std::uintptr_t last_read_ = 0;
  PolledWords polled_;
  PolledWords probed_;
  std::atomic<int> probes_{0};
  int repeated_reads_ = 0;      // in a row
  unsigned long accesses_ = 0;  // since the last call
  int sleep_ms_ = 1;
};

// start_watchdog() starts, once, the thread that takes the turn from a slave
// that loops without a call, starts a pending launch if the master does not
// wait, and reports when nothing has moved for SWAMP_CHECK_TIMEOUT seconds.
void start_watchdog();
// restart_watchdog() is for a child of fork().
void restart_watchdog();

}  // namespace swamp::sunway::check

#endif  // SWAMP_SUNWAY_EMULATOR_CHECK_PROGRESS_H_
