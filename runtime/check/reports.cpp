#include "runtime/check/reports.h"

#include <cstdarg>
#include <cstdio>
#include <mutex>

#include "runtime/fork_guard.h"

namespace swamp::runtime {
namespace {

// All under fork_mutexes().reports.
struct Collector {
  std::size_t count = 0;
  swamp_check_callback callback = nullptr;
  void* user = nullptr;
};
Collector all;

std::lock_guard<std::mutex> locked() {
  return std::lock_guard<std::mutex>(fork_mutexes().reports);
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
  const auto lock = locked();
  ++all.count;
  if (all.callback != nullptr) all.callback(all.user, line);
}

std::size_t report_count() noexcept {
  const auto lock = locked();
  return all.count;
}

void set_report_callback(swamp_check_callback callback, void* user) noexcept {
  const auto lock = locked();
  all.callback = callback;
  all.user = user;
}

}  // namespace swamp::runtime
