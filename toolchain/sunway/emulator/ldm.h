#ifndef SWAMP_SUNWAY_EMULATOR_LDM_H_
#define SWAMP_SUNWAY_EMULATOR_LDM_H_

#include <cstddef>
#include <map>

namespace swamp::sunway {

struct Slave;

// LdmHeap allocates the part of an LDM that static variables leave free: first
// fit, with the bookkeeping outside the LDM. Offsets are from the start of the
// heap.
class LdmHeap {
 public:
  static constexpr std::size_t kAlignment = 64;  // of the widest vector
  static constexpr std::size_t kNone = ~std::size_t{0};

  void set_capacity(std::size_t bytes) noexcept { capacity_ = bytes; }
  // allocate() returns an offset, or kNone.
  std::size_t allocate(std::size_t bytes);
  // release() returns the bytes that were asked for at `offset`, or kNone.
  std::size_t release(std::size_t offset);
  void release_all() { pieces_.clear(); }

  // largest() is the largest piece that allocate() would give.
  std::size_t largest() const;
  // holds() returns whether [offset, offset + bytes) lies in one piece.
  bool holds(std::size_t offset, std::size_t bytes) const;
  std::size_t in_use() const;
  // high_water() is how far the pieces have reached since the last restart.
  void restart_high_water() noexcept;
  std::size_t high_water() const noexcept { return high_water_; }

 private:
  std::size_t capacity_ = 0;
  std::size_t high_water_ = 0;
  std::map<std::size_t, std::size_t> pieces_;  // offset -> bytes asked for
};

// shared_ldm_bytes() is what the program's __thread_local_share variables take
// of each slave's LDM: the machine gives 4, 8, 16... 128 KiB of every one.
std::size_t shared_ldm_bytes();

// begin_ldm_peak() and end_ldm_peak() enclose a slave's part of a launch and
// record how much LDM it needed.
void begin_ldm_peak(Slave& slave);
void end_ldm_peak(const Slave& slave);

// print_ldm_peaks() says, once for every function that was spawned, what its
// slaves needed at most: SWAMP_PREDICT=1 on stderr, SWAMP_CHECK_REPORT in the
// file. The stack is known in check mode only.
void print_ldm_peaks();

}  // namespace swamp::sunway

#endif  // SWAMP_SUNWAY_EMULATOR_LDM_H_
