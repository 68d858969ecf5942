// The rules for a transfer, checked before anything is moved.
#include <algorithm>
#include <string>

#include "toolchain/sunway/emulator/check/ranges.h"
#include "toolchain/sunway/emulator/check/report.h"
#include "toolchain/sunway/emulator/check/slave_check.h"
#include "toolchain/sunway/emulator/schedule.h"

namespace swamp::sunway::check {

std::string SlaveCheck::where_ldm(const volatile void* address) const {
  if (slave_.in_ldm(address, 1)) return "";
  return " (it is in main memory: " + describe(number(address)) + ")";
}

std::string SlaveCheck::why_not_ldm(const std::byte* ldm,
                                    std::size_t bytes) const {
  if (!slave_.in_ldm(ldm, 1)) {
    return "the LDM side of the transfer is not in LDM" + where_ldm(ldm) +
           "; the machine would cut the address to 18 bits and overwrite LDM";
  }
  if (ldm < slave_.slot + machine().ldm_bytes) {
    const auto offset = static_cast<std::size_t>(ldm - slave_.slot);
    if (slave_.heap.holds(offset, bytes)) return "";
    return "the LDM side lies outside what ldm_malloc gave, at its byte " +
           std::to_string(offset);
  }
  const auto in_statics = number(ldm) - number(slave_.statics);
  if (ldm >= slave_.statics && in_statics < machine().static_bytes) {
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

bool SlaveCheck::allows(const Transfer& t, const void* pc) {
  begin_call(pc);
  stack_.check(pc);
  const auto is = [&](const char* category, const std::string& text) {
    report({category, pc, &slave_, std::string(t.call) + ": " + text});
    return false;
  };
  const bool blocks = t.stride != 0;
  if (t.length <= 0 ||
      static_cast<std::size_t>(t.length) > machine().ldm_bytes) {
    return is("bad-length", "length " + std::to_string(t.length) +
                                "; expected 4 to " +
                                std::to_string(machine().ldm_bytes) +
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
    // It is carried out all the same, to avoid follow-up reports.
    (void)is("misaligned",
             "main memory " + describe(number(t.main)) + ", LDM address " +
                 std::to_string(number(t.ldm) % 128) +
                 " beyond a 128-byte line, length " + std::to_string(t.length) +
                 ": addresses, length, block and stride must be multiples of "
                 "4 bytes");
  }
  if (t.ldm >= slave_.stack) stack_.entered(number(t.ldm));
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
  if (t.writes_main() && !arrivals_.empty()) {
    check_arrivals(number(t.ldm), number(t.ldm) + bytes_of(t), false, pc);
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
    } else if (!pending.reported) {
      pending.reported = true;
      report({"reuse-in-flight", pc, &slave_,
              std::string(t.call) +
                  " writes main memory that the slave's own " + other.call +
                  " still " + (other.writes_main() ? "writes" : "reads") +
                  ": the two may come in either order; wait for that first",
              pending.pc});
    }
  }
}

void SlaveCheck::check_written(const Transfer& t, const void* pc) {
  if (!t.writes_main()) return;
  // A single word may be padding of a struct. On the stack, where old frames
  // leave data, only a buffer that is entirely unwritten counts.
  const std::size_t unwritten = shadow_.unwritten_words(t.ldm, bytes_of(t));
  const bool on_stack = t.ldm >= slave_.slot + machine().ldm_bytes;
  if (on_stack ? unwritten != bytes_of(t) / 4
               : shadow_.unwritten_run(t.ldm, bytes_of(t)) < 2) {
    return;
  }
  report({"uninitialised", pc, &slave_,
          std::string(t.call) + " sends " + std::to_string(4 * unwritten) +
              " of " + std::to_string(t.length) +
              " bytes of LDM that nothing was written to: on the machine they "
              "hold what the last program left"});
}

}  // namespace swamp::sunway::check
