// What a child that runs a launch again and its parent say to each other.
#ifndef SWAMP_SUNWAY_EMULATOR_CHECK_CHANNEL_H_
#define SWAMP_SUNWAY_EMULATOR_CHECK_CHANNEL_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "toolchain/sunway/emulator/check/report.h"
#include "toolchain/sunway/emulator/check/written.h"

namespace swamp::sunway::check {

// Use is what of a slave's run may rightly differ from one order to another.
struct Use {
  std::uint64_t clock_reads = 0;
  std::uint64_t tickets = 0;
  bool operator==(const Use& other) const noexcept {
    return clock_reads == other.clock_reads && tickets == other.tickets;
  }
};

// Outcome is what a run of a launch came to. Places and slaves have the same
// addresses in parent and child.
struct Outcome {
  enum class End { none, done, signal };
  End end = End::none;  // none: too late, or it could not be run
  int signal = 0;
  std::vector<Finding> findings;  // no notes
  std::vector<Written> written;
  std::vector<Use> uses;  // of all slaves, by group and number
};

// uses() is what the slaves of this process did.
std::vector<Use> uses();

// The child's side.
void send_finding(int channel, const Finding& finding);
void send_end(int channel);
// serve_bytes() answers read_bytes() until the parent has had enough.
[[noreturn]] void serve_bytes(int channel);

// The parent's. receive() waits until the child has sent its end or the time
// (in nanoseconds()) is past.
Outcome receive(int channel, unsigned long deadline);
// read_bytes() is what the child has in its memory at an address. Returns how
// many of the bytes there are, or -1 if the child is gone.
long read_bytes(int channel, std::uintptr_t address, std::size_t bytes,
                std::byte* out);
// read_own_bytes() is the same of this process, where memory may be unmapped.
long read_own_bytes(std::uintptr_t address, std::size_t bytes, std::byte* out);

}  // namespace swamp::sunway::check

#endif  // SWAMP_SUNWAY_EMULATOR_CHECK_CHANNEL_H_
