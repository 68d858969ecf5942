// What the slaves of a launch read and write in main memory, and which accesses
// conflict.
#ifndef SWAMP_SUNWAY_EMULATOR_CHECK_ACCESS_LOG_H_
#define SWAMP_SUNWAY_EMULATOR_CHECK_ACCESS_LOG_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "toolchain/sunway/emulator/check/clocks.h"
#include "toolchain/sunway/emulator/check/ldm_check.h"
#include "toolchain/sunway/emulator/machine.h"
#include "toolchain/sunway/emulator/transfer.h"

namespace swamp::sunway::check {

// Access is one access to contiguous memory.
struct Access {
  std::uintptr_t begin, end;
  const Slave* slave;
  const void* pc;
  bool write;
  bool direct;          // by the slave's own instruction, not by a transfer
  std::uint64_t value;  // of a direct write, hashed
  std::shared_ptr<const Clock> before;  // what happened before its start
  std::uint32_t done;                   // the slave's clock when it ended
};

// log_access() adds an access, whose clock `before` it copies only if the log
// does not have it already. A full log is searched and cleared.
void log_access(Access access, const std::shared_ptr<const Clock>& before);

// log_ldm_access() adds an access by one slave to the LDM of another and
// reports a conflict.
void log_ldm_access(const Slave& owner, const Access& access);

// report_overlaps() reports conflicts and clears the log, after all launches
// have been joined.
void report_overlaps();

// log_transfer() logs the accesses of a transfer of `slave`, which began when
// its clock was `before` and ended at `done`.
void log_transfer(const Transfer& transfer, const Slave& slave, const void* pc,
                  const std::shared_ptr<const Clock>& before,
                  std::uint32_t done);

// hash() is FNV-1a.
inline std::uint64_t hash(const std::byte* data, std::size_t bytes) noexcept {
  std::uint64_t sum = 0xcbf29ce484222325u;
  for (std::size_t i = 0; i < bytes; ++i) {
    sum = (sum ^ static_cast<std::uint64_t>(data[i])) * 0x100000001b3u;
  }
  return sum;
}

// The write list: what the slaves of a launch wrote to main memory. It is kept
// only while runs of a launch are compared.

// Written is one range and the place of the write.
struct Written {
  std::uintptr_t begin, end;
  const void* pc;  // nullptr: the value is undefined, for example padding
  const Slave* slave;
};

// keep_written() starts with an empty list, or stops recording.
void keep_written(bool keep);
bool keeps_written() noexcept;
void add_written(const Written& range);
// log_unknown() adds the bytes that a put sends although they were never
// written.
void log_unknown(const Transfer& put, const Slave& slave);
// written() returns the sorted list, or nullptr if it became too large.
const std::vector<Written>* written();

// DirectLog collects the loads and stores of main memory by one slave's own
// instructions, and adds them to the log.
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
  void log_write() {
    if (write_.end != 0) log_last_write();
  }
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
  void log_last_write();
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

#endif  // SWAMP_SUNWAY_EMULATOR_CHECK_ACCESS_LOG_H_
