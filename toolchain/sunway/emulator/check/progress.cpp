#include "toolchain/sunway/emulator/check/progress.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "toolchain/sunway/emulator/schedule.h"

namespace swamp::sunway::check {
namespace {

constexpr int kReadsBeforeYield = 100;
// After so many accesses without a call the slave yields the turn even if it
// seems to work: it may be waiting in a way that looks like work.
constexpr int kAccessesBeforeYield = 100000;
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

void Progress::count_access() {
  if (++accesses_ < kAccessesBeforeYield) return;
  accesses_ = 0;
  (void)yield_turn(slave_);
}

void Progress::wrote() {
  advance();
  polled_.clear();
  count_access();
}

void Progress::read(std::uintptr_t word, const void* pc, bool is_volatile) {
  count_access();
  if (word == last_read_ || polled_.insert(word, is_volatile)) {
    slave_.loop_pc = pc;
    repeated_read();
  } else {
    repeated_reads_ = 0;
    sleep_ms_ = 1;
    slave_.loop_pc = nullptr;
    advance();
  }
  last_read_ = word;
}

void Progress::repeated_read() {
  if (++repeated_reads_ <= kReadsBeforeYield) return;
  repeated_reads_ = 0;
  if (yield_turn(slave_)) return;
  // No other slave can run. Sleep, so that the host threads get a processor.
  sleep_ms_ = std::min(2 * sleep_ms_, kLongestSleepMs);
  std::this_thread::sleep_for(std::chrono::milliseconds(sleep_ms_ / 2));
}

}  // namespace swamp::sunway::check
