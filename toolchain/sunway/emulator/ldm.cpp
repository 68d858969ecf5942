// The heap of ldm_malloc(): a map of the pieces in use by offset, in which a
// new piece takes the first gap that is large enough, below the stack.
#include "toolchain/sunway/emulator/ldm.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <string>

#include "toolchain/sunway/emulator/debug_info.h"
#include "toolchain/sunway/emulator/host_process.h"
#include "toolchain/sunway/emulator/machine.h"

namespace swamp::sunway {
namespace {

std::size_t rounded(std::size_t bytes) {
  const std::size_t up = (bytes + LdmHeap::kAlignment - 1) /
                         LdmHeap::kAlignment * LdmHeap::kAlignment;
  return std::max(up, LdmHeap::kAlignment);
}

}  // namespace

std::size_t LdmHeap::allocate(std::size_t bytes, std::size_t stack) {
  const std::size_t capacity = capacity_ - std::min(stack, capacity_);
  std::size_t at = 0;
  for (const auto& [offset, piece_bytes] : pieces_) {
    if (offset - at >= rounded(bytes)) break;
    at = offset + rounded(piece_bytes);
  }
  // The last piece is not rounded, so that all of LDM can be allocated.
  if (at > capacity || bytes > capacity - at) return kNone;
  pieces_[at] = bytes;
  high_water_ = std::max(high_water_, at + bytes);
  return at;
}

std::size_t LdmHeap::release(std::size_t offset) {
  const auto piece = pieces_.find(offset);
  if (piece == pieces_.end()) return kNone;
  const std::size_t bytes = piece->second;
  pieces_.erase(piece);
  return bytes;
}

void LdmHeap::restart_high_water() noexcept {
  high_water_ =
      pieces_.empty() ? 0 : pieces_.rbegin()->first + pieces_.rbegin()->second;
}

std::size_t LdmHeap::largest(std::size_t stack) const {
  const std::size_t capacity = capacity_ - std::min(stack, capacity_);
  std::size_t at = 0;
  std::size_t best = 0;
  for (const auto& [offset, piece_bytes] : pieces_) {
    best = std::max(best, offset - std::min(at, offset));
    at = offset + rounded(piece_bytes);
  }
  return std::max(best, capacity - std::min(at, capacity));
}

std::size_t LdmHeap::in_use() const {
  std::size_t sum = 0;
  for (const auto& piece : pieces_) sum += piece.second;
  return sum;
}

bool LdmHeap::holds(std::size_t offset, std::size_t bytes) const {
  auto next = pieces_.upper_bound(offset);
  if (next == pieces_.begin()) return false;
  --next;
  return offset + bytes <= next->first + next->second;
}

}  // namespace swamp::sunway

// The begin and end of the __thread_local_share variables, in programs that
// have some.
extern "C" const char* const swamp_shared_ldm_bounds[2] __attribute__((weak));

namespace swamp::sunway {

std::size_t shared_ldm_bytes() {
  constexpr std::size_t kLeast = 4096;
  constexpr std::size_t kMost = 128 * 1024;
  // volatile: otherwise the compiler assumes that an array has an address.
  const char* const* volatile bounds = swamp_shared_ldm_bounds;
  if (bounds == nullptr) return 0;
  const auto bytes = static_cast<std::size_t>(bounds[1] - bounds[0]);
  const auto slaves = static_cast<std::size_t>(settings().slaves_per_group);
  if (bytes == 0) return 0;
  std::size_t each = kLeast;
  while (each * slaves < bytes && each < kMost) each *= 2;
  if (each * slaves < bytes) {
    fail(1, "shared LDM variables (__thread_local_share) take " +
                std::to_string(bytes) + " bytes; " + std::to_string(slaves) +
                " slaves can share " + std::to_string(kMost * slaves));
  }
  return each;
}

namespace {

struct Peak {
  std::size_t heap = 0;
  std::size_t stack = 0;
};

std::mutex mutex;
std::map<SlaveFunction, Peak>& peaks() {
  static auto* const all = new std::map<SlaveFunction, Peak>;
  return *all;
}

bool prints_peaks() {
  return settings().predict || !settings().trace_file.empty();
}
bool is_asked() { return prints_peaks() || !settings().report_file.empty(); }

void append_json(const std::string& kernel, const Peak& peak) {
  const Machine& all = machine();
  append_to_report_file(
      "{\"category\":\"ldm-peak\",\"note\":true,\"kernel\":\"" + kernel +
      "\",\"static\":" + std::to_string(all.static_bytes) + ",\"heap\":" +
      std::to_string(peak.heap) + ",\"stack\":" + std::to_string(peak.stack) +
      ",\"ldm\":" + std::to_string(all.ldm_bytes) + "}");
}

void print_peak(const std::string& kernel, const Peak& peak) {
  const Machine& all = machine();
  const std::size_t sum = all.static_bytes + peak.heap + peak.stack;
  print_line("swamp: ldm: " + kernel + ": " + std::to_string(sum) + " of " +
             std::to_string(all.ldm_bytes) + " bytes: static " +
             std::to_string(all.static_bytes) + ", ldm_malloc " +
             std::to_string(peak.heap) +
             (all.check
                  ? ", stack " + std::to_string(peak.stack)
                  : ", stack not counted (only with SWAMP_TRANSFER=check)"));
}

}  // namespace

void begin_ldm_peak(Slave& slave) { slave.heap.restart_high_water(); }

void end_ldm_peak(const Slave& slave) {
  if (!is_asked()) return;
  const std::lock_guard<std::mutex> lock(mutex);
  Peak& peak = peaks()[slave.function];
  peak.heap = std::max(peak.heap, slave.heap.high_water());
  if (slave.observer) {
    peak.stack = std::max(peak.stack, slave.observer->stack_bytes());
  }
}

void print_ldm_peaks() {
  if (!is_asked()) return;
  const std::lock_guard<std::mutex> lock(mutex);
  for (const auto& [function, peak] : peaks()) {
    const std::string kernel =
        name_of_function(reinterpret_cast<const void*>(function));
    if (prints_peaks()) print_peak(kernel, peak);
    append_json(kernel, peak);
  }
}

}  // namespace swamp::sunway
