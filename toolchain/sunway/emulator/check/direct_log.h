// A slave's own loads and stores of main memory, on their way to the access
// log.
#ifndef SWAMP_SUNWAY_EMULATOR_CHECK_DIRECT_LOG_H_
#define SWAMP_SUNWAY_EMULATOR_CHECK_DIRECT_LOG_H_

#include <array>
#include <cstdint>
#include <memory>

#include "toolchain/sunway/emulator/check/clocks.h"
#include "toolchain/sunway/emulator/machine.h"

namespace swamp::sunway::check {

class DirectLog {
 public:
  DirectLog(const Slave& slave, SlaveClock& clock)
      : slave_(slave), clock_(clock) {}

  void begin_launch() noexcept;
  // read() is for a read of memory that others may write. Adjacent reads become
  // one entry; a read that repeats a recent one since the last synchronisation
  // is left out.
  void read(std::uintptr_t begin, std::uintptr_t end, const void* pc);
  void log_reads();
  // write() is called before the store: the entry, which holds a hash of the
  // value, is made by the next log_write().
  void write(std::uintptr_t begin, std::uintptr_t end, const void* pc);
  void log_write();
  // drop_write() is for a store that orders slaves and is not compared.
  void drop_write() noexcept { write_ = {}; }

 private:
  struct Write {
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;  // 0: none
    const void* pc = nullptr;
  };
  struct Reads {
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;  // 0: none
    const void* pc = nullptr;
    std::shared_ptr<const Clock> before;
    std::uint32_t done = 0;
  };
  struct Recent {
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
    std::uint32_t done = 0;  // the slave's clock then
    std::uint64_t launch = 0;
  };
  Recent& recent(std::uintptr_t begin) noexcept {
    return recent_[begin / 8 % recent_.size()];
  }

  const Slave& slave_;
  SlaveClock& clock_;
  Write write_;
  Reads reads_;
  int logged_reads_ = 0;  // of this launch
  std::array<Recent, 1024> recent_{};
  std::uint64_t launch_ = 0;
};

}  // namespace swamp::sunway::check

#endif  // SWAMP_SUNWAY_EMULATOR_CHECK_DIRECT_LOG_H_
