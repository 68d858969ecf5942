#include "runtime/check/reports.h"

#include <cstdarg>
#include <cstdio>
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

void report(const Where& where, const char* category, const char* format,
            ...) noexcept {
  char text[256];
  std::va_list args;
  va_start(args, format);
  std::vsnprintf(text, sizeof text, format, args);
  va_end(args);
  char line[512];
  std::snprintf(line, sizeof line, "%s:%d: %s: cg %d slave %d: %s", where.file,
                where.line, category, where.core_group, where.slave, text);
  Collector& all = collector();
  const std::lock_guard<std::mutex> lock(all.mutex);
  ++all.count;
  if (all.callback != nullptr) all.callback(all.user, line);
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
