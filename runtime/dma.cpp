#include "runtime/dma.h"

#include <string>

namespace swamp::runtime {
namespace {

constexpr int kPoison = 0xff;  // nan in every float format, -1 in integers

std::string describe(const void* main, std::size_t bytes) {
  char address[32];
  std::snprintf(address, sizeof address, "%p", main);
  return std::to_string(bytes) + " bytes at " + address;
}

}  // namespace

DeferredDma::~DeferredDma() {
  for (const Pending& transfer : pending_) {
    report(where(transfer.file, transfer.line), "missing-wait",
           "a transfer of " + std::to_string(transfer.bytes) +
               " bytes was never waited for; wait for its reply before the "
               "slave ends");
  }
}

bool DeferredDma::legal(const void* ldm, const void* main, std::size_t bytes,
                        const Reply* reply, bool write, const char* file,
                        int line) {
  const auto bits = reinterpret_cast<std::uintptr_t>(ldm) |
                    reinterpret_cast<std::uintptr_t>(main) | bytes;
  const char* category = nullptr;
  std::string text;
  if (bytes == 0 || bytes > ldm_.bytes()) {
    category = "bad-length";
    text = describe(main, bytes) + ": expected 1.." +
           std::to_string(ldm_.bytes()) + " bytes";
  } else if (bits % 4 != 0) {
    category = "misaligned";
    text = describe(main, bytes) +
           ": main and LDM address and length must be multiples of 4";
  } else if (!ldm_.contains(ldm, bytes)) {
    category = "ldm-range";
    text = std::to_string(bytes) + " bytes beyond the LDM of " +
           std::to_string(ldm_.bytes());
  } else if (!ldm_.contains(reply, sizeof *reply)) {
    category = "reply-not-ldm";
    text = "the reply word lies outside LDM";
  } else if (!window_.allows(main, bytes, write)) {
    category = "main-range";
    text = describe(main, bytes) + (write ? " (put)" : " (get)") +
           " lie in no array of the spawn";
  }
  if (category == nullptr) return true;
  report(where(file, line), category, text);
  return false;
}

void DeferredDma::get(void* ldm, const void* main, std::size_t bytes,
                      Reply* reply, const char* file, int line) {
  if (!legal(ldm, main, bytes, reply, false, file, line)) {
    ++*reply;  // or the slave would hang on top of it
    return;
  }
  std::memset(ldm, kPoison, bytes);
  pending_.push_back({ldm, main, bytes, reply, file, line});
}

void DeferredDma::put(void* main, const void* ldm, std::size_t bytes,
                      Reply* reply, const char* file, int line) {
  if (!legal(ldm, main, bytes, reply, true, file, line)) {
    ++*reply;
    return;
  }
  pending_.push_back({main, ldm, bytes, reply, file, line});
}

void DeferredDma::wait(const Reply* reply, Reply value, const char* file,
                       int line) {
  for (auto next = pending_.begin(); *reply < value;) {
    while (next != pending_.end() && next->reply != reply) ++next;
    if (next == pending_.end()) {
      report(where(file, line), "hang",
             "waits for reply " + std::to_string(value) + ", but only " +
                 std::to_string(*reply) + " transfers were issued on it");
      return;
    }
    std::memcpy(next->destination, next->source, next->bytes);
    ++*next->reply;
    next = pending_.erase(next);
  }
}

}  // namespace swamp::runtime
