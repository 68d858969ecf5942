// Conflicts of accesses to main memory. The log of a launch is sorted by
// address and searched once from the lowest on: Active holds the accesses that
// reach beyond the current position. Two of different slaves conflict if one
// writes and the vector clocks order neither before the other.
#include "toolchain/sunway/emulator/check/access_log.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>

#include "toolchain/sunway/emulator/check/addresses.h"
#include "toolchain/sunway/emulator/check/host_check.h"
#include "toolchain/sunway/emulator/check/slave_check.h"
#include "toolchain/sunway/emulator/host_process.h"
#include "toolchain/sunway/emulator/report.h"

namespace swamp::sunway::check {
namespace {

constexpr std::size_t kMostAccesses = std::size_t{1} << 20;
constexpr std::uintptr_t kLine = 128;

std::mutex mutex;
std::vector<Access>& accesses() {
  static auto* const all = new std::vector<Access>;
  return *all;
}

std::map<const Slave*, std::vector<Access>>& ldm_accesses() {  // by owner
  static auto* const all = new std::map<const Slave*, std::vector<Access>>;
  return *all;
}

// Recent access of each hash of its range: index, or beyond the log's end. A
// loop that repeats a transfer without synchronisation needs one entry.
std::array<std::size_t, 8192> recent{};

std::size_t& recent_of(const Access& access) {
  const std::uintptr_t key = access.begin / 4 * 31 +
                             access.slave->number() * 2 +
                             (access.write ? 1 : 0);
  return recent[key * 0x9e3779b97f4a7c15u >> 51];
}

bool is_repeated(const std::vector<Access>& all, const Access& access,
                 const std::shared_ptr<const Clock>& before) {
  const std::size_t index = recent_of(access);
  if (index >= all.size()) return false;
  const Access& old = all[index];
  return old.begin <= access.begin && access.end <= old.end &&
         old.slave == access.slave && old.write == access.write &&
         old.done == access.done && old.before == before &&
         (!access.write || (!old.direct && !access.direct));
}

bool comes_before(const Access& a, const Access& b) {
  return (*b.before)[a.slave->number()] >= a.done;
}

// is_uniform() returns whether both store the same value in the same variable.
bool is_uniform(const Access& a, const Access& b) {
  return a.direct && b.direct && a.begin == b.begin && a.end == b.end &&
         a.value == b.value;
}

bool clash(const Access& a, const Access& b) {
  return !is_uniform(a, b) && a.slave != b.slave && (a.write || b.write) &&
         !comes_before(a, b) && !comes_before(b, a);
}

void report_clash(const Access& first, const Access& second) {
  const Access& writer = second.write ? second : first;
  const Access& other = &writer == &second ? first : second;
  const std::uintptr_t begin = std::max(first.begin, second.begin);
  const std::uintptr_t end = std::min(first.end, second.end);
  report(
      {"overlap", writer.pc, writer.slave,
       "writes " + std::to_string(end - begin) + " bytes at " +
           describe(begin) + " that " + name_of(other.slave) +
           (other.write ? " writes" : " reads") +
           " too, with no synchronisation between them: the result depends on "
           "the order; give each slave its own part, or synchronise "
           "(ssync)",
       other.pc});
}

// Active holds the accesses that reach beyond the current position of the
// search.
class Active {
 public:
  void drop_before(std::uintptr_t begin) {
    accesses_.erase(
        std::remove_if(accesses_.begin(), accesses_.end(),
                       [=](const Access* t) { return t->end <= begin; }),
        accesses_.end());
  }
  // Linear search: few accesses overlap at one place, except reads by all
  // slaves, which are searched only for writes.
  const Access* first_clash(const Access& access) const {
    for (const Access* other : accesses_) {
      if (clash(*other, access)) return other;
    }
    return nullptr;
  }
  void add(const Access& access) { accesses_.push_back(&access); }

 private:
  std::vector<const Access*> accesses_;
};

// shares_word() returns whether two slaves store different bytes of one word,
// of which the machine writes all 4.
bool shares_word(const Access& a, const Access& b) {
  return a.direct && b.direct && a.write && b.write && a.slave != b.slave &&
         (a.end - 1) / 4 == b.begin / 4 && a.end <= b.begin &&
         !comes_before(a, b) && !comes_before(b, a);
}

void search(std::vector<Access>& all) {
  if (std::none_of(all.begin(), all.end(),
                   [](const Access& access) { return access.write; })) {
    all.clear();
  }
  std::sort(all.begin(), all.end(),
            [](const Access& a, const Access& b) { return a.begin < b.begin; });
  Active reads;
  Active writes;
  const Access* last_write = nullptr;
  const Access* last_direct = nullptr;
  for (const Access& access : all) {
    if (access.write) reads.drop_before(access.begin);
    writes.drop_before(access.begin);
    const Access* other = writes.first_clash(access);
    if (other == nullptr && access.write) other = reads.first_clash(access);
    if (other != nullptr) report_clash(*other, access);
    (access.write ? writes : reads).add(access);
    if (access.write && access.direct) {
      if (last_direct != nullptr && shares_word(*last_direct, access)) {
        report({"overlap", access.pc, access.slave,
                "stores " + describe(access.begin) +
                    ", a part of a 4-byte word of which " +
                    name_of(last_direct->slave) +
                    " stores another part: the machine writes whole words, so "
                    "one of the two is lost; use 4 bytes for each",
                last_direct->pc});
      }
      last_direct = &access;
    }
    if (!access.write || access.direct) continue;
    if (last_write != nullptr && last_write->slave != access.slave &&
        last_write->end <= access.begin &&
        (last_write->end - 1) / kLine == access.begin / kLine) {
      note({"shared-line", access.pc, access.slave,
            "puts " + std::to_string(access.end - access.begin) + " bytes at " +
                describe(access.begin) +
                " into a 128-byte line into which slave " +
                std::to_string(last_write->slave->id) +
                " puts another part: correct, but such a put costs 4 to 12 "
                "times as much as one of a whole line"});
    }
    last_write = &access;
  }
  all.clear();
}

}  // namespace

void log_access(Access access, const std::shared_ptr<const Clock>& before) {
  check_master_accesses(*access.slave, access.begin, access.end, access.write,
                        access.pc);
  const OwnAllocations own;
  const std::lock_guard<std::mutex> lock(mutex);
  std::vector<Access>& all = accesses();
  // Adjacent accesses of one call become one entry.
  if (!all.empty()) {
    Access& last = all.back();
    if (last.slave == access.slave && last.end == access.begin &&
        last.pc == access.pc && last.write == access.write &&
        last.done == access.done && last.before == before) {
      last.end = access.end;
      last.value = last.value * 31 + access.value;
      return;
    }
  }
  if (is_repeated(all, access, before)) return;
  if (all.size() >= kMostAccesses) search(all);
  recent_of(access) = all.size();
  access.before = before;
  all.push_back(std::move(access));
}

void log_ldm_access(const Slave& owner, const Access& access) {
  const OwnAllocations own;
  constexpr std::size_t kMost = 4096;
  const std::lock_guard<std::mutex> lock(mutex);
  std::vector<Access>& all = ldm_accesses()[&owner];
  for (const Access& other : all) {
    if (other.begin < access.end && access.begin < other.end &&
        clash(other, access)) {
      report_clash(other, access);
      break;
    }
  }
  // An older access that is ordered before this one and covered by it is no
  // longer needed: what conflicts with it conflicts with this one, too.
  const auto is_past = [&](const Access& other) {
    return access.begin <= other.begin && other.end <= access.end &&
           (access.write || !other.write) && comes_before(other, access);
  };
  all.erase(std::remove_if(all.begin(), all.end(), is_past), all.end());
  if (all.size() == kMost) all.erase(all.begin());
  all.push_back(access);
}

void log_transfer(const Transfer& t, const Slave& slave, const void* pc,
                  const std::shared_ptr<const Clock>& before,
                  std::uint32_t done) {
  if (t.kind == Transfer::Kind::remote_get) {
    const Slave* owner = ldm_owner(address_of(t.main));
    if (owner == nullptr || owner == &slave) return;
    check_of(*owner)->was_read(t, slave, done, pc);
    log_ldm_access(
        *owner, {address_of(t.main), address_of(t.main) + bytes_of(t), &slave,
                 pc, false, false, 0, before, done});
    return;
  }
  for_blocks(t, [&](std::byte* main, std::byte*, std::size_t bytes) {
    const std::uintptr_t begin = address_of(main);
    if (t.writes_main()) add_written({begin, begin + bytes, pc, &slave});
    log_access({begin, begin + bytes, &slave, pc, t.writes_main(), false, 0,
                nullptr, done},
               before);
  });
  if (t.writes_main()) args_written(t.main, t.extent());
}

void report_overlaps() {
  const std::lock_guard<std::mutex> lock(mutex);
  search(accesses());
  ldm_accesses().clear();
}

namespace {

constexpr std::size_t kMostWrites = std::size_t{1} << 20;

std::mutex writes_mutex;
std::atomic<bool> keeping{false};
bool too_many = false;
std::vector<Written>& writes() {
  static auto* const all = new std::vector<Written>;
  return *all;
}

auto key(const Written& w) {
  return std::make_tuple(w.begin, w.end, w.pc, w.slave);
}

bool same(const Written& a, const Written& b) { return key(a) == key(b); }

void tidy(std::vector<Written>& all) {
  std::sort(all.begin(), all.end(),
            [](const Written& a, const Written& b) { return key(a) < key(b); });
  all.erase(std::unique(all.begin(), all.end(), same), all.end());
}

}  // namespace

void keep_written(bool keep) {
  const std::lock_guard<std::mutex> lock(writes_mutex);
  writes().clear();
  too_many = false;
  keeping = keep;
}

bool keeps_written() noexcept {
  return keeping.load(std::memory_order_relaxed);
}

void add_written(const Written& range) {
  if (!keeps_written()) return;
  const OwnAllocations own;
  const std::lock_guard<std::mutex> lock(writes_mutex);
  std::vector<Written>& all = writes();
  if (!all.empty()) {
    Written& last = all.back();
    if (same(last, range)) return;
    if (last.end == range.begin && last.pc == range.pc &&
        last.slave == range.slave) {
      last.end = range.end;
      return;
    }
  }
  if (all.size() == kMostWrites) {
    tidy(all);
    if (all.size() > kMostWrites / 2) {
      too_many = true;
      keeping = false;
      all.clear();
      return;
    }
  }
  all.push_back(range);
}

void log_unknown(const Transfer& put, const Slave& slave) {
  if (!keeps_written()) return;
  for_blocks(put, [&](std::byte* main, std::byte* ldm, std::size_t bytes) {
    Shadow::for_unwritten(ldm, bytes, [&](std::size_t i) {
      const std::uintptr_t at = address_of(main) + i;
      add_written({at, at + 1, nullptr, &slave});
    });
  });
}

const std::vector<Written>* written() {
  const std::lock_guard<std::mutex> lock(writes_mutex);
  if (too_many) return nullptr;
  tidy(writes());
  return &writes();
}

namespace {

constexpr int kMostReads = 16 * 1024;  // entries of one slave in one launch

}  // namespace

void DirectLog::begin_launch() noexcept {
  ++launch_;
  logged_reads_ = 0;
}

void DirectLog::log_last_write() {
  add_written({write_.begin, write_.end, write_.pc, &slave_});
  log_access({write_.begin, write_.end, &slave_, write_.pc, true, true,
              hash(reinterpret_cast<const std::byte*>(write_.begin),
                   write_.end - write_.begin),
              nullptr, clock_.now()},
             clock_.snapshot());
  write_ = {};
}

void DirectLog::write(std::uintptr_t begin, std::uintptr_t end,
                      const void* pc) {
  write_ = {begin, end, pc};
  // The slave's reads of bytes that it has just written need no entry: a write
  // of the same bytes by another slave conflicts with this write.
  recent(begin) = {begin, end, clock_.now(), launch_};
}

void DirectLog::read(std::uintptr_t begin, std::uintptr_t end, const void* pc) {
  if (logged_reads_ >= kMostReads) return;
  if (begin == reads_.end && reads_.done == clock_.now() &&
      clock_.is_snapshot(reads_.before)) {
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
  if (reads_.end != 0 && logged_reads_ < kMostReads) {
    ++logged_reads_;
    log_access({reads_.begin, reads_.end, &slave_, reads_.pc, false, true, 0,
                nullptr, reads_.done},
               reads_.before);
  }
  reads_ = {};
}

}  // namespace swamp::sunway::check
