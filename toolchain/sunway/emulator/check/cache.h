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

// DataCache has the lines of main memory that one slave has read or stored
// directly.
class DataCache {
 public:
  explicit DataCache(const Slave& slave) : slave_(slave) {}

  static constexpr std::size_t kBytes = std::size_t{128} * 1024;

  // make() returns the cache of a new slave, or nullptr if caches are not
  // checked.
  static std::unique_ptr<DataCache> make(const Slave& slave);

  // read() is called before the slave's own loads. It reports an old byte whose
  // value is another one now.
  void read(std::uintptr_t begin, std::uintptr_t end, const void* pc);
  // write() is called before the slave's own stores.
  void write(std::uintptr_t begin, std::uintptr_t end, const void* pc);
  // evict() removes the lines of [begin, end), and clear() all lines.
  void evict(std::uintptr_t begin, std::uintptr_t end);
  void clear() { evict(0, ~std::uintptr_t{0}); }

 private:
  friend void make_stale(std::uintptr_t begin, std::uintptr_t end,
                         const Slave* by, const void* pc, bool past_cache);
  friend void get_past_caches(std::uintptr_t begin, std::uintptr_t end,
                              const Slave& by, const void* pc);

  static constexpr std::uintptr_t kLine = 256;
  static constexpr std::size_t kWays = 4;
  static constexpr std::size_t kSets = kBytes / kLine / kWays;

  struct Old;
  struct Line {
    std::uintptr_t begin = 0;     // 0: none
    std::uint64_t used = 0;       // the time of the last access
    bool read = false;            // otherwise only stored
    std::shared_ptr<Old> old;     // what this slave still sees
    std::shared_ptr<Old> stored;  // what others still see
  };
  Line* find(std::uintptr_t begin);
  // use() returns the line, which may replace another one.
  Line& use(std::uintptr_t begin);
  // take_old() keeps what others have stored and not flushed.
  void take_old(Line& line);
  void drop(Line& line);

  const Slave& slave_;
  std::uint64_t time_ = 0;
  std::array<Line, kWays * kSets> lines_;
};

inline std::atomic<bool> have_caches{false};  // with SWAMP_CHECK_CACHE=1

void make_stale(std::uintptr_t begin, std::uintptr_t end, const Slave* by,
                const void* pc, bool past_cache);

// changes_main() is called before `by`, or a master if it is nullptr, changes
// main memory. Other slaves' copies become stale. A slave's own copy does so by
// an atomic and by DMA, which go past the cache; its stores change the copy,
// too.
inline void changes_main(std::uintptr_t begin, std::uintptr_t end,
                         const Slave* by, const void* pc,
                         bool past_cache = false) {
  if (have_caches.load(std::memory_order_relaxed)) {
    make_stale(begin, end, by, pc, past_cache);
  }
}

// get_past_caches() is called before a get of main memory. It reports what a
// slave has stored and not flushed.
void get_past_caches(std::uintptr_t begin, std::uintptr_t end, const Slave& by,
                     const void* pc);

// not_cached() is called for memory that slaves access past their caches from
// now on: what a pointer points to, or all if it is nullptr. cached_again() is
// called before memory is freed; what it returns later is cached.
void not_cached(const volatile void* pointer);
void cached_again(std::uintptr_t begin, std::uintptr_t end);

}  // namespace swamp::sunway::check

#endif  // SWAMP_SUNWAY_EMULATOR_CHECK_CACHE_H_
