// Reports of programs that swcc links: one line each on stderr, and in
// SWAMP_CHECK_REPORT=FILE.jsonl for tools.
#ifndef SWAMP_SUNWAY_EMULATOR_CHECK_REPORT_H_
#define SWAMP_SUNWAY_EMULATOR_CHECK_REPORT_H_

#include <string>

#include "toolchain/sunway/emulator/world.h"

namespace swamp::sunway::check {

struct Finding {
  const char* category;
  const void* pc;      // where the offending call returns to
  const Slave* slave;  // nullptr: the master
  std::string text;
  const void* clash = nullptr;  // the other place, named in the text
};

// report() says a finding once for every category and pair of places: what one
// slave does wrong, usually all do.
void report(const Finding& finding);
// note() is a report that begins with "note: " after the place and leaves the
// exit code alone.
void note(const Finding& finding);

// reported() says whether report() said anything.
bool reported() noexcept;

// is_reporting() is true while a finding is being put into words: to read the
// program's debug information takes a while.
bool is_reporting() noexcept;

// Forward is where findings go instead, in a child that runs a launch again.
using Forward = void (*)(const Finding& finding, bool is_note);
void forward_findings(Forward forward);

// say_totals() ends the program's reports.
void say_totals();

}  // namespace swamp::sunway::check

#endif  // SWAMP_SUNWAY_EMULATOR_CHECK_REPORT_H_
