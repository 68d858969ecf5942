// The access log: what the slaves of a launch read and write in main memory,
// and which accesses conflict.
#ifndef SWAMP_SUNWAY_EMULATOR_CHECK_ACCESS_LOG_H_
#define SWAMP_SUNWAY_EMULATOR_CHECK_ACCESS_LOG_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "toolchain/sunway/emulator/check/clocks.h"
#include "toolchain/sunway/emulator/machine.h"

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

// log_access() adds an access. A full log is searched and cleared.
void log_access(const Access& access);

// log_ldm_access() adds an access by one slave to the LDM of another and
// reports a conflict.
void log_ldm_access(const Slave& owner, const Access& access);

// report_overlaps() reports conflicts and clears the log, after all launches
// have been joined.
void report_overlaps();

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
// written() returns the sorted list, or nullptr if it became too large.
const std::vector<Written>* written();

}  // namespace swamp::sunway::check

#endif  // SWAMP_SUNWAY_EMULATOR_CHECK_ACCESS_LOG_H_
