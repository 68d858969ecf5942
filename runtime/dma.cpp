#include "runtime/dma.h"

#include <algorithm>

namespace swamp::runtime {
namespace {

constexpr int kPoison = 0xff;  // nan in every float format, -1 in integers

}  // namespace

CheckedDma::~CheckedDma() {
  for (std::size_t i = 0; i < pending_count_; ++i) {
    const Pending& transfer = pending_[i];
    report(where(transfer.file, transfer.line), "missing-wait",
           "a transfer of %zu bytes was never waited for; wait for its reply "
           "before the slave ends",
           transfer.lines.all_bytes());
  }
}

bool CheckedDma::legal(const void* ldm, const void* main, const Lines& lines,
                       const Reply* reply, bool write, const char* file,
                       int line) {
  const Where at = where(file, line);
  const std::size_t bytes = lines.all_bytes();
  const auto bits = reinterpret_cast<std::uintptr_t>(ldm) |
                    reinterpret_cast<std::uintptr_t>(main) | lines.bytes |
                    lines.step;
  if (bytes == 0 || bytes > ldm_.bytes()) {
    report(at, "bad-length", "got %zu bytes at %p, expected 1..%zu bytes",
           bytes, main, ldm_.bytes());
  } else if (bits % 4 != 0) {
    report(at, "misaligned",
           "%zu bytes at %p, LDM %p; both addresses and the length must be "
           "multiples of 4",
           bytes, main, ldm);
  } else if (!ldm_.contains(ldm, bytes)) {
    report(at, "ldm-range", "%zu bytes at LDM %p lie outside the LDM of %zu",
           bytes, ldm, ldm_.bytes());
  } else if (!ldm_.contains(reply, sizeof *reply)) {
    report(at, "reply-not-ldm", "the reply word lies outside LDM");
  } else {
    const auto* begin = static_cast<const std::byte*>(main);
    std::size_t left = lines.count;
    for (; left != 0 && window_.allows(begin, lines.bytes, write); --left) {
      begin += lines.step;
    }
    if (left == 0) return true;
    report(at, "main-range",
           "%zu bytes at %p (%s) lie in no array of the spawn", lines.bytes,
           static_cast<const void*>(begin), write ? "put" : "get");
  }
  return false;
}

void CheckedDma::issue(const Pending& transfer) {
  // A full queue completes its oldest transfer, as the hardware would.
  if (pending_count_ == kMaxPending) complete(0);
  pending_[pending_count_++] = transfer;
}

void CheckedDma::complete(std::size_t i) {
  const Pending transfer = pending_[i];
  const Lines& lines = transfer.lines;
  copy_lines(transfer.destination, transfer.is_put ? lines.step : lines.bytes,
             transfer.source, transfer.is_put ? lines.bytes : lines.step,
             lines);
  ++*transfer.reply;
  std::copy(pending_ + i + 1, pending_ + pending_count_, pending_ + i);
  --pending_count_;
}

void CheckedDma::get(void* ldm, const void* main, const Lines& lines,
                     Reply* reply, const char* file, int line) {
  if (!legal(ldm, main, lines, reply, false, file, line)) {
    ++*reply;  // Count it as complete, or wait() would hang as well.
    return;
  }
  std::memset(ldm, kPoison, lines.all_bytes());
  issue({ldm, main, lines, false, reply, file, line});
}

void CheckedDma::put(void* main, const void* ldm, const Lines& lines,
                     Reply* reply, const char* file, int line) {
  if (!legal(ldm, main, lines, reply, true, file, line)) {
    ++*reply;
    return;
  }
  issue({main, ldm, lines, true, reply, file, line});
}

void CheckedDma::wait(const Reply* reply, Reply value, const char* file,
                      int line) {
  for (std::size_t i = 0; *reply < value;) {
    while (i < pending_count_ && pending_[i].reply != reply) ++i;
    if (i == pending_count_) {
      report(where(file, line), "hang",
             "waits for reply %d, but only %d transfers were issued on it",
             value, *reply);
      return;
    }
    complete(i);
  }
}

}  // namespace swamp::runtime
