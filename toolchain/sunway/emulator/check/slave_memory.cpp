// ldm_malloc(), malloc(), locks and atomics of a slave.
#include <string>

#include "toolchain/sunway/emulator/check/access_log.h"
#include "toolchain/sunway/emulator/check/ranges.h"
#include "toolchain/sunway/emulator/check/report.h"
#include "toolchain/sunway/emulator/check/slave_check.h"
#include "toolchain/sunway/emulator/schedule.h"

namespace swamp::sunway::check {

void SlaveCheck::allocated(std::size_t offset, std::size_t bytes,
                           const void* pc) {
  begin_call(pc);
  if (offset != LdmHeap::kNone) {
    shadow_.poison(slave_.slot + offset, (bytes + 3) / 4 * 4);
    stack_.check(pc);
    return;
  }
  report({"ldm-range", pc, &slave_,
          "ldm_malloc(" + std::to_string(bytes) + ") returns NULL: of " +
              std::to_string(machine().ldm_bytes) +
              " bytes of LDM static "
              "variables take " +
              std::to_string(machine().static_bytes) +
              " and ldm_malloc has given " +
              std::to_string(slave_.heap.in_use())});
}

void SlaveCheck::freed(std::size_t offset, std::size_t piece_bytes,
                       std::size_t said, const void* pc) {
  begin_call(pc);
  if (piece_bytes == LdmHeap::kNone) {
    report({"ldm-range", pc, &slave_,
            "ldm_free of what ldm_malloc did not give, or that is free"});
    return;
  }
  if (piece_bytes != said) {
    report({"bad-length", pc, &slave_,
            "ldm_free says " + std::to_string(said) + " bytes of a piece of " +
                std::to_string(piece_bytes)});
  }
  std::byte* begin = slave_.slot + offset;
  for (Pending& pending : pending_) {
    if (overlaps(number(begin), number(begin) + piece_bytes,
                 pending.transfer.ldm, bytes_of(pending.transfer)) &&
        !pending.reported) {
      pending.reported = true;
      report({"reuse-in-flight", pc, &slave_,
              std::string("ldm_free of a buffer that ") +
                  pending.transfer.call + " still uses",
              pending.pc});
    }
  }
}

void SlaveCheck::freed_all() { progress_.advance(); }

void SlaveCheck::tried(const volatile void* word, const void* pc) {
  resume();
  progress_.read(number(word), pc, true);
}

void SlaveCheck::main_allocated(const void* memory, std::size_t bytes) {
  direct_.log_write();
  const std::uintptr_t begin = number(memory);
  clock_.reuse(begin, begin + bytes);
  add_written({begin, begin + bytes, nullptr, &slave_});
}

void SlaveCheck::main_freed(const void* memory, std::size_t bytes) {
  direct_.log_write();
  const std::uintptr_t begin = number(memory);
  clock_.retire(begin, begin + bytes);
  add_written({begin, begin + bytes, nullptr, &slave_});
}

void SlaveCheck::acquire(const volatile void* word) {
  direct_.log_write();
  progress_.advance();
  progress_.forget_reads();
  ++slave_.atomic_operations;
  clock_.acquire(word);
}
void SlaveCheck::release(const volatile void* word) {
  direct_.log_write();
  progress_.advance();
  clock_.release(word);
}
void SlaveCheck::atomic(const volatile void* word, std::size_t bytes,
                        bool writes, const void* pc) {
  direct_.log_write();
  if (writes) {
    ++slave_.atomic_operations;
    add_written({number(word), number(word) + bytes, pc, &slave_});
  }
  resume();
  if (writes && number(word) != progress_.last_read()) progress_.forget_reads();
  progress_.read(number(word), pc, true);
  last_flag_ = number(word);
  clock_.acquire(word);
  clock_.release(word);
}

}  // namespace swamp::sunway::check
