// Loads of main memory by a slave's own instructions fill lines of its data
// cache, which no hardware keeps coherent. Before others, or DMA, change main
// memory, the old bytes are kept for each slave that has the line: it still
// sees these. A slave's own stores stay in its cache; before them, the old
// bytes are kept, which others and DMA still see. A load or a get that finds
// another value in memory would be wrong on the machine. Lines are replaced as
// if the least recently used one is always the next; main memory that the
// program accesses past the cache is left out.
#include "toolchain/sunway/emulator/check/cache.h"

#include <algorithm>
#include <bitset>
#include <iterator>
#include <map>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "toolchain/sunway/emulator/check/addresses.h"
#include "toolchain/sunway/emulator/host_process.h"
#include "toolchain/sunway/emulator/report.h"
#include "toolchain/sunway/emulator/transfer.h"

extern "C" {
// The begin and end of the __uncached variables, in programs that have some.
extern const char* const swamp_uncached_bounds[2] __attribute__((weak));
extern const char* const swamp_uncached_zero_bounds[2] __attribute__((weak));
extern const char* const swamp_shared_ldm_bounds[2] __attribute__((weak));
// Says why it is not known what is __uncached: swcc compiled a source without
// the section, or a variable is defined outside of it, too.
extern const char swamp_uncached_unknown[] __attribute__((weak));
}

namespace swamp::sunway::check {

// Old has values that bytes of a line had before a change.
struct DataCache::Old {
  struct Writer {
    const Slave* slave;  // nullptr: a master
    const void* pc;
    bool in_memory;  // otherwise the new value may be in its cache only
  };
  std::bitset<kLine> bytes;
  std::array<std::byte, kLine> values;
  std::array<Writer, kLine / 4> writers;  // the last one of each word

  void keep(std::uintptr_t i, std::byte value, Writer writer) {
    if (!bytes[i]) values[i] = value;
    bytes[i] = true;
    writers[i / 4] = writer;
  }
  // first_of() returns the first of these bytes in [begin, end), offsets in the
  // line at `line`, whose value is another one now; kLine if there is none.
  std::uintptr_t first_of(std::uintptr_t line, std::uintptr_t begin,
                          std::uintptr_t end) const {
    for (std::uintptr_t i = begin; i < end; ++i) {
      if (bytes[i] && values[i] != *reinterpret_cast<std::byte*>(line + i)) {
        return i;
      }
    }
    return kLine;
  }
};

namespace {

struct Caches {
  std::mutex mutex;
  // The caches that have a line.
  std::unordered_map<std::uintptr_t, std::vector<DataCache*>> holders;
  // Begin and end of memory that is not cached.
  std::map<std::uintptr_t, std::uintptr_t> left_out;

  bool take(std::uintptr_t address) const {
    const auto next = left_out.upper_bound(address);
    return next == left_out.begin() || std::prev(next)->second <= address;
  }
  void leave_out(std::uintptr_t begin, std::uintptr_t end) {
    take_again(begin, end);
    if (take(begin)) {
      left_out[begin] = end;
    } else {
      std::uintptr_t& last = std::prev(left_out.upper_bound(begin))->second;
      last = std::max(last, end);
    }
  }
  void take_again(std::uintptr_t begin, std::uintptr_t end) {
    left_out.erase(left_out.lower_bound(begin), left_out.lower_bound(end));
  }
};
Caches& caches() {
  static auto& all = *new Caches;  // never destroyed
  return all;
}

std::atomic<bool> any_not_cached{false};  // at run time

// MasterLock locks the caches, unless this thread has done so: the master's
// signal handlers store, too.
class MasterLock {
 public:
  MasterLock() : is_taken_(!std::exchange(inside_, true)) {
    if (is_taken_) caches().mutex.lock();
  }
  ~MasterLock() {
    if (!is_taken_) return;
    caches().mutex.unlock();
    inside_ = false;
  }
  MasterLock(const MasterLock&) = delete;
  MasterLock& operator=(const MasterLock&) = delete;

  bool is_taken() const { return is_taken_; }

 private:
  static inline thread_local bool inside_ = false;
  bool is_taken_;
};

}  // namespace

// report_stored() reports an access of a byte that `by` has stored.
static void report_stored(const char* verb, std::uintptr_t byte,
                          const Slave& slave, const void* pc, const Slave& by,
                          const void* by_pc) {
  report(
      {"stale-read", pc, &slave,
       verb + describe(byte) + ", but the value that " + name_of(&by) +
           " stored may still be in its data cache only: flush_slave_cache() "
           "after the store, put it by DMA, or define it as __uncached",
       by_pc});
}

std::unique_ptr<DataCache> DataCache::make(const Slave& slave) {
  if (!settings().cache) return nullptr;
  if (!have_caches.exchange(true)) {
    // volatile: otherwise the compiler assumes that a variable has an address.
    const char* volatile unknown = swamp_uncached_unknown;
    if (unknown != nullptr) {
      fail(2, std::string("SWAMP_CHECK_CACHE: got 1, expected that swcc knows "
                          "which memory is __uncached: ") +
                  unknown);
    }
    for (const char* const* volatile bounds :
         {swamp_uncached_bounds, swamp_uncached_zero_bounds,
          swamp_shared_ldm_bounds}) {
      if (bounds == nullptr) continue;
      caches().leave_out(address_of(bounds[0]), address_of(bounds[1]));
    }
  }
  return std::make_unique<DataCache>(slave);
}

DataCache::Line* DataCache::find(std::uintptr_t begin) {
  Line* const set = &lines_[begin / kLine % kSets * kWays];
  Line* const end = set + kWays;
  Line* const line = std::find_if(
      set, end, [=](const Line& each) { return each.begin == begin; });
  return line != end ? line : nullptr;
}

void DataCache::drop(Line& line) {
  const auto found = caches().holders.find(line.begin);
  std::vector<DataCache*>& all = found->second;
  all.erase(std::remove(all.begin(), all.end(), this), all.end());
  if (all.empty()) caches().holders.erase(found);
  line = {};
}

DataCache::Line& DataCache::use(std::uintptr_t begin) {
  Line* line = find(begin);
  if (line == nullptr) {
    Line* const set = &lines_[begin / kLine % kSets * kWays];
    line = std::min_element(set, set + kWays, [](const Line& a, const Line& b) {
      return a.used < b.used;
    });
    if (line->begin != 0) drop(*line);
    line->begin = begin;
    caches().holders[begin].push_back(this);
  }
  line->used = ++time_;
  return *line;
}

void DataCache::take_old(Line& line) {
  for (DataCache* const other : caches().holders[line.begin]) {
    const auto& stored = other->find(line.begin)->stored;
    if (other == this || stored == nullptr) continue;
    if (line.old == nullptr) line.old = std::make_unique<Old>();
    for (std::uintptr_t i = 0; i < kLine; ++i) {
      if (!stored->bytes[i]) continue;
      line.old->keep(i, stored->values[i], stored->writers[i / 4]);
    }
  }
}

void DataCache::read(std::uintptr_t begin, std::uintptr_t end, const void* pc) {
  const OwnAllocations own;
  Old::Writer writer{};
  std::uintptr_t first = 0;  // the first old byte
  {
    const std::lock_guard<std::mutex> lock(caches().mutex);
    if (!caches().take(begin)) return;
    for (std::uintptr_t at = begin / kLine * kLine; at < end; at += kLine) {
      Line& line = use(at);
      if (!std::exchange(line.read, true)) take_old(line);
      if (line.old == nullptr) continue;
      const std::uintptr_t byte = line.old->first_of(
          at, std::max(begin, at) - at, std::min(end - at, kLine));
      if (byte == kLine) continue;
      if (first == 0) {
        writer = line.old->writers[byte / 4];
        first = at + byte;
      }
      line.old = nullptr;  // reported
    }
  }
  if (first == 0) return;
  if (!writer.in_memory) {
    report_stored("reads ", first, slave_, pc, *writer.slave, writer.pc);
    return;
  }
  report({"stale-read", pc, &slave_,
          "reads " + describe(first) +
              ", which its data cache may still hold as it was before " +
              (writer.slave == nullptr ? "the " : "") + name_of(writer.slave) +
              " changed it: the machine does not keep the caches of slaves "
              "coherent; flush_slave_cache() before, get it by DMA, or define "
              "it as __uncached",
          writer.pc});
}

void DataCache::write(std::uintptr_t begin, std::uintptr_t end,
                      const void* pc) {
  const OwnAllocations own;
  const std::lock_guard<std::mutex> lock(caches().mutex);
  if (!caches().take(begin)) return;
  for (std::uintptr_t at = begin / kLine * kLine; at < end; at += kLine) {
    Line& line = use(at);
    if (line.stored == nullptr) line.stored = std::make_unique<Old>();
    const std::uintptr_t last = std::min(end, at + kLine);
    for (std::uintptr_t i = std::max(begin, at); i < last; ++i) {
      line.stored->keep(i - at, *reinterpret_cast<std::byte*>(i),
                        {&slave_, pc, false});
    }
  }
}

void DataCache::evict(std::uintptr_t begin, std::uintptr_t end) {
  const OwnAllocations own;
  const std::lock_guard<std::mutex> lock(caches().mutex);
  for (Line& line : lines_) {
    if (line.begin != 0 && line.begin < end && begin < line.begin + kLine) {
      drop(line);
    }
  }
}

void get_past_caches(std::uintptr_t begin, std::uintptr_t end, const Slave& by,
                     const void* pc) {
  constexpr std::uintptr_t kLine = DataCache::kLine;
  const OwnAllocations own;
  DataCache::Old::Writer writer{};
  std::uintptr_t first = 0;
  {
    const std::lock_guard<std::mutex> lock(caches().mutex);
    if (!caches().take(begin)) return;
    for (std::uintptr_t at = begin / kLine * kLine; at < end && first == 0;
         at += kLine) {
      const auto found = caches().holders.find(at);
      if (found == caches().holders.end()) continue;
      for (DataCache* const cache : found->second) {
        auto& stored = cache->find(at)->stored;
        if (stored == nullptr) continue;
        const std::uintptr_t byte = stored->first_of(
            at, std::max(begin, at) - at, std::min(end - at, kLine));
        if (byte == kLine) continue;
        first = at + byte;
        writer = stored->writers[byte / 4];
        stored = nullptr;  // reported
        break;
      }
    }
  }
  if (first != 0) {
    report_stored("gets ", first, by, pc, *writer.slave, writer.pc);
  }
}

void make_stale(std::uintptr_t begin, std::uintptr_t end, const Slave* by,
                const void* pc, bool past_cache) {
  constexpr std::uintptr_t kLine = DataCache::kLine;
  const OwnAllocations own;
  const MasterLock lock;
  if (!lock.is_taken()) return;
  for (std::uintptr_t at = begin / kLine * kLine; at < end; at += kLine) {
    const auto found = caches().holders.find(at);
    if (found == caches().holders.end()) continue;
    for (DataCache* const cache : found->second) {
      DataCache::Line& line = *cache->find(at);
      const bool is_own = &cache->slave_ == by && !past_cache;
      const std::uintptr_t last = std::min(end, at + kLine);
      for (std::uintptr_t i = std::max(begin, at); i < last; ++i) {
        if (is_own) {
          if (line.old != nullptr) line.old->bytes[i - at] = false;
          continue;
        }
        bool has = line.read;
        if (line.stored != nullptr) {
          has = has || line.stored->bytes[i - at];
          line.stored->bytes[i - at] = false;
        }
        if (!has) continue;
        if (line.old == nullptr) line.old = std::make_unique<DataCache::Old>();
        line.old->keep(i - at, *reinterpret_cast<std::byte*>(i),
                       {by, pc, true});
      }
    }
  }
}

void not_cached(const volatile void* pointer) {
  if (!settings().cache) return;
  const OwnAllocations own;
  std::uintptr_t begin = 0;
  std::uintptr_t end = ~begin;
  if (pointer != nullptr) {
    begin = address_of(pointer);
    end = begin + readable_bytes(begin, std::size_t{1} << 40);
    const Allocation block = find_allocation(begin);
    if (block.bytes != 0) begin = block.begin;
  }
  const MasterLock lock;
  if (!lock.is_taken()) return;
  caches().leave_out(begin, end);
  any_not_cached = true;
}

void cached_again(std::uintptr_t begin, std::uintptr_t end) {
  if (!any_not_cached) return;
  const OwnAllocations own;
  const MasterLock lock;
  if (!lock.is_taken()) return;
  caches().take_again(begin, end);
}

}  // namespace swamp::sunway::check
