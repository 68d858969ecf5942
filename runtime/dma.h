// DMA between main memory and LDM, with reply counters as on the real machine:
// every completed transfer adds one to its reply word, and wait() returns when
// the word has reached a value.
#ifndef SWAMP_RUNTIME_DMA_H_
#define SWAMP_RUNTIME_DMA_H_

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "runtime/check/main_window.h"
#include "runtime/check/reports.h"
#include "runtime/ldm.h"

namespace swamp::runtime {

// EagerDma carries a transfer out when it is issued: transfer mode `copy`.
class EagerDma {
 public:
  // The get goes in pieces: for a whole tile memcpy() would turn to `rep
  // movsb`, which reads memory at half the speed of loads that prefetch
  // (measured: 8 KiB tiles 33 GB/s, in pieces 60, directly 65).
  void get(void* ldm, const void* main, std::size_t bytes,
           Reply* reply) noexcept {
    auto* to = static_cast<std::byte*>(ldm);
    const auto* from = static_cast<const std::byte*>(main);
    for (; bytes >= kPiece; bytes -= kPiece, to += kPiece, from += kPiece) {
      for (std::size_t line = 0; line < kPiece; line += 64) {
        __builtin_prefetch(from + kPrefetch + line);
      }
      std::memcpy(to, from, kPiece);
    }
    std::memcpy(to, from, bytes);
    ++*reply;
  }
  void put(void* main, const void* ldm, std::size_t bytes,
           Reply* reply) noexcept {
    std::memcpy(main, ldm, bytes);
    ++*reply;
  }
  void wait(const Reply*, Reply) noexcept {}  // all is done when issued
  // load() and store() go to main memory directly: an element that shares
  // its 4-byte word with a neighbour.
  static void load(void* ldm, const void* main, std::size_t bytes) noexcept {
    std::memcpy(ldm, main, bytes);
  }
  static void store(void* main, const void* ldm, std::size_t bytes) noexcept {
    std::memcpy(main, ldm, bytes);
  }

 private:
  static constexpr std::size_t kPiece = 512;
  static constexpr std::size_t kPrefetch = 4096;
};

// DeferredDma carries a transfer out when it is waited for, and poisons what a
// get will write until then: transfer mode `check`. A kernel that forgets a
// wait computes nan, as on the real machine it computes stale data. What breaks
// a rule is reported and not carried out.
class DeferredDma {
 public:
  DeferredDma(const Ldm& ldm, const MainWindow& window, int core_group,
              int slave) noexcept
      : ldm_(ldm), window_(window), core_group_(core_group), slave_(slave) {}
  // Reports every transfer that nobody waited for.
  ~DeferredDma();
  DeferredDma(const DeferredDma&) = delete;
  DeferredDma& operator=(const DeferredDma&) = delete;

  void get(void* ldm, const void* main, std::size_t bytes, Reply* reply,
           const char* file = __builtin_FILE(), int line = __builtin_LINE());
  void put(void* main, const void* ldm, std::size_t bytes, Reply* reply,
           const char* file = __builtin_FILE(), int line = __builtin_LINE());
  void wait(const Reply* reply, Reply value,
            const char* file = __builtin_FILE(), int line = __builtin_LINE());
  static void load(void* ldm, const void* main, std::size_t bytes) noexcept {
    std::memcpy(ldm, main, bytes);
  }
  static void store(void* main, const void* ldm, std::size_t bytes) noexcept {
    std::memcpy(main, ldm, bytes);
  }

 private:
  struct Pending {
    void* destination;
    const void* source;
    std::size_t bytes;
    Reply* reply;
    const char* file;
    int line;
  };
  bool legal(const void* ldm, const void* main, std::size_t bytes,
             const Reply* reply, bool write, const char* file, int line);
  void issue(const Pending& transfer);
  void complete(std::size_t i);
  Where where(const char* file, int line) const noexcept {
    return {file, line, core_group_, slave_};
  }

  const Ldm& ldm_;
  const MainWindow& window_;
  int core_group_;
  int slave_;
  // In the order of issue. Fixed, because a slave cannot fail; the tile loop
  // has two tiles of kMaxOperands in flight, each way.
  static constexpr std::size_t kMaxPending = 64;
  Pending pending_[kMaxPending];
  std::size_t pending_count_ = 0;
};

}  // namespace swamp::runtime

#endif  // SWAMP_RUNTIME_DMA_H_
