// Checks of every load and store of a slave's own instructions.
#include <string>

#include "toolchain/sunway/emulator/check/access_log.h"
#include "toolchain/sunway/emulator/check/host_check.h"
#include "toolchain/sunway/emulator/check/ranges.h"
#include "toolchain/sunway/emulator/check/report.h"
#include "toolchain/sunway/emulator/check/slave_check.h"
#include "toolchain/sunway/emulator/schedule.h"
#include "toolchain/sunway/emulator/settings.h"

namespace swamp::sunway::check {
void SlaveCheck::check_reply_reads(std::uintptr_t begin, std::uintptr_t end,
                                   const void* pc) {
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

void SlaveCheck::read(const volatile void* address, std::size_t bytes,
                      const void* pc, bool is_volatile) {
  const std::uintptr_t begin = number(address);
  const std::uintptr_t end = begin + bytes;
  direct_.log_write();
  take_turn(slave_);
  progress_.read(begin, pc, is_volatile);
  resume();  // others may have run in the meantime
  if (is_volatile) last_flag_ = begin;
  if (!slave_.in_ldm(address, bytes)) {
    if (is_volatile) {
      clock_.acquire(address);
    } else {
      direct_.read(begin, end, pc);
    }
    if (!pending_.empty()) direct_in_flight(begin, end, false, pc);
    if (may_have_changed()) check_args(slave_, address, bytes, pc);
    if (settings().main_access) check_direct(begin, end, false, pc);
    return;
  }
  stack_.access(begin, pc);
  if (!arrivals_.empty()) check_arrivals(begin, end, is_volatile, pc);
  if (!pending_.empty()) {
    check_reply_reads(begin, end, pc);
    for (Pending& pending : pending_) {
      const Transfer& t = pending.transfer;
      if (!t.writes_main() &&
          overlaps(begin, end, t.ldm, static_cast<std::size_t>(t.length))) {
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
  direct_.log_write();
  resume();
  progress_.wrote();
  if (!slave_.in_ldm(address, bytes)) {
    if (is_volatile) clock_.release(address);
    if (!pending_.empty()) direct_in_flight(begin, end, true, pc);
    check_direct(begin, end, true, pc);
    if (is_volatile) {  // a flag, which orders slaves
      add_written({begin, end, pc, &slave_});
      direct_.drop_write();
    }
    return;
  }
  stack_.access(begin, pc);
  for (Pending& pending : pending_) {
    const Transfer& t = pending.transfer;
    if (overlaps(begin, end, t.reply, 4)) {
      pending.reply_reads = 0;
      if (!pending.reported) {
        pending.reported = true;
        report({"stale-reply", pc, &slave_,
                std::string("writes the reply word of a ") + t.call +
                    " in flight: whether its count is lost depends on when it "
                    "ends; reset the word before the transfer",
                pending.pc});
      }
    }
    if (!overlaps(begin, end, t.ldm, static_cast<std::size_t>(t.length)) ||
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
  if (offset < machine().ldm_bytes && !slave_.heap.holds(offset, bytes)) {
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
  if (offset >= machine().ldm_bytes) return;
  // A struct may contain padding, so some unwritten words are legal.
  if (shadow_.unwritten_words(at, bytes) == Shadow::words(at, bytes)) {
    report({"uninitialised", pc, &slave_,
            "reads memory of ldm_malloc to which nothing was written: on the "
            "machine it holds what the last program left"});
    shadow_.written(at, bytes);
  }
}

void SlaveCheck::direct_in_flight(std::uintptr_t begin, std::uintptr_t end,
                                  bool write, const void* pc) {
  for (Pending& pending : pending_) {
    const Transfer& t = pending.transfer;
    if (pending.reported || t.kind == Transfer::Kind::remote_get ||
        (!write && !t.writes_main()) || !overlaps_main(t, begin, end)) {
      continue;
    }
    if (!write) {
      report_unwaited(pending, pc,
                      std::string("reads main memory that the slave's own ") +
                          t.call + " still writes: wait for its reply first");
      continue;
    }
    pending.reported = true;
    report({t.writes_main() ? "reuse-in-flight" : "source-modified", pc,
            &slave_,
            std::string("writes main memory that the slave's own ") + t.call +
                " still " + (t.writes_main() ? "writes" : "reads") +
                ": wait for its reply first",
            pending.pc});
  }
}

void SlaveCheck::check_direct(std::uintptr_t begin, std::uintptr_t end,
                              bool write, const void* pc) {
  auto* address = reinterpret_cast<void*>(begin);
  if (write) {
    args_written(address, end - begin);
    direct_.write(begin, end, pc);
  }
  if (settings().main_access) {
    report({"main-access", pc, &slave_,
            std::string(write ? "writes" : "reads") + " main memory at " +
                describe(begin) +
                " directly: hundreds of cycles, and not coherent with other "
                "slaves' caches; use DMA"});
  }
}

}  // namespace swamp::sunway::check
