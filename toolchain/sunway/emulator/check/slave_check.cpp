#include "toolchain/sunway/emulator/check/slave_check.h"

#include <algorithm>
#include <cstring>

#include "toolchain/sunway/emulator/check/args.h"
#include "toolchain/sunway/emulator/check/footprint.h"
#include "toolchain/sunway/emulator/check/hash.h"
#include "toolchain/sunway/emulator/check/ranges.h"
#include "toolchain/sunway/emulator/check/report.h"
#include "toolchain/sunway/emulator/check/written.h"
#include "toolchain/sunway/emulator/ids.h"
#include "toolchain/sunway/emulator/schedule.h"
#include "toolchain/sunway/emulator/settings.h"

namespace swamp::sunway::check {
namespace {

std::size_t number_of(const Slave& slave) {
  return static_cast<std::size_t>(slave.group * settings().slaves_per_group +
                                  slave.id);
}

// next_reply() is what the word will be when the next reply has come.
std::uint64_t next_reply(const volatile void* reply) {
  return static_cast<std::uint64_t>(read_reply(reply)) + 1;
}

}  // namespace

SlaveCheck::SlaveCheck(Slave& slave, std::size_t slot_bytes)
    : slave_(slave),
      clock_(number_of(slave),
             static_cast<std::size_t>(settings().core_groups) *
                 static_cast<std::size_t>(settings().slaves_per_group)),
      shadow_(slave.slot, slot_bytes) {}

void SlaveCheck::enter(const void* pc) {
  slave_.last_pc = pc;
  slave_.look_pc = nullptr;
  looked_at_.clear();
  accesses_ = 0;
  settle();
  step();
  attend();
  called_ = clock_.now();
}

void SlaveCheck::begin_launch() {
  step();
  attend();
  // What lies below belongs to no frame yet, but for those that this one calls.
  constexpr std::size_t kMargin = 1024;
  // Of the C library's functions, whose accesses are not seen.
  constexpr std::size_t kBelow = 8192;
  auto* here = static_cast<std::byte*>(__builtin_frame_address(0));
  const auto room = static_cast<std::size_t>(here - slave_.stack);
  const std::size_t bytes =
      std::min(room - std::min(room, kMargin), world().ldm_bytes) / 4 * 4;
  std::byte* begin = here - kMargin - bytes;
  begin -= number(begin) % 4;
  // Far below of what the last launch used it is poison still.
  std::byte* first = begin;
  if (launch_++ != 0 && lowest_ > number(begin) + kBelow) {
    first += (lowest_ - kBelow - number(begin)) / 4 * 4;
  }
  const auto done = std::min(static_cast<std::size_t>(first - begin), bytes);
  shadow_.poison(begin + done, bytes - done);
  lowest_ = number(here);
  accessed_ = lowest_;
  deep_ = 0;
  entered_ = 0;
  arrivals_.clear();
}

std::size_t SlaveCheck::stack_bytes() const noexcept {
  return number(slave_.stack_top) - std::min(lowest_, number(slave_.stack_top));
}

void SlaveCheck::end_launch() {
  attend();
  settle();
  enter_reads();
  check_depth(deep_, deep_pc_);
  step();
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
    touch_ldm(*owner, {number(t.main), number(t.main) + bytes_of(t), &slave_,
                       pc, false, false, 0, before, clock_.now()});
    return;
  }
  for_blocks(t, [&](std::byte* main, std::byte*, std::size_t bytes) {
    if (t.writes_main()) {
      add_written({number(main), number(main) + bytes, pc, &slave_});
    }
    add_touch({number(main), number(main) + bytes, &slave_, pc, t.writes_main(),
               false, 0, before, clock_.now()});
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
    enter(pc);
    (void)check_reply(nullptr, t.call, pc);
    return;
  }
  if (!allows(t, pc)) {
    if (slave_.in_ldm(t.reply, 4)) add_reply(t.reply);
    return;  // counted, or the slave would hang on top of it
  }
  check_clashes(t, pc);
  check_written(t, pc);
  if (t.kind == Transfer::Kind::get) {
    check_args(slave_, t.main, bytes_of(t), pc);
  }
  Pending pending{t, pc, clock_.snapshot(), 0};
  pending.moved = now || world().order.eager;
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

void SlaveCheck::at_once(const Transfer& t, const void* pc) {
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
    if (!t.writes_main() && meet(begin, end, t.ldm, bytes_of(t))) {
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
  // The slave's own stores were seen as they happened; this finds what the
  // system's libraries wrote.
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
  enter(pc);
  check_stack(pc);
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
  // The transfers were not carried out on this word; let the slave go on.
  if (reply != nullptr && read_reply(reply) < value) {
    __atomic_store_n(static_cast<volatile int*>(reply), value,
                     __ATOMIC_RELEASE);
  }
}

void SlaveCheck::after_wait(volatile void* reply, int value) {
  clock_.take_messages(reply, static_cast<std::uint64_t>(std::max(value, 0)));
  clock_.take(&slave_);
}

void SlaveCheck::check_arrivals(std::uintptr_t begin, std::uintptr_t end,
                                bool is_volatile, const void* pc) {
  // A look at the reply word is how old programs wait, or at a flag.
  const auto is_flag = [&](const Arrival& arrival) {
    return is_volatile && begin < arrival.end && arrival.begin < end;
  };
  for (const Arrival& arrival : arrivals_) {
    if (meet(begin, end, arrival.reply, 4)) {
      const int count = std::max(read_reply(arrival.reply), 0);
      clock_.take_messages(arrival.reply, static_cast<std::uint64_t>(count));
    } else if (is_flag(arrival)) {
      clock_.take_messages(arrival.reply != nullptr ? arrival.reply : &slave_,
                           arrival.number);
    }
  }
  const auto heard = [&](const Arrival& arrival) {
    return clock_.knows(number_of(*arrival.sender)) >= arrival.sent ||
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
                "meet the sender (ssync)",
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
    const std::lock_guard<std::mutex> lock(mail_mutex_);
    mail_.push_back({begin, end, &sender, sender.check->clock_.now(), reply,
                     reply == nullptr ? 0 : next_reply(reply), call, pc});
  }
  has_mail_.store(true, std::memory_order_release);
  if (&sender == &slave_) {
    open_mail();
    return;
  }
  // All that one call sends to several slaves counts as sent at one time.
  touch_ldm(slave_, {begin, end, &sender, pc, true, false, 0,
                     sender.check->clock_.snapshot(), sender.check->called_});
  if (reply != nullptr) {
    sender.check->replies(reply);
  } else {
    sender.check->clock_.give(&slave_);
  }
}

void SlaveCheck::replies(const volatile void* reply) {
  clock_.give(reply, next_reply(reply));
}

void SlaveCheck::open_mail() {
  std::vector<Arrival> all;
  {
    const std::lock_guard<std::mutex> lock(mail_mutex_);
    has_mail_.store(false, std::memory_order_relaxed);
    all.swap(mail_);
  }
  for (const Arrival& mail : all) {
    for (Pending& pending : pending_) {
      const Transfer& t = pending.transfer;
      if (pending.reported || !meet(mail.begin, mail.end, t.ldm, bytes_of(t))) {
        continue;
      }
      pending.reported = true;
      report({"reuse-in-flight", mail.pc, mail.sender,
              "writes into slave " + std::to_string(slave_.id) +
                  "'s buffer while " + t.call + " is in flight there",
              pending.pc});
    }
    shadow_.written(reinterpret_cast<std::byte*>(mail.begin),
                    mail.end - mail.begin);
    if (mail.sender == &slave_) continue;
    arrivals_.erase(std::remove_if(arrivals_.begin(), arrivals_.end(),
                                   [&](const Arrival& old) {
                                     return old.begin >= mail.begin &&
                                            old.end <= mail.end;
                                   }),
                    arrivals_.end());
    arrivals_.push_back(mail);
  }
}

void SlaveCheck::regained() {
  // The flag may have been set after it was looked at here and before the
  // slave's own instruction read it.
  if (last_flag_ == 0) return;
  const auto* flag = reinterpret_cast<const void*>(last_flag_);
  if (slave_.in_ldm(flag, 1)) {
    open_mail();
    check_arrivals(last_flag_, last_flag_ + 1, true, nullptr);
  } else {
    clock_.take(flag);
  }
}

}  // namespace swamp::sunway::check
