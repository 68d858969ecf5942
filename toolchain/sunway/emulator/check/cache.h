// The data cache of each slave, with SWAMP_CHECK_CACHE=1.
#ifndef SWAMP_SUNWAY_EMULATOR_CHECK_CACHE_H_
#define SWAMP_SUNWAY_EMULATOR_CHECK_CACHE_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "toolchain/sunway/emulator/machine.h"

namespace swamp::sunway::check {

// DataCache has the lines of main memory that one slave has read directly. A
// byte of a line is stale if others have changed it since.
class DataCache {
 public:
  explicit DataCache(const Slave& slave) : slave_(slave) {}

  static constexpr std::size_t kBytes = std::size_t{128} * 1024;

  // make() returns the cache of a new slave, or nullptr if caches are not
  // checked.
  static std::unique_ptr<DataCache> make(const Slave& slave);

  // read() is called before the slave's own loads. It reports a stale byte
  // whose value is another one now.
  void read(std::uintptr_t begin, std::uintptr_t end, const void* pc);
  // evict() removes the lines of [begin, end), and clear() all lines.
  void evict(std::uintptr_t begin, std::uintptr_t end);
  void clear() { evict(0, ~std::uintptr_t{0}); }

 private:
  friend void make_stale(std::uintptr_t begin, std::uintptr_t end,
                         const Slave* by, const void* pc, bool is_atomic);

  static constexpr std::uintptr_t kLine = 256;
  static constexpr std::size_t kWays = 4;
  static constexpr std::size_t kSets = kBytes / kLine / kWays;

  struct Stale;
  struct Line {
    std::uintptr_t begin = 0;  // 0: none
    std::uint64_t used = 0;    // the time of the last read
    std::shared_ptr<Stale> stale;
  };
  Line* find(std::uintptr_t begin);
  void fill(std::uintptr_t begin);
  void drop(Line& line);

  const Slave& slave_;
  std::uint64_t time_ = 0;
  std::array<Line, kWays * kSets> lines_;
};

inline std::atomic<bool> have_caches{false};  // with SWAMP_CHECK_CACHE=1

void make_stale(std::uintptr_t begin, std::uintptr_t end, const Slave* by,
                const void* pc, bool is_atomic);

// changes_main() is called before `by`, or a master if it is nullptr, changes
// main memory. Other slaves' copies become stale. A slave's own copy does so by
// an atomic, which goes past the cache; its stores change the copy, too.
inline void changes_main(std::uintptr_t begin, std::uintptr_t end,
                         const Slave* by, const void* pc,
                         bool is_atomic = false) {
  if (have_caches.load(std::memory_order_relaxed)) {
    make_stale(begin, end, by, pc, is_atomic);
  }
}

// not_cached() is called for memory that slaves access past their caches from
// now on: what a pointer points to, or all if it is nullptr.
void not_cached(const volatile void* pointer);

}  // namespace swamp::sunway::check

#endif  // SWAMP_SUNWAY_EMULATOR_CHECK_CACHE_H_
