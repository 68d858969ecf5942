#ifndef SWAMP_SUNWAY_EMULATOR_LDM_HEAP_H_
#define SWAMP_SUNWAY_EMULATOR_LDM_HEAP_H_

#include <cstddef>
#include <map>

namespace swamp::sunway {

// LdmHeap hands out pieces of what the static variables leave of an LDM; first
// fit, its books outside. Offsets are from the start of the heap.
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
  // holds() says whether [offset, offset + bytes) lies in one piece.
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

}  // namespace swamp::sunway

#endif  // SWAMP_SUNWAY_EMULATOR_LDM_HEAP_H_
