// A slave's own loads and stores of main memory.
#include <string>

#include "toolchain/sunway/emulator/check/args.h"
#include "toolchain/sunway/emulator/check/footprint.h"
#include "toolchain/sunway/emulator/check/hash.h"
#include "toolchain/sunway/emulator/check/ranges.h"
#include "toolchain/sunway/emulator/check/report.h"
#include "toolchain/sunway/emulator/check/slave_check.h"
#include "toolchain/sunway/emulator/check/written.h"
#include "toolchain/sunway/emulator/settings.h"

namespace swamp::sunway::check {
namespace {

constexpr int kMostReads = 16 * 1024;  // of a slave's in a launch

}  // namespace

void SlaveCheck::settle() {
  if (written_.end == 0) return;
  add_written({written_.begin, written_.end, written_.pc, &slave_});
  add_touch({written_.begin, written_.end, &slave_, written_.pc, true, true,
             hash(reinterpret_cast<const std::byte*>(written_.begin),
                  written_.end - written_.begin),
             clock_.snapshot(), clock_.now()});
  written_ = {};
}

void SlaveCheck::direct_in_flight(std::uintptr_t begin, std::uintptr_t end,
                                  bool write, const void* pc) {
  for (Pending& pending : pending_) {
    const Transfer& t = pending.transfer;
    if (pending.reported || t.kind == Transfer::Kind::remote_get ||
        (!write && !t.writes_main()) || !meet_main(t, begin, end)) {
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

void SlaveCheck::direct_read(std::uintptr_t begin, std::uintptr_t end,
                             const void* pc) {
  if (begin == reads_.end && reads_.done == clock_.now() &&
      reads_.before == clock_.snapshot()) {
    reads_.end = end;
    return;
  }
  Seen& seen = seen_[begin / 8 % seen_.size()];
  if (seen.begin <= begin && end <= seen.end && seen.done == clock_.now() &&
      seen.launch == launch_) {
    return;
  }
  enter_reads();
  reads_ = {begin, end, pc, clock_.snapshot(), clock_.now()};
  seen = {begin, end, clock_.now(), launch_};
}

void SlaveCheck::enter_reads() {
  if (reads_.end != 0 && entered_++ < kMostReads) {
    add_touch({reads_.begin, reads_.end, &slave_, reads_.pc, false, true, 0,
               reads_.before, reads_.done});
  }
  reads_ = {};
}

void SlaveCheck::direct(std::uintptr_t begin, std::uintptr_t end, bool write,
                        const void* pc) {
  auto* address = reinterpret_cast<void*>(begin);
  if (write) {
    args_written(address, end - begin);
    written_ = {begin, end, pc};
    // Who reads what it has just written itself is no news: another's write of
    // that would clash with this one.
    seen_[begin / 8 % seen_.size()] = {begin, end, clock_.now(), launch_};
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
