// Who comes before whom: vector clocks over slaves, moved by meetings, locks,
// and what slaves send each other.
#ifndef SWAMP_RUNTIME_SUNWAY_CHECK_CLOCKS_H_
#define SWAMP_RUNTIME_SUNWAY_CHECK_CLOCKS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace swamp::sunway::check {

using Clock = std::vector<std::uint32_t>;  // of every slave of the machine

// SlaveClock is what one slave knows of the others' progress.
class SlaveClock {
 public:
  explicit SlaveClock(std::size_t slave, std::size_t slaves);

  // give() adds what the slave knows to what `object` tells; take() learns it.
  void give(const volatile void* object);
  void take(const volatile void* object);

  // retire() gives with memory that is freed; reuse() takes what was given with
  // memory that is allocated.
  void retire(std::uintptr_t begin, std::uintptr_t end);
  void reuse(std::uintptr_t begin, std::uintptr_t end);

  std::uint32_t now() const noexcept { return (*clock_)[slave_]; }
  // knows() is the last of another's clock that this slave has heard of.
  std::uint32_t knows(std::size_t slave) const noexcept {
    return (*clock_)[slave];
  }
  // snapshot() stays as it is while the clock goes on.
  std::shared_ptr<const Clock> snapshot() noexcept { return clock_; }
  // restart() begins a launch: everything before it is past.
  void restart();

 private:
  Clock& writable();

  std::size_t slave_;
  std::shared_ptr<Clock> clock_;
};

// forget_objects() ends a launch.
void forget_objects();

}  // namespace swamp::sunway::check

#endif  // SWAMP_RUNTIME_SUNWAY_CHECK_CLOCKS_H_
