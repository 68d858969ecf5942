// ldm_malloc(), malloc(), and what orders slaves in main memory: locks and
// atomics.
#include <string>

#include "toolchain/sunway/emulator/check/ranges.h"
#include "toolchain/sunway/emulator/check/report.h"
#include "toolchain/sunway/emulator/check/slave_check.h"
#include "toolchain/sunway/emulator/check/written.h"
#include "toolchain/sunway/emulator/schedule.h"

namespace swamp::sunway::check {

void SlaveCheck::allocated(std::size_t offset, std::size_t bytes,
                           const void* pc) {
  enter(pc);
  if (offset != LdmHeap::kNone) {
    shadow_.poison(slave_.slot + offset, (bytes + 3) / 4 * 4);
    check_stack(pc);
    return;
  }
  report({"ldm-range", pc, &slave_,
          "ldm_malloc(" + std::to_string(bytes) + ") returns NULL: of " +
              std::to_string(world().ldm_bytes) +
              " bytes of LDM static "
              "variables take " +
              std::to_string(world().static_bytes) +
              " and ldm_malloc has given " +
              std::to_string(slave_.heap.in_use())});
}

void SlaveCheck::freed(std::size_t offset, std::size_t held, std::size_t said,
                       const void* pc) {
  enter(pc);
  if (held == LdmHeap::kNone) {
    report({"ldm-range", pc, &slave_,
            "ldm_free of what ldm_malloc did not give, or that is free"});
    return;
  }
  if (held != said) {
    report({"bad-length", pc, &slave_,
            "ldm_free says " + std::to_string(said) + " bytes of a piece of " +
                std::to_string(held)});
  }
  std::byte* begin = slave_.slot + offset;
  for (Pending& pending : pending_) {
    if (meet(number(begin), number(begin) + held, pending.transfer.ldm,
             bytes_of(pending.transfer)) &&
        !pending.reported) {
      pending.reported = true;
      report({"reuse-in-flight", pc, &slave_,
              std::string("ldm_free of a buffer that ") +
                  pending.transfer.call + " still uses",
              pending.pc});
    }
  }
}

void SlaveCheck::freed_all() { step(); }

void SlaveCheck::tried(const volatile void* word, const void* pc) {
  attend();
  look(number(word), pc, true);
}

void SlaveCheck::main_allocated(const void* memory, std::size_t bytes) {
  settle();
  const std::uintptr_t begin = number(memory);
  clock_.reuse(begin, begin + bytes);
  add_written({begin, begin + bytes, nullptr, &slave_});
}

void SlaveCheck::main_freed(const void* memory, std::size_t bytes) {
  settle();
  const std::uintptr_t begin = number(memory);
  clock_.retire(begin, begin + bytes);
  add_written({begin, begin + bytes, nullptr, &slave_});
}

void SlaveCheck::acquire(const volatile void* word) {
  settle();
  step();
  looked_at_.clear();
  ++slave_.tickets;
  clock_.take(word);
}
void SlaveCheck::release(const volatile void* word) {
  settle();
  step();
  clock_.give(word);
}
void SlaveCheck::atomic(const volatile void* word, std::size_t bytes,
                        bool writes, const void* pc) {
  settle();
  if (writes) {
    ++slave_.tickets;
    add_written({number(word), number(word) + bytes, pc, &slave_});
  }
  attend();
  if (writes && number(word) != last_read_) looked_at_.clear();
  look(number(word), pc, true);
  last_flag_ = number(word);
  clock_.take(word);
  clock_.give(word);
}

}  // namespace swamp::sunway::check
