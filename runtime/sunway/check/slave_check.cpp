#include "runtime/sunway/check/slave_check.h"

#include <algorithm>
#include <cstring>

#include "runtime/sunway/check/args.h"
#include "runtime/sunway/check/footprint.h"
#include "runtime/sunway/check/report.h"
#include "runtime/sunway/ids.h"
#include "runtime/sunway/schedule.h"
#include "runtime/sunway/settings.h"

namespace swamp::sunway::check {
namespace {

std::uintptr_t number(const volatile void* address) {
  return reinterpret_cast<std::uintptr_t>(address);
}

bool meet(std::uintptr_t begin, std::uintptr_t end, const volatile void* other,
          std::size_t bytes) {
  return begin < number(other) + bytes && number(other) < end;
}

bool meet(const Transfer& a, const Transfer& b) {
  return meet(number(a.ldm), number(a.ldm) + static_cast<std::size_t>(a.length),
              b.ldm, static_cast<std::size_t>(b.length));
}

// hash() is FNV-1a by words.
std::uint64_t hash(const std::byte* data, std::size_t bytes) {
  std::uint64_t sum = 0xcbf29ce484222325u;
  for (std::size_t i = 0; i + 4 <= bytes; i += 4) {
    std::uint32_t word = 0;
    std::memcpy(&word, data + i, 4);
    sum = (sum ^ word) * 0x100000001b3u;
  }
  return sum;
}

std::size_t number_of(const Slave& slave) {
  return static_cast<std::size_t>(slave.group * settings().slaves_per_group +
                                  slave.id);
}

std::size_t bytes_of(const Transfer& t) {
  return static_cast<std::size_t>(t.length);
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
  step();
  take_turn(slave_);
}

void SlaveCheck::begin_launch() {
  step();
  clock_.restart();
  // What lies below belongs to no frame yet, but for those that this one calls.
  constexpr std::size_t kMargin = 1024;
  auto* here = static_cast<std::byte*>(__builtin_frame_address(0));
  const auto room = static_cast<std::size_t>(here - slave_.stack);
  const std::size_t bytes =
      std::min(room - std::min(room, kMargin), world().ldm_bytes) / 4 * 4;
  std::byte* begin = here - kMargin - bytes;
  begin -= number(begin) % 4;
  shadow_.poison(begin, bytes);
}

void SlaveCheck::end_launch() {
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

// ---- Rules

std::string SlaveCheck::where_ldm(const volatile void* address) const {
  if (slave_.in_ldm(address, 1)) return "";
  return " (it is in main memory: " + describe(number(address)) + ")";
}

std::string SlaveCheck::why_not_ldm(const std::byte* ldm,
                                    std::size_t bytes) const {
  if (!slave_.in_ldm(ldm, 1)) {
    return "the LDM side of the transfer is no LDM" + where_ldm(ldm) +
           "; the machine would cut the address to 18 bits and overwrite LDM";
  }
  if (ldm < slave_.slot + world().ldm_bytes) {
    const auto offset = static_cast<std::size_t>(ldm - slave_.slot);
    if (slave_.heap.holds(offset, bytes)) return "";
    return "the LDM side lies outside what ldm_malloc gave, at its byte " +
           std::to_string(offset);
  }
  const auto in_statics = number(ldm) - number(slave_.statics);
  if (ldm >= slave_.statics && in_statics < world().static_bytes) {
    const Symbol variable = find_ldm_variable(in_statics);
    if (variable.name.empty() ||
        in_statics + bytes <= variable.begin + variable.bytes) {
      return "";
    }
    return "the LDM side runs " +
           std::to_string(in_statics + bytes - variable.begin -
                          variable.bytes) +
           " bytes beyond the end of " + variable.name + " (" +
           std::to_string(variable.bytes) + " bytes)";
  }
  if (ldm >= slave_.stack && ldm + bytes <= slave_.stack_top) return "";
  return "the LDM side lies outside the slave's variables";
}

bool SlaveCheck::check_reply(volatile void* reply, const char* call,
                             const void* pc) {
  if (!slave_.in_ldm(reply, 4)) {
    report({"reply-not-ldm", pc, &slave_,
            std::string(call) + "'s reply word must be in LDM" +
                (reply == nullptr ? " (it is NULL)" : where_ldm(reply)) +
                "; the machine would count somewhere else and the wait hang"});
    return false;
  }
  if (number(reply) % 4 != 0) {
    report({"misaligned", pc, &slave_,
            std::string(call) + "'s reply word must be 4-byte aligned"});
    return false;
  }
  return true;
}

void SlaveCheck::check_stack(const void* pc) {
  const auto* here = static_cast<std::byte*>(__builtin_frame_address(0));
  const auto depth = static_cast<std::size_t>(slave_.stack_top - here);
  const std::size_t used = depth + world().static_bytes + slave_.heap.in_use();
  // The system's frames above and the checker's own.
  constexpr std::size_t kOwn = 1024;
  if (stack_reported_ || used <= world().ldm_bytes + kOwn) return;
  stack_reported_ = true;
  report({"ldm-range", pc, &slave_,
          "LDM overflows: " + std::to_string(world().static_bytes) +
              " bytes of static variables, " +
              std::to_string(slave_.heap.in_use()) + " of ldm_malloc and " +
              std::to_string(depth) + " of stack are more than the " +
              std::to_string(world().ldm_bytes) + " there are"});
}

bool SlaveCheck::allows(const Transfer& t, const void* pc) {
  enter(pc);
  check_stack(pc);
  const auto is = [&](const char* category, const std::string& text) {
    report({category, pc, &slave_, std::string(t.call) + ": " + text});
    return false;
  };
  const bool blocks = t.stride != 0;
  if (t.length <= 0 || static_cast<std::size_t>(t.length) > world().ldm_bytes) {
    return is("bad-length", "length " + std::to_string(t.length) +
                                "; expected 4 to " +
                                std::to_string(world().ldm_bytes) +
                                " bytes, the size of LDM");
  }
  if (blocks && (t.block <= 0 || t.stride < 0 || t.length % t.block != 0)) {
    return is("bad-length",
              "block " + std::to_string(t.block) + ", stride " +
                  std::to_string(t.stride) + ", length " +
                  std::to_string(t.length) +
                  "; expected a positive block of which the length is a "
                  "multiple");
  }
  const std::uintptr_t bits =
      number(t.ldm) | number(t.main) | static_cast<std::uintptr_t>(t.length) |
      (blocks ? static_cast<std::uintptr_t>(t.block | t.stride) : 0u);
  if (bits % 4 != 0) {
    return is("misaligned",
              "main memory " + describe(number(t.main)) + ", LDM address " +
                  std::to_string(number(t.ldm) % 128) +
                  " beyond a 128-byte line, length " +
                  std::to_string(t.length) +
                  ": addresses, length, block and stride must be multiples of "
                  "4 bytes");
  }
  const std::string ldm = why_not_ldm(t.ldm, bytes_of(t));
  if (!ldm.empty()) return is("ldm-range", ldm);
  if (t.reply != nullptr && !check_reply(t.reply, t.call, pc)) return false;
  if (t.kind == Transfer::Kind::remote_get) return true;
  const std::string main =
      why_not_main(number(t.main), t.extent(), t.writes_main());
  if (!main.empty()) {
    return is("main-range",
              std::string(t.writes_main() ? "the put to " : "the get from ") +
                  describe(number(t.main)) + " " + main);
  }
  return true;
}

bool SlaveCheck::allows_rma(void* local, void* remote, long length,
                            volatile void* local_reply,
                            volatile void* remote_reply, const char* call,
                            const void* pc) {
  Transfer t{Transfer::Kind::remote_get,
             static_cast<std::byte*>(local),
             static_cast<std::byte*>(remote),
             length,
             0,
             0,
             local_reply,
             call};
  if (!allows(t, pc)) return false;
  t.ldm = static_cast<std::byte*>(remote);
  t.reply = remote_reply;
  return allows(t, pc);
}

void SlaveCheck::check_clashes(const Transfer& t, const void* pc) {
  for (Pending& pending : pending_) {
    const Transfer& other = pending.transfer;
    if (meet(t, other)) {
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
    if (!t.writes_main() && other.writes_main() &&
        t.kind == Transfer::Kind::get &&
        meet(number(t.main), number(t.main) + t.extent(), other.main,
             other.extent())) {
      report_unwaited(pending, pc,
                      std::string(t.call) +
                          " reads main memory that the slave's own " +
                          other.call + " still writes: wait for that first");
    }
  }
}

void SlaveCheck::check_written(const Transfer& t, const void* pc) {
  if (!t.writes_main()) return;
  const std::size_t words = bytes_of(t) / 4;
  const std::size_t unwritten = shadow_.unwritten_words(t.ldm, bytes_of(t));
  const bool on_stack = t.ldm >= slave_.slot + world().ldm_bytes;
  // A frame's buffer may be larger than its use; memory of ldm_malloc, too. A
  // word of poison is a bug only where a word beside it is none.
  if (unwritten == 0 || (on_stack && unwritten != words)) return;
  report({"uninitialised", pc, &slave_,
          std::string(t.call) + " sends " + std::to_string(4 * unwritten) +
              " of " + std::to_string(t.length) +
              " bytes of LDM that nothing was written to: on the machine they "
              "hold what the last program left"});
}

// ---- Transfers

void SlaveCheck::log(const Transfer& t, const void* pc,
                     const std::shared_ptr<const Clock>& before) {
  if (t.kind == Transfer::Kind::remote_get) return;
  for_blocks(t, [&](std::byte* main, std::byte*, std::size_t bytes) {
    add_touch({number(main), number(main) + bytes, &slave_, pc, t.writes_main(),
               false, before, clock_.now()});
  });
  if (t.writes_main()) {
    args_written(t.main, t.extent());
  }
}

void SlaveCheck::issue(const Transfer& t, const void* pc) {
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
  if (t.writes_main()) {
    pending.source_hash = hash(t.ldm, bytes_of(t));
  } else {
    shadow_.written(t.ldm, bytes_of(t));
    std::memset(t.ldm, Shadow::kPoison, bytes_of(t));
    pending.source_hash = hash(t.ldm, bytes_of(t));
  }
  pending_.push_back(std::move(pending));
}

void SlaveCheck::at_once(const Transfer& t, const void* pc) {
  if (!allows(t, pc)) return;
  check_clashes(t, pc);
  check_written(t, pc);
  if (t.kind == Transfer::Kind::get) {
    check_args(slave_, t.main, bytes_of(t), pc);
  }
  carry_out(t);
  if (!t.writes_main()) shadow_.written(t.ldm, bytes_of(t));
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
  carry_out(t);
  log(t, pending.pc, pending.before);
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

void SlaveCheck::after_wait(volatile void*) { clock_.take(&slave_); }

void SlaveCheck::received(std::byte* ldm, long length, Slave& sender,
                          const void* pc) {
  const Transfer t{
      Transfer::Kind::get, ldm, nullptr, length, 0, 0, nullptr, ""};
  for (Pending& pending : pending_) {
    if (!meet(t, pending.transfer) || pending.reported) continue;
    pending.reported = true;
    report({"reuse-in-flight", pc, &sender,
            "writes into slave " + std::to_string(slave_.id) +
                "'s buffer while " + pending.transfer.call +
                " is in flight there",
            pending.pc});
  }
  shadow_.written(ldm, static_cast<std::size_t>(length));
  if (&sender != &slave_) sender.check->clock_.give(&slave_);
}

// ---- LDM memory

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

// ---- Locks

void SlaveCheck::acquire(const volatile void* word) {
  step();
  clock_.take(word);
}
void SlaveCheck::release(const volatile void* word) {
  step();
  clock_.give(word);
}
void SlaveCheck::atomic(const volatile void* word) {
  step();
  take_turn(slave_);
  clock_.take(word);
  clock_.give(word);
}

}  // namespace swamp::sunway::check
