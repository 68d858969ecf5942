// A transfer is examined when it is issued, by the rules of the machine, and
// when it is waited for: then its data moves, and its buffer must be as it was
// left. Between the two the destination of a get is poison.
#include "toolchain/sunway/emulator/check/transfer_check.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "toolchain/sunway/emulator/check/access_log.h"
#include "toolchain/sunway/emulator/check/addresses.h"
#include "toolchain/sunway/emulator/check/cache.h"
#include "toolchain/sunway/emulator/check/ldm_check.h"
#include "toolchain/sunway/emulator/report.h"

namespace swamp::sunway::check {

bool check_reply(const Slave& slave, const volatile void* reply,
                 const char* call, const void* pc) {
  if (!slave.in_ldm(reply, 4)) {
    report({"reply-not-ldm", pc, &slave,
            std::string(call) + "'s reply word must be in LDM (" +
                (reply == nullptr
                     ? "it is NULL"
                     : "it is in main memory: " + describe(address_of(reply))) +
                "); the machine would count in another place and the wait "
                "would hang"});
    return false;
  }
  if (address_of(reply) % 4 != 0) {
    report({"misaligned", pc, &slave,
            std::string(call) + "'s reply word must be 4-byte aligned"});
    return false;
  }
  return true;
}

bool check_rules(const Slave& slave, KnownRanges& known_ranges,
                 const Transfer& t, const void* pc, const Slave* caller) {
  const auto is = [&](const char* category, const std::string& text) {
    report(
        {category, pc, caller != nullptr ? caller : &slave,
         std::string(t.call) + ": " +
             (caller != nullptr ? "in slave " + std::to_string(slave.id) + " "
                                : "") +
             text});
    return false;
  };
  const bool blocks = t.stride != 0;
  if (t.length <= 0 ||
      static_cast<std::size_t>(t.length) > machine().ldm_bytes) {
    return is("bad-length", "length: got " + std::to_string(t.length) +
                                ", expected 4 to " +
                                std::to_string(machine().ldm_bytes) +
                                " bytes, the size of LDM");
  }
  if (blocks && (t.block <= 0 || t.stride < 0 || t.length % t.block != 0)) {
    return is("bad-length",
              "block, stride, length: got " + std::to_string(t.block) + ", " +
                  std::to_string(t.stride) + ", " + std::to_string(t.length) +
                  ", expected a positive block, a stride of at least 0 and a "
                  "length that is a multiple of the block");
  }
  const std::uintptr_t bits =
      address_of(t.ldm) | address_of(t.main) |
      static_cast<std::uintptr_t>(t.length) |
      (blocks ? static_cast<std::uintptr_t>(t.block | t.stride) : 0u);
  if (bits % 4 != 0) {
    // It is carried out nevertheless, to avoid follow-up reports.
    (void)is("misaligned",
             "main memory " + describe(address_of(t.main)) + ", LDM address " +
                 std::to_string(address_of(t.ldm) % 128) +
                 " beyond a 128-byte line, length " + std::to_string(t.length) +
                 ": addresses, length, block and stride must be multiples of "
                 "4 bytes");
  }
  if (!known_ranges.has_ldm(t.ldm, bytes_of(t), pc)) {
    const std::string ldm = why_not_ldm(slave, t.ldm, bytes_of(t));
    if (!ldm.empty()) return is("ldm-range", ldm);
    known_ranges.add_ldm(slave, t.ldm, bytes_of(t), pc);
  }
  if (t.reply != nullptr && !check_reply(slave, t.reply, t.call, pc)) {
    return false;
  }
  if (t.kind == Transfer::Kind::remote_get) return true;
  if (known_ranges.has(address_of(t.main), t.extent(), t.writes_main())) {
    return true;
  }
  const std::string main =
      known_ranges.why_not(address_of(t.main), t.extent(), t.writes_main());
  if (!main.empty()) {
    return is("main-range",
              std::string(t.writes_main() ? "the put to " : "the get from ") +
                  describe(address_of(t.main)) + " " + main);
  }
  return true;
}

namespace {

// The destination of a get in flight holds this: nan in every float format.
constexpr std::byte kInFlight{0xff};  // all bits: see are_in_flight()

// word_of() returns the reply word.
const std::byte* word_of(const Transfer& t) {
  return reinterpret_cast<const std::byte*>(address_of(t.reply));
}

void for_watched(const Transfer& t,
                 void (*visit)(const std::byte*, std::size_t, unsigned)) {
  visit(t.ldm, bytes_of(t), Shadow::kWatched);
  visit(word_of(t), 4, Shadow::kWatched);
}

}  // namespace

void InFlight::add(const Transfer& t, const void* pc, bool now) {
  Pending& pending = pending_.emplace_back(t, pc,
                                           clock_.is_snapshot(last_before_)
                                               ? std::move(last_before_)
                                               : clock_.snapshot());
  pending.moved = now || machine().order.eager;
  if (!t.writes_main()) {
    std::memset(t.ldm, static_cast<int>(kInFlight), bytes_of(t));
    // It is written, or will be.
    Shadow::become(t.ldm, bytes_of(t), Shadow::kWatched);
  }
  if (pending.moved) move_data(t, slave_, pc);
  pending.logged = now;
  if (now) log_transfer(t, slave_, pc, pending.before, clock_.now());
  if (t.writes_main() || pending.moved) {
    if (!spare_.empty()) {
      pending.copy = std::move(spare_.back());
      spare_.pop_back();
    }
    pending.copy.assign(t.ldm, t.ldm + bytes_of(t));
  }
  if (t.writes_main()) {
    for_watched(t, &Shadow::set);
  } else {
    Shadow::set(word_of(t), 4, Shadow::kWatched);
  }
}

namespace {

template <class Sent>
void for_watched_of(const Sent& sent,
                    void (*visit)(const std::byte*, std::size_t, unsigned)) {
  visit(reinterpret_cast<const std::byte*>(sent.begin), sent.end - sent.begin,
        Shadow::kWatched);
  visit(reinterpret_cast<const std::byte*>(address_of(sent.reply)), 4,
        Shadow::kWatched);
}

}  // namespace

void InFlight::watch() const noexcept {
  for (const Pending& pending : pending_) {
    for_watched(pending.transfer, &Shadow::set);
  }
  for (const Sent& sent : sent_) for_watched_of(sent, &Shadow::set);
}

void InFlight::sent(std::uintptr_t begin, std::uintptr_t end,
                    const volatile void* reply, std::uint32_t time,
                    const char* call, const void* pc) {
  constexpr std::size_t kMost = 256;
  const auto is_older = [&](const Sent& other) {
    return other.begin == begin && other.end <= end && other.reply == reply &&
           other.reset == nullptr;
  };
  sent_.erase(std::remove_if(sent_.begin(), sent_.end(), is_older),
              sent_.end());
  if (sent_.size() == kMost) sent_.erase(sent_.begin());
  sent_.push_back(
      {begin, end, reply, read_reply(reply), time, call, pc, nullptr});
  for_watched_of(sent_.back(), &Shadow::set);
}

void InFlight::complete_rma() {
  for (std::size_t i = 0; i < pending_.size();) {
    if (pending_[i].transfer.kind == Transfer::Kind::remote_get) {
      complete(i);
    } else {
      ++i;
    }
  }
  for (const Sent& sent : sent_) for_watched_of(sent, &Shadow::clear);
  sent_.clear();
  watch();
}

void InFlight::forget_sent(const volatile void* reply, int value) {
  if (sent_.empty()) return;
  const auto is_over = [&](const Sent& sent) {
    return (sent.reply == reply && value >= sent.number) || has_arrived(sent);
  };
  const auto over =
      std::stable_partition(sent_.begin(), sent_.end(),
                            [&](const Sent& sent) { return !is_over(sent); });
  if (over == sent_.end()) return;
  std::for_each(over, sent_.end(),
                [](const Sent& sent) { for_watched_of(sent, &Shadow::clear); });
  sent_.erase(over, sent_.end());
  watch();
}

void InFlight::reset_sent(std::uintptr_t begin, std::uintptr_t end,
                          const void* pc) {
  for (Sent& sent : sent_) {
    if (overlaps(begin, end, sent.reply, 4) && !has_arrived(sent)) {
      sent.reset = pc;
    }
  }
}

namespace {

// are_in_flight() compares words as they were stored: a memcmp() with the bytes
// one further would wait until the stores are complete.
__attribute__((target_clones("avx2", "default"))) bool are_in_flight(
    const std::byte* data, std::size_t bytes) {
  std::byte all = kInFlight;
  for (std::size_t i = 0; i < bytes; ++i) all &= data[i];
  return all == kInFlight;
}

}  // namespace

// has_changed() returns whether the LDM buffer of a transfer was written.
bool InFlight::has_changed(const Pending& pending) {
  const Transfer& t = pending.transfer;
  if (!pending.copy.empty()) {
    return std::memcmp(t.ldm, pending.copy.data(), bytes_of(t)) != 0;
  }
  return !are_in_flight(t.ldm, bytes_of(t));
}

void move_data(const Transfer& t, const Slave& slave, const void* pc) {
  if (have_caches) {
    for_blocks(t, [&](std::byte* main, std::byte*, std::size_t bytes) {
      const std::uintptr_t begin = address_of(main);
      if (t.writes_main()) {
        changes_main(begin, begin + bytes, &slave, pc, true);
      } else {
        get_past_caches(begin, begin + bytes, slave, pc);
      }
    });
  }
  carry_out(t);
}

void mark_unset(const Transfer& t) {
  if (t.kind != Transfer::Kind::get || !is_unset(t.ldm, bytes_of(t))) return;
  const Unset unset = unset_of(address_of(t.main));
  if (unset == Unset::no_block) return;
  Shadow::set(t.ldm, bytes_of(t),
              unset == Unset::all ? Shadow::kUnset
                                  : Shadow::kUnset | Shadow::kUnsetPart);
}

void InFlight::complete(std::size_t index) {
  Pending& pending = pending_[index];
  const Transfer& t = pending.transfer;
  // The slave's own stores were checked when they happened; this finds writes
  // by system libraries.
  if (!pending.reported && has_changed(pending)) {
    report({t.writes_main() ? "source-modified" : "reuse-in-flight", pending.pc,
            &slave_,
            std::string(t.call) + "'s buffer was written before its wait"});
  }
  if (!pending.moved) move_data(t, slave_, pending.pc);
  if (!pending.logged) {
    log_transfer(t, slave_, pending.pc, pending.before, clock_.now());
  }
  if (slave_.in_ldm(t.reply, 4)) {
    // Not atomic: the slave has the turn.
    __atomic_store_n(static_cast<volatile int*>(t.reply),
                     read_reply(t.reply) + 1, __ATOMIC_RELEASE);
  }
  if (t.writes_main()) {
    for_watched(t, &Shadow::clear);
  } else {
    Shadow::become(t.ldm, bytes_of(t), 0);
    Shadow::clear(word_of(t), 4, Shadow::kWatched);
    mark_unset(t);
  }
  for (const Pending& other : pending_) {
    if (&other != &pending &&
        (overlaps(other.transfer, t) || other.transfer.reply == t.reply)) {
      for_watched(other.transfer, &Shadow::set);
    }
  }
  if (!pending.copy.empty()) spare_.push_back(std::move(pending.copy));
  last_before_ = std::move(pending.before);
  pending_.erase(pending_.begin() + static_cast<std::ptrdiff_t>(index));
}

void InFlight::complete_until(const volatile void* reply, int value,
                              const void* pc) {
  const auto reset =
      std::find_if(sent_.begin(), sent_.end(), [&](const Sent& sent) {
        return sent.reply == reply && sent.reset != nullptr;
      });
  if (reset != sent_.end()) {
    const Sent early = *reset;
    sent_.erase(reset);
    report({"stale-reply", early.reset, &slave_,
            std::string("writes the reply word of a ") + early.call +
                " that may not have ended: its count may come later and end "
                "the next wait for the word; wait for it before the reset",
            early.pc});
  }
  forget_sent(reply, value);
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

void InFlight::complete_all() {
  while (!pending_.empty()) complete(0);
}

void InFlight::end_launch() {
  for (Pending& pending : pending_) {
    report_unwaited(pending, pending.pc,
                    "the transfer is not waited for before the slave ends: "
                    "wait for its reply, with a count that includes it");
  }
  complete_all();
  sent_.clear();
}

void InFlight::report_once(Pending& pending, const char* category,
                           const void* pc, const Slave* slave,
                           const std::string& text) {
  if (pending.reported) return;
  pending.reported = true;
  report({category, pc, slave, text, pending.pc});
}

void InFlight::report_unwaited(Pending& pending, const void* pc,
                               const std::string& text) {
  if (pending.passed_by != nullptr) {
    report_once(pending, "stale-reply", pending.passed_by, &slave_,
                "the count of an older transfer satisfies the wait, while " +
                    std::string(pending.transfer.call) +
                    " is still in flight; reset the reply word to 0 before "
                    "the transfer, or wait for an increasing count");
    return;
  }
  if (pending.reported) return;
  pending.reported = true;
  report({"missing-wait", pc, &slave_, text,
          pc == pending.pc ? nullptr : pending.pc});
}

void InFlight::changes_sent(std::uintptr_t begin, std::uintptr_t end,
                            const char* category, const std::string& action,
                            const void* pc) {
  for (const Sent& sent : sent_) {
    if (sent.end <= begin || sent.begin >= end || has_arrived(sent)) continue;
    report({category, pc, &slave_,
            action + " a buffer that " + sent.call +
                " still sends: wait for its reply first",
            sent.pc});
    forget_sent(sent.reply, sent.number);
    return;
  }
}

void InFlight::new_transfer(const Transfer& t, const void* pc) {
  if (!t.writes_main() && !sent_.empty()) {
    changes_sent(address_of(t.ldm), address_of(t.ldm) + bytes_of(t),
                 "reuse-in-flight", std::string(t.call) + " fills", pc);
  }
  for (Pending& pending : pending_) {
    const Transfer& other = pending.transfer;
    if (overlaps(t, other)) {
      const bool other_fills = !other.writes_main();
      if (!t.writes_main()) {
        report({"reuse-in-flight", pc, &slave_,
                std::string(t.call) + " fills a buffer that " + other.call +
                    " still " + (other_fills ? "fills" : "sends") +
                    ": wait for that first",
                pending.pc});
      } else if (other_fills) {
        report_unwaited(pending, pc,
                        std::string(t.call) + " sends a buffer that " +
                            other.call + " still fills: wait for that first");
      }
    }
    if (t.kind == Transfer::Kind::remote_get ||
        other.kind == Transfer::Kind::remote_get ||
        (!t.writes_main() && !other.writes_main()) ||
        !overlaps_main(t, other)) {
      continue;
    }
    if (!t.writes_main()) {
      report_unwaited(pending, pc,
                      std::string(t.call) +
                          " reads main memory that the slave's own " +
                          other.call + " still writes: wait for that first");
    } else {
      report_once(pending, "reuse-in-flight", pc, &slave_,
                  std::string(t.call) +
                      " writes main memory that the slave's own " + other.call +
                      " still " + (other.writes_main() ? "writes" : "reads") +
                      ": the order of the two is undefined; wait for that "
                      "first");
    }
  }
}

void InFlight::sends(std::uintptr_t begin, std::uintptr_t end, const char* call,
                     const void* pc) {
  for (Pending& pending : pending_) {
    const Transfer& t = pending.transfer;
    if (!t.writes_main() && overlaps(begin, end, t.ldm, bytes_of(t))) {
      report_unwaited(pending, pc,
                      std::string(call) + " sends a buffer that " + t.call +
                          " still fills: wait for that first");
    }
  }
}

void InFlight::reads_reply(std::uintptr_t begin, std::uintptr_t end,
                           const void* pc) {
  for (const Sent& sent : sent_) {
    if (!overlaps(begin, end, sent.reply, 4)) continue;
    forget_sent(sent.reply, read_reply(sent.reply));
    break;
  }
  for (std::size_t i = 0; i < pending_.size(); ++i) {
    Pending& pending = pending_[i];
    if (!overlaps(begin, end, pending.transfer.reply, 4)) continue;
    // The first read sees the old count; a second one means that the slave
    // polls.
    if (pending.reply_reads++ == 0) {
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

void InFlight::reads_ldm(std::uintptr_t begin, std::uintptr_t end,
                         const void* pc) {
  reads_reply(begin, end, pc);
  for (Pending& pending : pending_) {
    const Transfer& t = pending.transfer;
    if (!t.writes_main() && overlaps(begin, end, t.ldm, bytes_of(t))) {
      report_unwaited(pending, pc,
                      std::string("reads the destination of ") + t.call +
                          " before the data is there: wait for its reply "
                          "first");
    }
  }
}

void InFlight::writes_ldm(std::uintptr_t begin, std::uintptr_t end,
                          const void* pc) {
  if (!sent_.empty()) {
    changes_sent(begin, end, "source-modified", "writes", pc);
    reset_sent(begin, end, pc);
  }
  for (Pending& pending : pending_) {
    const Transfer& t = pending.transfer;
    if (overlaps(begin, end, t.reply, 4)) {
      pending.reply_reads = 0;
      report_once(pending, "stale-reply", pc, &slave_,
                  std::string("writes the reply word of a ") + t.call +
                      " in flight: whether its count is lost depends on when "
                      "it ends; reset the word before the transfer");
    }
    if (!overlaps(begin, end, t.ldm, bytes_of(t))) continue;
    if (t.writes_main()) {
      report_once(pending, "source-modified", pc, &slave_,
                  std::string("writes a buffer that ") + t.call +
                      " still sends: wait for its reply first");
    } else {
      report_once(pending, "reuse-in-flight", pc, &slave_,
                  std::string("writes a buffer that ") + t.call +
                      " still fills: wait for its reply first");
    }
  }
}

void InFlight::accesses_main(std::uintptr_t begin, std::uintptr_t end,
                             bool write, const void* pc) {
  for (Pending& pending : pending_) {
    const Transfer& t = pending.transfer;
    if (t.kind == Transfer::Kind::remote_get || (!write && !t.writes_main()) ||
        !overlaps_main(t, begin, end)) {
      continue;
    }
    if (!write) {
      report_unwaited(pending, pc,
                      std::string("reads main memory that the slave's own ") +
                          t.call + " still writes: wait for its reply first");
      continue;
    }
    report_once(
        pending, t.writes_main() ? "reuse-in-flight" : "source-modified", pc,
        &slave_,
        std::string("writes main memory that the slave's own ") + t.call +
            " still " + (t.writes_main() ? "writes" : "reads") +
            ": wait for its reply first");
  }
}

void InFlight::frees(std::uintptr_t begin, std::uintptr_t end, const void* pc) {
  for (Pending& pending : pending_) {
    const Transfer& t = pending.transfer;
    if (!overlaps(begin, end, t.ldm, bytes_of(t))) continue;
    report_once(
        pending, "reuse-in-flight", pc, &slave_,
        std::string("ldm_free of a buffer that ") + t.call + " still uses");
  }
}

void InFlight::receives(std::uintptr_t begin, std::uintptr_t end,
                        const Slave& sender, const void* pc) {
  for (Pending& pending : pending_) {
    const Transfer& t = pending.transfer;
    if (!overlaps(begin, end, t.ldm, bytes_of(t))) continue;
    report_once(pending, "reuse-in-flight", pc, &sender,
                "writes into slave " + std::to_string(slave_.id) +
                    "'s buffer while " + t.call + " is in flight there");
  }
}

}  // namespace swamp::sunway::check
