// DMA between main memory and LDM, with reply counters as on the real machine:
// every completed transfer adds 1 to its reply word, and wait() returns when
// the word has reached a value.
#ifndef SWAMP_RUNTIME_DMA_H_
#define SWAMP_RUNTIME_DMA_H_

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "runtime/ldm.h"
#include "runtime/memory_check.h"

namespace swamp::runtime {

struct OperandPart;

// copy_lines() copies lines from and to addresses with these steps.
inline void copy_lines(void* to, std::size_t to_step, const void* from,
                       std::size_t from_step, const Lines& lines) noexcept {
  for (std::size_t i = 0; i < lines.count; ++i) {
    std::memcpy(static_cast<std::byte*>(to) + i * to_step,
                static_cast<const std::byte*>(from) + i * from_step,
                lines.bytes);
  }
}

// CopyDma performs a transfer when it is issued: transfer mode `copy`.
class CopyDma {
 public:
  // In pieces: memcpy() of a whole tile would use `rep movsb`, which reads
  // memory at half the speed of loads with prefetches (8 KiB tiles: 33 GB/s, in
  // pieces 60, directly 65).
  void get(void* ldm, const void* main, const Lines& lines,
           Reply* reply) noexcept {
    auto* to = static_cast<std::byte*>(ldm);
    for (std::size_t i = 0; i < lines.count; ++i) {
      const auto* from = static_cast<const std::byte*>(main) + i * lines.step;
      std::size_t bytes = lines.bytes;
      for (; bytes >= kPiece; bytes -= kPiece, to += kPiece, from += kPiece) {
        for (std::size_t line = 0; line < kPiece; line += 64) {
          __builtin_prefetch(from + kPrefetch + line);
        }
        std::memcpy(to, from, kPiece);
      }
      std::memcpy(to, from, bytes);
      to += bytes;
    }
    ++*reply;
  }
  void put(void* main, const void* ldm, const Lines& lines,
           Reply* reply) noexcept {
    copy_lines(main, lines.step, ldm, lines.bytes, lines);
    ++*reply;
  }
  void wait(const Reply*, Reply) noexcept {}  // complete when issued
  // load() and store() access main memory directly, for elements that share
  // their 4-byte word with a neighbour.
  static void load(void* ldm, const void* main, std::size_t bytes) noexcept {
    std::memcpy(ldm, main, bytes);
  }
  static void store(void* main, const void* ldm, std::size_t bytes,
                    const OperandPart&) noexcept {
    std::memcpy(main, ldm, bytes);
  }

 private:
  static constexpr std::size_t kPiece = 512;
  static constexpr std::size_t kPrefetch = 4096;
};

// CheckedDma performs a transfer when it is waited for, and poisons the
// destination of a get until then: transfer mode `check`. So a kernel without a
// wait computes nan, as it would compute with stale data on the real machine. A
// transfer that breaks a rule is reported and not performed.
class CheckedDma {
 public:
  CheckedDma(const Ldm& ldm, const MainWindow& window, int core_group,
             int slave) noexcept
      : ldm_(ldm), window_(window), core_group_(core_group), slave_(slave) {}
  // Reports every transfer that was not waited for.
  ~CheckedDma();
  CheckedDma(const CheckedDma&) = delete;
  CheckedDma& operator=(const CheckedDma&) = delete;

  void get(void* ldm, const void* main, const Lines& lines, Reply* reply,
           const char* file = __builtin_FILE(), int line = __builtin_LINE());
  void put(void* main, const void* ldm, const Lines& lines, Reply* reply,
           const char* file = __builtin_FILE(), int line = __builtin_LINE());
  void wait(const Reply* reply, Reply value,
            const char* file = __builtin_FILE(), int line = __builtin_LINE());
  static void load(void* ldm, const void* main, std::size_t bytes) noexcept {
    std::memcpy(ldm, main, bytes);
  }
  static void store(void* main, const void* ldm, std::size_t bytes,
                    const OperandPart&) noexcept {
    std::memcpy(main, ldm, bytes);
  }

 private:
  struct Pending {
    void* destination;
    const void* source;
    Lines lines;
    bool is_put;
    Reply* reply;
    const char* file;
    int line;
  };
  bool legal(const void* ldm, const void* main, const Lines& lines,
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
  // In the order of issue. The size is fixed, because a slave cannot fail; the
  // tile loop has at most two tiles in flight in each direction.
  static constexpr std::size_t kMaxPending = 64;
  Pending pending_[kMaxPending];
  std::size_t pending_count_ = 0;
};

}  // namespace swamp::runtime

#endif  // SWAMP_RUNTIME_DMA_H_
