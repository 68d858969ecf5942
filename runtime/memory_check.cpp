#include "runtime/memory_check.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <mutex>

#include "runtime/fork_cancel.h"

namespace swamp::runtime {
namespace {

// Protected by fork_mutexes().reports.
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

MainWindow::MainWindow(const SegmentTable& table, const void* partials,
                       std::size_t partials_bytes) {
  add(partials, partials_bytes, true, true);
  add(table.base, table.count * table.stride, true, false);
  for (std::size_t i = 0; i < table.operation_count; ++i) {
    const Operation& operation = table.operations[i];
    add(&operation, sizeof operation, true, false);
    add(operation.args, operation.args_bytes, true, false);
  }
  for (std::size_t i = 0; i < table.count; ++i) {
    const Segment& segment = table[i];
    for (int s = 0; s < segment.operation->operand_count; ++s) {
      const Operand& operand = segment.operation->operands[s];
      if (operand.unit_bytes == 0) continue;
      const std::size_t units =
          operand.access == Access::constant ? 1 : segment.count;
      const LinesOfUnits own = lines_of(operand, units);
      // Lines that touch are one range.
      const std::byte* begin = segment.data()[s];
      std::size_t bytes = 0;
      const auto add_range = [&] {
        add(begin, bytes, operand.access != Access::out,
            operand.access == Access::out || operand.access == Access::inout,
            i);
      };
      for (std::size_t at = 0; at < own.times * own.lines.count; ++at) {
        const std::byte* const line = segment.data()[s] +
                                      at / own.lines.count * operand.unit_step +
                                      at % own.lines.count * own.lines.step;
        if (line != begin + bytes) {
          add_range();
          begin = line;
          bytes = 0;
        }
        bytes += own.lines.bytes;
      }
      add_range();
    }
  }
  std::sort(ranges_.begin(), ranges_.end(),
            [](const Range& a, const Range& b) { return a.begin < b.begin; });
  const Range* farthest = nullptr;
  for (Range& range : ranges_) {
    if (farthest != nullptr && in_place(*farthest, range)) {
      if (range.writable) farthest = &range;
    } else if (farthest != nullptr && range.begin < farthest->end &&
               (range.writable || farthest->writable) && !overlap_.found &&
               range.segment != kNoSegment && farthest->segment != kNoSegment) {
      overlap_ = {true, std::min(range.segment, farthest->segment),
                  std::max(range.segment, farthest->segment)};
    }
    if (farthest == nullptr || range.end > farthest->end) farthest = &range;
    range.reach = farthest->end;
  }
}

// in_place() returns whether two ranges are one array that an operation only
// reads as one operand and only writes as another.
bool MainWindow::in_place(const Range& a, const Range& b) noexcept {
  return a.segment == b.segment && a.segment != kNoSegment &&
         a.begin == b.begin && a.end == b.end && a.readable != b.readable &&
         a.writable != b.writable;
}

void MainWindow::add(const void* address, std::size_t bytes, bool readable,
                     bool writable, std::size_t segment) {
  if (bytes == 0) return;
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  ranges_.push_back({begin, begin + bytes, 0, segment, readable, writable});
}

bool MainWindow::allows(const void* address, std::size_t bytes,
                        bool write) const noexcept {
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  auto next = std::upper_bound(
      ranges_.begin(), ranges_.end(), begin,
      [](std::uintptr_t at, const Range& range) { return at < range.begin; });
  // Arrays may overlap: one that contains the transfer is enough.
  while (next != ranges_.begin()) {
    --next;
    if (begin + bytes <= next->end && (next->writable || !write)) return true;
    if (next->reach < begin + bytes) break;
  }
  return false;
}

}  // namespace swamp::runtime
