#include "runtime/check/reports.h"

#include <mutex>

namespace swamp::runtime {
namespace {

struct Collector {
  std::mutex mutex;
  std::size_t count = 0;
  swamp_check_callback callback = nullptr;
  void* user = nullptr;
};

// Never destroyed: a slave may report while the process exits.
Collector& collector() {
  static Collector* instance = new Collector;
  return *instance;
}

}  // namespace

void report(const Where& where, const char* category, const std::string& text) {
  const std::string line =
      std::string(where.file) + ":" + std::to_string(where.line) + ": " +
      category + ": cg " + std::to_string(where.core_group) + " slave " +
      std::to_string(where.slave) + ": " + text;
  Collector& all = collector();
  const std::lock_guard<std::mutex> lock(all.mutex);
  ++all.count;
  if (all.callback != nullptr) all.callback(all.user, line.c_str());
}

std::size_t report_count() noexcept {
  Collector& all = collector();
  const std::lock_guard<std::mutex> lock(all.mutex);
  return all.count;
}

void set_report_callback(swamp_check_callback callback, void* user) noexcept {
  Collector& all = collector();
  const std::lock_guard<std::mutex> lock(all.mutex);
  all.callback = callback;
  all.user = user;
}

}  // namespace swamp::runtime
