// Who comes before whom: vector clocks over slaves, moved by meetings, locks,
// and what slaves send each other.
#ifndef SWAMP_SUNWAY_EMULATOR_CHECK_CLOCKS_H_
#define SWAMP_SUNWAY_EMULATOR_CHECK_CLOCKS_H_

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
  // `number` is which of its meetings or messages is meant: a fast slave may be
  // at the next one before a slow one has left this one.
  void give(const volatile void* object, std::uint64_t number = 0);
  void take(const volatile void* object, std::uint64_t number = 0);
  // take_messages() learns the messages up to `last`, of which this slave is
  // the only receiver, and forgets them.
  void take_messages(const volatile void* object, std::uint64_t last);

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
  // restart() begins a launch: it knows what the masters know.
  void restart();
  // joined() tells the masters all that this slave did.
  void joined();

 private:
  Clock& writable();

  std::size_t slave_;
  std::uint64_t epoch_ = 0;
  std::shared_ptr<Clock> clock_;
};

// What host threads do to each other is not seen; so all of them together know
// what any of them has learnt. masters_give() and masters_take() are a master's
// part in a lock or a meeting.
void masters_give(const volatile void* object, std::uint64_t number);
void masters_take(const volatile void* object, std::uint64_t number);

// forget_objects() is for when nothing runs and all has been compared.
void forget_objects();

}  // namespace swamp::sunway::check

#endif  // SWAMP_SUNWAY_EMULATOR_CHECK_CLOCKS_H_
