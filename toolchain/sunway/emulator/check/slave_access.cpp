// Every load and store of a slave's own instructions: what they clash with.
#include <algorithm>
#include <chrono>
#include <thread>

#include "toolchain/sunway/emulator/check/args.h"
#include "toolchain/sunway/emulator/check/ranges.h"
#include "toolchain/sunway/emulator/check/report.h"
#include "toolchain/sunway/emulator/check/slave_check.h"
#include "toolchain/sunway/emulator/check/written.h"
#include "toolchain/sunway/emulator/schedule.h"
#include "toolchain/sunway/emulator/settings.h"

namespace swamp::sunway::check {
namespace {

constexpr int kPatience = 100;
// So many accesses without a call let others run, whatever they are: the slave
// may wait in a way that looks like work.
constexpr int kLongRun = 100000;
constexpr int kLongestRest = 64;

}  // namespace

void SlaveCheck::look_at_replies(std::uintptr_t begin, std::uintptr_t end,
                                 const void* pc) {
  for (std::size_t i = 0; i < pending_.size(); ++i) {
    Pending& pending = pending_[i];
    if (!meet(begin, end, pending.transfer.reply, 4)) continue;
    // The first look sees the old count; who looks again waits.
    if (pending.looks++ == 0) {
      pending.passed_by = pc;
      continue;
    }
    note({"raw-spin", pc, &slave_,
          "waits by reading the reply word; use dma_wait_value, which the "
          "compiler cannot move or remove",
          pending.pc});
    complete(i);
    return;
  }
}

bool SlaveCheck::Words::again(std::uintptr_t word, bool is_volatile) noexcept {
  if (count_ == 0 && !is_volatile) return false;
  std::size_t place = word / 4 * 0x9e3779b97f4a7c15u >> 57;
  while (places_[place] != 0 && places_[place] != word) {
    place = (place + 1) % places_.size();
  }
  if (places_[place] == word) return true;
  if (count_ == kMost) {
    clear();
    return again(word, is_volatile);
  }
  places_[place] = word;
  ++count_;
  return false;
}

void SlaveCheck::count_access() {
  if (++accesses_ < kLongRun) return;
  accesses_ = 0;
  (void)yield_turn(slave_);
}

void SlaveCheck::look(std::uintptr_t word, const void* pc, bool is_volatile) {
  count_access();
  if (word == last_read_ || looked_at_.again(word, is_volatile)) {
    slave_.look_pc = pc;
    again();
  } else {
    looks_ = 0;
    rest_ms_ = 1;
    slave_.look_pc = nullptr;
    step();
  }
  last_read_ = word;
}

void SlaveCheck::again() {
  if (++looks_ <= kPatience) return;
  looks_ = 0;
  if (yield_turn(slave_)) return;
  // Nobody here can help; whoever can needs the cores.
  rest_ms_ = std::min(2 * rest_ms_, kLongestRest);
  std::this_thread::sleep_for(std::chrono::milliseconds(rest_ms_ / 2));
}

void SlaveCheck::read(const volatile void* address, std::size_t bytes,
                      const void* pc, bool is_volatile) {
  const std::uintptr_t begin = number(address);
  const std::uintptr_t end = begin + bytes;
  settle();
  take_turn(slave_);
  look(begin, pc, is_volatile);
  attend();  // others may have run since
  if (is_volatile) last_flag_ = begin;
  if (!slave_.in_ldm(address, bytes)) {
    if (is_volatile) {
      clock_.take(address);
    } else {
      direct_read(begin, end, pc);
    }
    if (!pending_.empty()) direct_in_flight(begin, end, false, pc);
    if (may_have_changed()) check_args(slave_, address, bytes, pc);
    if (settings().main_access) direct(begin, end, false, pc);
    return;
  }
  if (begin < accessed_ && begin >= number(slave_.stack)) deepen(begin, pc);
  if (!arrivals_.empty()) check_arrivals(begin, end, is_volatile, pc);
  if (!pending_.empty()) {
    look_at_replies(begin, end, pc);
    for (Pending& pending : pending_) {
      const Transfer& t = pending.transfer;
      if (!t.writes_main() &&
          meet(begin, end, t.ldm, static_cast<std::size_t>(t.length))) {
        report_unwaited(pending, pc,
                        std::string("reads what ") + t.call +
                            " is still bringing: wait for its reply first");
      }
    }
  }
  heap_access(address, bytes, false, pc);
}

void SlaveCheck::write(const volatile void* address, std::size_t bytes,
                       const void* pc, bool is_volatile) {
  const std::uintptr_t begin = number(address);
  const std::uintptr_t end = begin + bytes;
  settle();
  attend();
  step();
  looked_at_.clear();
  count_access();
  if (!slave_.in_ldm(address, bytes)) {
    if (is_volatile) clock_.give(address);
    if (!pending_.empty()) direct_in_flight(begin, end, true, pc);
    direct(begin, end, true, pc);
    if (is_volatile) {  // a flag, for its order
      add_written({begin, end, pc, &slave_});
      written_ = {};
    }
    return;
  }
  if (begin < accessed_ && begin >= number(slave_.stack)) deepen(begin, pc);
  for (Pending& pending : pending_) {
    const Transfer& t = pending.transfer;
    if (meet(begin, end, t.reply, 4)) {
      pending.looks = 0;
      if (!pending.reported) {
        pending.reported = true;
        report({"stale-reply", pc, &slave_,
                std::string("writes the reply word of a ") + t.call +
                    " in flight: whether its count is lost depends on when it "
                    "ends; reset the word before the transfer",
                pending.pc});
      }
    }
    if (!meet(begin, end, t.ldm, static_cast<std::size_t>(t.length)) ||
        pending.reported) {
      continue;
    }
    pending.reported = true;
    if (t.writes_main()) {
      report({"source-modified", pc, &slave_,
              std::string("writes into what ") + t.call +
                  " is still sending: wait for its reply first",
              pending.pc});
    } else {
      report({"reuse-in-flight", pc, &slave_,
              std::string("writes into what ") + t.call +
                  " is still filling: wait for its reply first",
              pending.pc});
    }
  }
  heap_access(address, bytes, true, pc);
}

void SlaveCheck::heap_access(const volatile void* address, std::size_t bytes,
                             bool write, const void* pc) {
  auto* at = static_cast<std::byte*>(const_cast<void*>(address));
  const auto offset = static_cast<std::size_t>(at - slave_.slot);
  if (offset < world().ldm_bytes && !slave_.heap.holds(offset, bytes)) {
    report({"ldm-range", pc, &slave_,
            std::string(write ? "writes" : "reads") +
                " outside what ldm_malloc gave, at byte " +
                std::to_string(offset) + " of its memory"});
    return;
  }
  if (write) {
    shadow_.written(at, bytes);
    return;
  }
  if (offset >= world().ldm_bytes) return;
  // Not all of a struct need be written: some of it is padding.
  if (shadow_.unwritten_words(at, bytes) == Shadow::words(at, bytes)) {
    report({"uninitialised", pc, &slave_,
            "reads memory of ldm_malloc to which nothing was written: on the "
            "machine it holds what the last program left"});
    shadow_.written(at, bytes);
  }
}

}  // namespace swamp::sunway::check
