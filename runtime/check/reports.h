// What the checking emulation found. The library collects and hands out; only
// programs print.
#ifndef SWAMP_RUNTIME_CHECK_REPORTS_H_
#define SWAMP_RUNTIME_CHECK_REPORTS_H_

#include <cstddef>

#include "swamp/c_api.h"

namespace swamp::runtime {

// Where says which slave did what where in the sources.
struct Where {
  const char* file;
  int line;
  int core_group;
  int slave;
};

// report() collects one line: "file:line: category: cg 0 slave 12: text", the
// text formatted as in C. Categories are those of design 3.9. Any thread may
// call; it allocates nothing, because a slave cannot fail.
[[gnu::format(printf, 3, 4)]] void report(const Where& where,
                                          const char* category,
                                          const char* format, ...) noexcept;

std::size_t report_count() noexcept;

// set_report_callback() replaces the callback; it is called under a lock, one
// report at a time.
void set_report_callback(swamp_check_callback callback, void* user) noexcept;

}  // namespace swamp::runtime

#endif  // SWAMP_RUNTIME_CHECK_REPORTS_H_
