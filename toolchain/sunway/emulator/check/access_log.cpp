#include "toolchain/sunway/emulator/check/access_log.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <string>
#include <tuple>

#include "toolchain/sunway/emulator/check/location.h"
#include "toolchain/sunway/emulator/check/registry.h"
#include "toolchain/sunway/emulator/check/report.h"

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
  report({"overlap", writer.pc, writer.slave,
          "writes " + std::to_string(end - begin) + " bytes at " +
              describe(begin) + " that cg " +
              std::to_string(other.slave->group) + " slave " +
              std::to_string(other.slave->id) +
              (other.write ? " writes" : " reads") +
              " too, with nothing between them: the result depends on who is "
              "first; give each slave its own part, or synchronise (ssync) "
              "between",
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

void search(std::vector<Access>& all) {
  std::sort(all.begin(), all.end(),
            [](const Access& a, const Access& b) { return a.begin < b.begin; });
  Active reads;
  Active writes;
  const Access* last_write = nullptr;
  for (const Access& access : all) {
    reads.drop_before(access.begin);
    writes.drop_before(access.begin);
    const Access* other = writes.first_clash(access);
    if (other == nullptr && access.write) other = reads.first_clash(access);
    if (other != nullptr) report_clash(*other, access);
    (access.write ? writes : reads).add(access);
    if (!access.write || access.direct) continue;
    if (last_write != nullptr && last_write->slave != access.slave &&
        last_write->end <= access.begin &&
        (last_write->end - 1) / kLine == access.begin / kLine) {
      note({"shared-line", access.pc, access.slave,
            "puts into the 128-byte line at " +
                describe(access.begin / kLine * kLine) + " of which slave " +
                std::to_string(last_write->slave->id) +
                " puts another part: right, but each such put costs 4 to 12 "
                "times a whole line's"});
    }
    last_write = &access;
  }
  all.clear();
}

}  // namespace

void log_access(const Access& access) {
  const OwnAllocations own;
  const std::lock_guard<std::mutex> lock(mutex);
  std::vector<Access>& all = accesses();
  // Adjacent accesses of one call become one entry.
  if (!all.empty()) {
    Access& last = all.back();
    if (last.slave == access.slave && last.end == access.begin &&
        last.pc == access.pc && last.write == access.write &&
        last.done == access.done && last.before == access.before) {
      last.end = access.end;
      last.value = last.value * 31 + access.value;
      return;
    }
  }
  if (all.size() >= kMostAccesses) search(all);
  all.push_back(access);
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

const std::vector<Written>* written() {
  const std::lock_guard<std::mutex> lock(writes_mutex);
  if (too_many) return nullptr;
  tidy(writes());
  return &writes();
}

}  // namespace swamp::sunway::check
