#include "toolchain/sunway/emulator/check/footprint.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <string>

#include "toolchain/sunway/emulator/check/location.h"
#include "toolchain/sunway/emulator/check/registry.h"
#include "toolchain/sunway/emulator/check/report.h"

namespace swamp::sunway::check {
namespace {

constexpr std::size_t kMostTouches = std::size_t{1} << 20;
constexpr std::uintptr_t kLine = 128;

std::mutex mutex;
std::vector<Touch>& touches() {
  static auto* const all = new std::vector<Touch>;
  return *all;
}

std::map<const Slave*, std::vector<Touch>>& ldm_touches() {  // by owner
  static auto* const all = new std::map<const Slave*, std::vector<Touch>>;
  return *all;
}

std::size_t number_of(const Slave& slave) {
  return static_cast<std::size_t>(slave.group * world().slaves_per_group() +
                                  slave.id);
}

bool comes_before(const Touch& a, const Touch& b) {
  return (*b.before)[number_of(*a.slave)] >= a.done;
}

// is_uniform() is a variable into which several slaves write the same.
bool is_uniform(const Touch& a, const Touch& b) {
  return a.direct && b.direct && a.begin == b.begin && a.end == b.end &&
         a.value == b.value;
}

bool clash(const Touch& a, const Touch& b) {
  return !is_uniform(a, b) && a.slave != b.slave && (a.write || b.write) &&
         !comes_before(a, b) && !comes_before(b, a);
}

void report_clash(const Touch& first, const Touch& second) {
  const Touch& writer = second.write ? second : first;
  const Touch& other = &writer == &second ? first : second;
  const std::uintptr_t begin = std::max(first.begin, second.begin);
  const std::uintptr_t end = std::min(first.end, second.end);
  report({"overlap", writer.pc, writer.slave,
          "writes " + std::to_string(end - begin) + " bytes at " +
              describe(begin) + " that cg " +
              std::to_string(other.slave->group) + " slave " +
              std::to_string(other.slave->id) +
              (other.write ? " writes" : " reads") +
              " too, with nothing between them: the result depends on who is "
              "first; give each slave its own part, or meet (ssync) between",
          other.pc});
}

// Active is the touches that reach beyond the place the search has come to.
class Active {
 public:
  void drop_before(std::uintptr_t begin) {
    touches_.erase(
        std::remove_if(touches_.begin(), touches_.end(),
                       [=](const Touch* t) { return t->end <= begin; }),
        touches_.end());
  }
  // first_clash() looks at few enough for lists that all slaves read.
  const Touch* first_clash(const Touch& touch) const {
    for (const Touch* other : touches_) {
      if (clash(*other, touch)) return other;
    }
    return nullptr;
  }
  void add(const Touch& touch) { touches_.push_back(&touch); }

 private:
  std::vector<const Touch*> touches_;
};

void search(std::vector<Touch>& all) {
  std::sort(all.begin(), all.end(),
            [](const Touch& a, const Touch& b) { return a.begin < b.begin; });
  Active reads;
  Active writes;
  const Touch* last_write = nullptr;
  for (const Touch& touch : all) {
    reads.drop_before(touch.begin);
    writes.drop_before(touch.begin);
    const Touch* other = writes.first_clash(touch);
    if (other == nullptr && touch.write) other = reads.first_clash(touch);
    if (other != nullptr) report_clash(*other, touch);
    (touch.write ? writes : reads).add(touch);
    if (!touch.write || touch.direct) continue;
    if (last_write != nullptr && last_write->slave != touch.slave &&
        last_write->end <= touch.begin &&
        (last_write->end - 1) / kLine == touch.begin / kLine) {
      note({"shared-line", touch.pc, touch.slave,
            "puts into the 128-byte line at " +
                describe(touch.begin / kLine * kLine) + " of which slave " +
                std::to_string(last_write->slave->id) +
                " puts another part: right, but each such put costs 4 to 12 "
                "times a whole line's"});
    }
    last_write = &touch;
  }
  all.clear();
}

}  // namespace

void add_touch(const Touch& touch) {
  const OwnAllocations own;
  const std::lock_guard<std::mutex> lock(mutex);
  std::vector<Touch>& all = touches();
  // Neighbours of one call make one touch.
  if (!all.empty()) {
    Touch& last = all.back();
    if (last.slave == touch.slave && last.end == touch.begin &&
        last.pc == touch.pc && last.write == touch.write &&
        last.done == touch.done && last.before == touch.before) {
      last.end = touch.end;
      last.value = last.value * 31 + touch.value;
      return;
    }
  }
  if (all.size() >= kMostTouches) search(all);
  all.push_back(touch);
}

void touch_ldm(const Slave& owner, const Touch& touch) {
  const OwnAllocations own;
  constexpr std::size_t kMost = 4096;
  const std::lock_guard<std::mutex> lock(mutex);
  std::vector<Touch>& all = ldm_touches()[&owner];
  for (const Touch& other : all) {
    if (other.begin < touch.end && touch.begin < other.end &&
        clash(other, touch)) {
      report_clash(other, touch);
      break;
    }
  }
  // What clashes with a touch that comes before this one clashes with this one.
  const auto is_past = [&](const Touch& other) {
    return touch.begin <= other.begin && other.end <= touch.end &&
           (touch.write || !other.write) && comes_before(other, touch);
  };
  all.erase(std::remove_if(all.begin(), all.end(), is_past), all.end());
  if (all.size() == kMost) all.erase(all.begin());
  all.push_back(touch);
}

void search_touches() {
  const std::lock_guard<std::mutex> lock(mutex);
  search(touches());
  ldm_touches().clear();
}

}  // namespace swamp::sunway::check
