// Reports of programs that swcc links: one line each on stderr, and in
// SWAMP_CHECK_REPORT=FILE.jsonl for tools.
#ifndef SWAMP_SUNWAY_EMULATOR_REPORT_H_
#define SWAMP_SUNWAY_EMULATOR_REPORT_H_

#include <string>

#include "toolchain/sunway/emulator/machine.h"

namespace swamp::sunway {

// name_of() names a slave, "cg 0 slave 3", or nullptr, "master".
inline std::string name_of(const Slave* slave) {
  if (slave == nullptr) return "master";
  return "cg " + std::to_string(slave->group) + " slave " +
         std::to_string(slave->id);
}

struct Finding {
  const char* category;
  const void* pc;      // where the offending call returns to
  const Slave* slave;  // nullptr: the master
  std::string text;
  const void* clash = nullptr;  // the other place, named in the text
};

// report() prints a finding once for every category and pair of places, because
// usually all slaves have the same bug.
void report(const Finding& finding);
// note() is a report that begins with "note: " after the place and leaves the
// exit code alone.
void note(const Finding& finding);

// reported() returns whether report() was called.
bool reported() noexcept;

// is_reporting() returns whether a finding is being formatted, which takes a
// while because the debug information is read.
bool is_reporting() noexcept;

// Forward receives the findings of a child that runs a launch again, instead of
// the output.
using Forward = void (*)(const Finding& finding, bool is_note);
void forward_findings(Forward forward);

// print_totals() prints how many findings were not printed because they repeat
// others.
void print_totals();

// program_call() returns where the program's own code called the library, from
// which this is called.
const void* program_call();

// watch_crashes() installs, once, handlers for the signals of faults for which
// the program has none. They print which slave does what and where, and end the
// process by the signal or, after a report, with the exit code of reported
// programs, because the reported bug is the likely cause.
void watch_crashes();

// have_signal_stack() lets the calling thread report a crash after a stack
// overflow.
void have_signal_stack();

// What follows ends programs that cannot continue, in every transfer mode
// (hang.cpp). report_hang() reports which slaves wait where. Under the
// machine's mutex.
[[noreturn]] void report_hang(bool waits_for_master);
// report_master_alone() is for a master that waits after all slaves have ended.
[[noreturn]] void report_master_alone(const MasterWait& wait);
// end_with() reports a finding after which the program cannot continue.
[[noreturn]] void end_with(const Finding& finding);

}  // namespace swamp::sunway

#endif  // SWAMP_SUNWAY_EMULATOR_REPORT_H_
