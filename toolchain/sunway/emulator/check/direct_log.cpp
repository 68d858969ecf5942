#include "toolchain/sunway/emulator/check/direct_log.h"

#include "toolchain/sunway/emulator/check/access_log.h"
#include "toolchain/sunway/emulator/check/ranges.h"

namespace swamp::sunway::check {
namespace {

constexpr int kMostReads = 16 * 1024;  // entries of one slave in one launch

}  // namespace

void DirectLog::begin_launch() noexcept {
  ++launch_;
  logged_reads_ = 0;
}

void DirectLog::log_write() {
  if (write_.end == 0) return;
  add_written({write_.begin, write_.end, write_.pc, &slave_});
  log_access({write_.begin, write_.end, &slave_, write_.pc, true, true,
              hash(reinterpret_cast<const std::byte*>(write_.begin),
                   write_.end - write_.begin),
              clock_.snapshot(), clock_.now()});
  write_ = {};
}

void DirectLog::write(std::uintptr_t begin, std::uintptr_t end,
                      const void* pc) {
  write_ = {begin, end, pc};
  // The slave's reads of what it has just written need no entry: a write of the
  // same bytes by another slave would clash with this write.
  recent(begin) = {begin, end, clock_.now(), launch_};
}

void DirectLog::read(std::uintptr_t begin, std::uintptr_t end, const void* pc) {
  if (begin == reads_.end && reads_.done == clock_.now() &&
      reads_.before == clock_.snapshot()) {
    reads_.end = end;
    return;
  }
  Recent& last = recent(begin);
  if (last.begin <= begin && end <= last.end && last.done == clock_.now() &&
      last.launch == launch_) {
    return;
  }
  log_reads();
  reads_ = {begin, end, pc, clock_.snapshot(), clock_.now()};
  last = {begin, end, clock_.now(), launch_};
}

void DirectLog::log_reads() {
  if (reads_.end != 0 && logged_reads_++ < kMostReads) {
    log_access({reads_.begin, reads_.end, &slave_, reads_.pc, false, true, 0,
                reads_.before, reads_.done});
  }
  reads_ = {};
}

}  // namespace swamp::sunway::check
