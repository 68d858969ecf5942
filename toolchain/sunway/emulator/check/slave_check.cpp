#include "toolchain/sunway/emulator/check/slave_check.h"

#include <algorithm>
#include <cstring>

#include "toolchain/sunway/emulator/api.h"
#include "toolchain/sunway/emulator/check/access_log.h"
#include "toolchain/sunway/emulator/check/host_check.h"
#include "toolchain/sunway/emulator/check/ranges.h"
#include "toolchain/sunway/emulator/check/report.h"
#include "toolchain/sunway/emulator/schedule.h"
#include "toolchain/sunway/emulator/settings.h"

namespace swamp::sunway::check {
namespace {

// next_reply() is the value of the word after the next reply.
std::uint64_t next_reply(const volatile void* reply) {
  return static_cast<std::uint64_t>(read_reply(reply)) + 1;
}

}  // namespace

SlaveCheck::SlaveCheck(Slave& slave, std::size_t slot_bytes)
    : slave_(slave),
      clock_(slave.number(),
             static_cast<std::size_t>(settings().core_groups) *
                 static_cast<std::size_t>(settings().slaves_per_group)),
      shadow_(slave.slot, slot_bytes),
      progress_(slave),
      stack_(slave),
      direct_(slave, clock_) {}

void SlaveCheck::begin_call(const void* pc) {
  slave_.last_pc = pc;
  progress_.begin_call();
  direct_.log_write();
  progress_.advance();
  resume();
  called_ = clock_.now();
}

void SlaveCheck::begin_launch() {
  progress_.advance();
  resume();
  // The memory below belongs to no frame yet, except those of functions called
  // here.
  constexpr std::size_t kMargin = 1024;
  // For the C library's functions, whose accesses are not observed.
  constexpr std::size_t kBelow = 8192;
  auto* here = static_cast<std::byte*>(__builtin_frame_address(0));
  const auto room = static_cast<std::size_t>(here - slave_.stack);
  const std::size_t bytes =
      std::min(room - std::min(room, kMargin), machine().ldm_bytes) / 4 * 4;
  std::byte* begin = here - kMargin - bytes;
  begin -= number(begin) % 4;
  // Memory far below what the last launch used is still poisoned.
  std::byte* first = begin;
  if (!first_launch_ && stack_.lowest() > number(begin) + kBelow) {
    first += (stack_.lowest() - kBelow - number(begin)) / 4 * 4;
  }
  const auto done = std::min(static_cast<std::size_t>(first - begin), bytes);
  shadow_.poison(begin + done, bytes - done);
  first_launch_ = false;
  stack_.begin_launch(number(here));
  direct_.begin_launch();
  arrivals_.clear();
}

void SlaveCheck::end_launch() {
  resume();
  direct_.log_write();
  direct_.log_reads();
  stack_.end_launch();
  progress_.advance();
  for (Pending& pending : pending_) {
    report_unwaited(pending, pending.pc,
                    "the transfer is not waited for before the slave ends: "
                    "wait for its reply, with a count that includes it");
  }
  finish_all();
}

void SlaveCheck::report_unwaited(Pending& pending, const void* pc,
                                 const std::string& what) {
  if (pending.reported) return;
  pending.reported = true;
  if (pending.passed_by != nullptr) {
    report(
        {"stale-reply", pending.passed_by, &slave_,
         "the wait passes at once, on the count of an older transfer, while " +
             std::string(pending.transfer.call) +
             " is still in flight; reset the reply word to 0 before the "
             "transfer, or wait for a growing count",
         pending.pc});
    return;
  }
  report({"missing-wait", pc, &slave_, what,
          pc == pending.pc ? nullptr : pending.pc});
}

void SlaveCheck::log(const Transfer& t, const void* pc,
                     const std::shared_ptr<const Clock>& before) {
  if (t.kind == Transfer::Kind::remote_get) {
    const Slave* owner = ldm_owner(number(t.main));
    if (owner == nullptr || owner == &slave_) return;
    log_ldm_access(*owner,
                   {number(t.main), number(t.main) + bytes_of(t), &slave_, pc,
                    false, false, 0, before, clock_.now()});
    return;
  }
  for_blocks(t, [&](std::byte* main, std::byte*, std::size_t bytes) {
    if (t.writes_main()) {
      add_written({number(main), number(main) + bytes, pc, &slave_});
    }
    log_access({number(main), number(main) + bytes, &slave_, pc,
                t.writes_main(), false, 0, before, clock_.now()});
  });
  if (t.writes_main()) {
    args_written(t.main, t.extent());
  }
}

void SlaveCheck::log_unknown(const Transfer& t) const {
  if (!keeps_written()) return;
  for_blocks(t, [&](std::byte* main, std::byte* ldm, std::size_t bytes) {
    shadow_.for_unwritten(ldm, bytes, [&](std::size_t i) {
      add_written({number(main) + i, number(main) + i + 1, nullptr, &slave_});
    });
  });
}

void SlaveCheck::issue(const Transfer& t, const void* pc, bool now) {
  if (t.reply == nullptr) {
    begin_call(pc);
    (void)check_reply(nullptr, t.call, pc);
    return;
  }
  if (!allows(t, pc)) {
    if (slave_.in_ldm(t.reply, 4)) add_reply(t.reply);
    return;  // count it as done, or wait() would hang as well
  }
  check_clashes(t, pc);
  check_written(t, pc);
  if (t.kind == Transfer::Kind::get) {
    check_args(slave_, t.main, bytes_of(t), pc);
  }
  Pending pending{t, pc, clock_.snapshot(), 0};
  pending.moved = now || machine().order.eager;
  if (t.writes_main()) {
    log_unknown(t);
  } else {
    shadow_.written(t.ldm, bytes_of(t));
    std::memset(t.ldm, Shadow::kPoison, bytes_of(t));
  }
  if (pending.moved) carry_out(t);
  pending.logged = now;
  if (now) log(t, pc, pending.before);
  pending.source_hash = hash(t.ldm, bytes_of(t));
  pending_.push_back(std::move(pending));
}

void SlaveCheck::blocking(const Transfer& t, const void* pc) {
  if (!allows(t, pc)) return;
  check_clashes(t, pc);
  check_written(t, pc);
  if (t.kind == Transfer::Kind::get) {
    check_args(slave_, t.main, bytes_of(t), pc);
  }
  if (t.writes_main()) log_unknown(t);
  carry_out(t);
  if (!t.writes_main()) shadow_.written(t.ldm, bytes_of(t));
  log(t, pc, clock_.snapshot());
}

void SlaveCheck::broadcast(const Transfer& t, const void* pc) {
  check_clashes(t, pc);
  check_args(slave_, t.main, bytes_of(t), pc);
  log(t, pc, clock_.snapshot());
}

void SlaveCheck::sends(const void* local, long length, const char* call,
                       const void* pc) {
  const std::uintptr_t begin = number(local);
  const std::uintptr_t end = begin + static_cast<std::uintptr_t>(length);
  if (!arrivals_.empty()) check_arrivals(begin, end, false, pc);
  for (Pending& pending : pending_) {
    const Transfer& t = pending.transfer;
    if (!t.writes_main() && overlaps(begin, end, t.ldm, bytes_of(t))) {
      report_unwaited(pending, pc,
                      std::string(call) + " sends a buffer that " + t.call +
                          " still fills: wait for that first");
    }
  }
}

void SlaveCheck::fetched(const Transfer& t, const void* pc) {
  received(t.ldm, t.length, slave_, nullptr, t.call, pc);
  log(t, pc, clock_.snapshot());
}

void SlaveCheck::complete(std::size_t index) {
  const Pending pending = pending_[index];
  const Transfer& t = pending.transfer;
  pending_.erase(pending_.begin() + static_cast<std::ptrdiff_t>(index));
  // The slave's own stores were checked when they happened; this finds writes
  // by system libraries.
  if (hash(t.ldm, bytes_of(t)) != pending.source_hash && !pending.reported) {
    report({t.writes_main() ? "source-modified" : "reuse-in-flight", pending.pc,
            &slave_,
            std::string(t.call) + "'s buffer was written before its wait"});
  }
  if (!pending.moved) carry_out(t);
  if (!pending.logged) log(t, pending.pc, pending.before);
  if (slave_.in_ldm(t.reply, 4)) add_reply(t.reply);
}

void SlaveCheck::finish_all() {
  while (!pending_.empty()) complete(0);
}

void SlaveCheck::before_wait(volatile void* reply, int value, const char* call,
                             const void* pc) {
  begin_call(pc);
  stack_.check(pc);
  if (!check_reply(reply, call, pc)) {
    finish_all();
    end_wait_without_reply(reply, value);
    return;
  }
  if (read_reply(reply) >= value) {
    for (Pending& pending : pending_) {
      if (pending.transfer.reply == reply) pending.passed_by = pc;
    }
  }
  for (std::size_t i = 0; i < pending_.size() && read_reply(reply) < value;) {
    if (pending_[i].transfer.reply == reply) {
      complete(i);
    } else {
      ++i;
    }
  }
}

void SlaveCheck::end_wait_without_reply(volatile void* reply, int value) {
  // No transfer raised this word; set it, so that the slave continues.
  if (reply != nullptr && read_reply(reply) < value) {
    __atomic_store_n(static_cast<volatile int*>(reply), value,
                     __ATOMIC_RELEASE);
  }
}

void SlaveCheck::after_wait(volatile void* reply, int value) {
  clock_.acquire_messages(reply,
                          static_cast<std::uint64_t>(std::max(value, 0)));
  clock_.acquire(&slave_);
}

void SlaveCheck::check_arrivals(std::uintptr_t begin, std::uintptr_t end,
                                bool is_volatile, const void* pc) {
  // Some programs wait by reading the reply word or a flag.
  const auto is_flag = [&](const Arrival& arrival) {
    return is_volatile && begin < arrival.end && arrival.begin < end;
  };
  for (const Arrival& arrival : arrivals_) {
    if (overlaps(begin, end, arrival.reply, 4)) {
      const int count = std::max(read_reply(arrival.reply), 0);
      clock_.acquire_messages(arrival.reply, static_cast<std::uint64_t>(count));
    } else if (is_flag(arrival)) {
      clock_.acquire_messages(
          arrival.reply != nullptr ? arrival.reply : &slave_, arrival.number);
    }
  }
  const auto heard = [&](const Arrival& arrival) {
    return clock_.knows(arrival.sender->number()) >= arrival.sent ||
           is_flag(arrival);
  };
  arrivals_.erase(std::remove_if(arrivals_.begin(), arrivals_.end(), heard),
                  arrivals_.end());
  for (std::size_t i = 0; i < arrivals_.size(); ++i) {
    const Arrival arrival = arrivals_[i];
    if (begin >= arrival.end || arrival.begin >= end) continue;
    arrivals_.erase(arrivals_.begin() + static_cast<std::ptrdiff_t>(i));
    report({"missing-wait", pc, &slave_,
            std::string("reads what slave ") +
                std::to_string(arrival.sender->id) + " sends by " +
                arrival.call +
                ", and has not waited for it: wait for the reply word here, or "
                "synchronise with the sender (ssync)",
            arrival.pc});
    return;
  }
}

void SlaveCheck::received(std::byte* ldm, long length, Slave& sender,
                          const volatile void* reply, const char* call,
                          const void* pc) {
  const std::uintptr_t begin = number(ldm);
  const std::uintptr_t end = begin + static_cast<std::uintptr_t>(length);
  {
    const std::lock_guard<std::mutex> lock(incoming_mutex_);
    incoming_.push_back({begin, end, &sender, sender.check->clock_.now(), reply,
                         reply == nullptr ? 0 : next_reply(reply), call, pc});
  }
  has_incoming_.store(true, std::memory_order_release);
  if (&sender == &slave_) {
    accept_incoming();
    return;
  }
  // All sends of one call count as sent at one time.
  log_ldm_access(slave_,
                 {begin, end, &sender, pc, true, false, 0,
                  sender.check->clock_.snapshot(), sender.check->called_});
  if (reply != nullptr) {
    sender.check->replies(reply);
  } else {
    sender.check->clock_.release(&slave_);
  }
}

void SlaveCheck::replies(const volatile void* reply) {
  clock_.release(reply, next_reply(reply));
}

void SlaveCheck::accept_incoming() {
  std::vector<Arrival> all;
  {
    const std::lock_guard<std::mutex> lock(incoming_mutex_);
    has_incoming_.store(false, std::memory_order_relaxed);
    all.swap(incoming_);
  }
  for (const Arrival& arrival : all) {
    for (Pending& pending : pending_) {
      const Transfer& t = pending.transfer;
      if (pending.reported ||
          !overlaps(arrival.begin, arrival.end, t.ldm, bytes_of(t))) {
        continue;
      }
      pending.reported = true;
      report({"reuse-in-flight", arrival.pc, arrival.sender,
              "writes into slave " + std::to_string(slave_.id) +
                  "'s buffer while " + t.call + " is in flight there",
              pending.pc});
    }
    shadow_.written(reinterpret_cast<std::byte*>(arrival.begin),
                    arrival.end - arrival.begin);
    if (arrival.sender == &slave_) continue;
    arrivals_.erase(std::remove_if(arrivals_.begin(), arrivals_.end(),
                                   [&](const Arrival& old) {
                                     return old.begin >= arrival.begin &&
                                            old.end <= arrival.end;
                                   }),
                    arrivals_.end());
    arrivals_.push_back(arrival);
  }
}

void SlaveCheck::regained() {
  // The flag may have been set between this check and the slave's own read of
  // it.
  if (last_flag_ == 0) return;
  const auto* flag = reinterpret_cast<const void*>(last_flag_);
  if (slave_.in_ldm(flag, 1)) {
    accept_incoming();
    check_arrivals(last_flag_, last_flag_ + 1, true, nullptr);
  } else {
    clock_.acquire(flag);
  }
}

}  // namespace swamp::sunway::check
