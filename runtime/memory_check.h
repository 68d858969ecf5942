// Transfer mode check: which main memory a launch may access, and the reports.
// The library collects reports and passes them on; only programs print.
#ifndef SWAMP_RUNTIME_MEMORY_CHECK_H_
#define SWAMP_RUNTIME_MEMORY_CHECK_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/launch.h"
#include "swamp/c_api.h"

namespace swamp::runtime {

// Where is the position of a report: source line and slave.
struct Where {
  const char* file;
  int line;
  int core_group;
  int slave;
};

// report() counts one report and passes it to the callback as one line:
// "file:line: category: cg 0 slave 12: text"; `format` is a C format string.
// The README of toolchain/sunway lists the categories. Any thread may call.
// Allocates nothing, because a slave cannot fail.
[[gnu::format(printf, 3, 4)]] void report(const Where& where,
                                          const char* category,
                                          const char* format, ...) noexcept;

std::size_t report_count() noexcept;

// set_report_callback() replaces the callback; it is called under a lock.
void set_report_callback(swamp_check_callback callback, void* user) noexcept;

// MainWindow is the main memory that the transfers of a launch may access: its
// operands, segment table, operations, arguments and partial results.
class MainWindow {
 public:
  explicit MainWindow(const SegmentTable& table, const void* partials = nullptr,
                      std::size_t partials_bytes = 0);

  // allows() returns whether [address, address + bytes) lies inside one array
  // that may be read (or, `write`, written).
  bool allows(const void* address, std::size_t bytes,
              bool write) const noexcept;

  // Overlap names two segments whose arrays share bytes that one of them
  // writes, so that the result would depend on the order of the slaves. An
  // operand that is only written may be the same array as one that is only
  // read, of the same segment.
  struct Overlap {
    bool found = false;
    std::size_t first = 0;
    std::size_t second = 0;
  };
  const Overlap& overlap() const noexcept { return overlap_; }

 private:
  static constexpr std::size_t kNoSegment = ~std::size_t{0};
  struct Range {
    std::uintptr_t begin, end;
    std::uintptr_t reach;  // the highest end of this and all ranges before it
    std::size_t segment;
    bool readable;
    bool writable;
  };
  static bool in_place(const Range& a, const Range& b) noexcept;
  void add(const void* address, std::size_t bytes, bool readable, bool writable,
           std::size_t segment = kNoSegment);

  std::vector<Range> ranges_;  // by begin
  Overlap overlap_;
};

}  // namespace swamp::runtime

#endif  // SWAMP_RUNTIME_MEMORY_CHECK_H_
