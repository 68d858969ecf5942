#include "toolchain/sunway/emulator/check/written.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <tuple>

#include "toolchain/sunway/emulator/check/registry.h"

namespace swamp::sunway::check {
namespace {

constexpr std::size_t kMost = std::size_t{1} << 20;

std::mutex mutex;
std::atomic<bool> keeping{false};
bool too_many = false;
std::vector<Written>& list() {
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
  const std::lock_guard<std::mutex> lock(mutex);
  list().clear();
  too_many = false;
  keeping = keep;
}

bool keeps_written() noexcept {
  return keeping.load(std::memory_order_relaxed);
}

void add_written(const Written& range) {
  if (!keeps_written()) return;
  const OwnAllocations own;
  const std::lock_guard<std::mutex> lock(mutex);
  std::vector<Written>& all = list();
  if (!all.empty()) {
    Written& last = all.back();
    if (same(last, range)) return;
    if (last.end == range.begin && last.pc == range.pc &&
        last.slave == range.slave) {
      last.end = range.end;
      return;
    }
  }
  if (all.size() == kMost) {
    tidy(all);
    if (all.size() > kMost / 2) {
      too_many = true;
      keeping = false;
      all.clear();
      return;
    }
  }
  all.push_back(range);
}

const std::vector<Written>* written() {
  const std::lock_guard<std::mutex> lock(mutex);
  if (too_many) return nullptr;
  tidy(list());
  return &list();
}

}  // namespace swamp::sunway::check
