// The memory of an LDM: its heap, its shared part, and how much of it is used.
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
  // allocate() returns an offset, or kNone; `stack` is how many bytes of LDM
  // the slave's stack takes.
  std::size_t allocate(std::size_t bytes, std::size_t stack);
  // release() returns the size that was requested for `offset`, or kNone.
  std::size_t release(std::size_t offset);
  void release_all() {
    pieces_.clear();
    in_use_ = 0;
  }

  // largest() returns the size of the largest piece that allocate() can return.
  std::size_t largest(std::size_t stack) const;
  // holds() returns whether [offset, offset + bytes) lies in one piece.
  bool holds(std::size_t offset, std::size_t bytes) const;
  std::size_t in_use() const noexcept { return in_use_; }
  // high_water() returns the highest end of a piece since the last restart.
  void restart_high_water() noexcept;
  std::size_t high_water() const noexcept { return high_water_; }

 private:
  std::size_t capacity_ = 0;
  std::size_t in_use_ = 0;
  std::size_t high_water_ = 0;
  std::map<std::size_t, std::size_t> pieces_;  // offset -> bytes requested
};

// shared_ldm_bytes() returns how many bytes of each slave's LDM the program's
// __thread_local_share variables take: the machine reserves 4, 8, ... or 128
// KiB in every LDM.
std::size_t shared_ldm_bytes();

}  // namespace swamp::sunway

#endif  // SWAMP_SUNWAY_EMULATOR_LDM_H_
