// Runs a launch again in child processes: from the same memory, but with other
// orders of the slaves and other times of transfers. The slaves must leave the
// same bits in main memory.
#ifndef SWAMP_SUNWAY_EMULATOR_CHECK_REPLAY_H_
#define SWAMP_SUNWAY_EMULATOR_CHECK_REPLAY_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "toolchain/sunway/emulator/check/access_log.h"
#include "toolchain/sunway/emulator/machine.h"
#include "toolchain/sunway/emulator/report.h"

namespace swamp::sunway::check {

// start_replays() is called by the master's join of the groups of `mask`,
// before it waits and under the machine's mutex. Only a launch none of whose
// slaves has begun is run again. It also returns in the children, which
// continue with the join.
void start_replays(unsigned mask);

// end_replays() is called at the end of a launch and reports differences. It
// does not return in a child.
void end_replays();

// print_replays() prints one line: which launches were run again, and why
// others were not.
void print_replays();

// What follows is used by the sources of the replay only: the channel between a
// child and its parent, and the comparison of the two runs.

// Usage is what may legally differ between runs of a slave in two orders.
struct Usage {
  std::uint64_t clock_reads = 0;
  std::uint64_t atomic_operations = 0;
  bool operator==(const Usage& other) const noexcept {
    return clock_reads == other.clock_reads &&
           atomic_operations == other.atomic_operations;
  }
};

// Outcome is the result of a run of a launch. Places and slaves have the same
// addresses in parent and child.
struct Outcome {
  bool done = false;              // false: too late, or it could not be run
  std::vector<Finding> findings;  // no notes
  std::vector<Written> written;
  std::vector<Usage> usages;  // of all slaves, by group and number
};

// usages() returns the usage of all slaves of this process.
std::vector<Usage> usages();

// receive() waits until the child has sent its end or has taken `most`
// nanoseconds of CPU time.
Outcome receive(int channel, pid_t child, unsigned long most);
// read_bytes() reads the child's memory. Returns how many of the bytes are
// mapped, or -1 if the child has ended.
long read_bytes(int channel, std::uintptr_t address, std::size_t bytes,
                std::byte* out);
// read_own_bytes() does the same in this process.
long read_own_bytes(std::uintptr_t address, std::size_t bytes, std::byte* out);

// Difference is one word of 4 bytes that two runs left different, with its last
// writer in each run; at least one of them is known.
struct Difference {
  std::uintptr_t address = 0;
  std::uintptr_t first = 0;  // byte that differs
  std::uint32_t here = 0, there = 0;
  const Written* writer = nullptr;  // here
  const Written* other = nullptr;
  bool own = true;  // written by one slave only, which used locks or atomics
  bool is_share = false;  // a part of a sum that is the same in both runs
};

// find_differences() compares the memory of this process and a child where
// either of them wrote. It ignores bytes that no instruction of the program
// wrote, and the slaves' partial sums of shared work, if the whole sum is the
// same.
std::vector<Difference> find_differences(const std::vector<Written>& here,
                                         const Outcome& there, int channel);

// order_of_slaves() describes the order of the slaves and transfers of a run,
// for a report.
std::string order_of_slaves(const Order& order);

void report_schedule(const std::vector<Difference>& found, const Order& order);

// report_crash() reports a run that a signal ended.
void report_crash(int signal, const Order& order);

// begin_child() waits for the parent's permission and makes the launched slaves
// ready to run in `order`. What they do has no effect outside the child.
void begin_child(int channel, const Order& order, pid_t parent);

// finish_child() is called after the slaves have ended.
[[noreturn]] void finish_child();

}  // namespace swamp::sunway::check

#endif  // SWAMP_SUNWAY_EMULATOR_CHECK_REPLAY_H_
