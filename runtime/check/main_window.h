#ifndef SWAMP_RUNTIME_CHECK_MAIN_WINDOW_H_
#define SWAMP_RUNTIME_CHECK_MAIN_WINDOW_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/job.h"

namespace swamp::runtime {

// MainWindow is the main memory that a spawn's transfers may touch: exactly its
// operands, its segment table, its operations, their arguments and its partial
// results.
class MainWindow {
 public:
  explicit MainWindow(const SegmentTable& table, const void* partials = nullptr,
                      std::size_t partials_bytes = 0);

  // allows() says whether [address, address + bytes) lies inside one array that
  // may be read (or, `write`, written).
  bool allows(const void* address, std::size_t bytes,
              bool write) const noexcept;

  // Overlap names two segments whose arrays share bytes that one of them
  // writes: what comes out would depend on the order of the slaves.
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
    bool writable;
  };
  void add(const void* address, std::size_t bytes, bool writable,
           std::size_t segment = kNoSegment);

  std::vector<Range> ranges_;  // by begin
  Overlap overlap_;
};

}  // namespace swamp::runtime

#endif  // SWAMP_RUNTIME_CHECK_MAIN_WINDOW_H_
