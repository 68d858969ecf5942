// The few places where an emulated program's runtime speaks or ends it.
#ifndef SWAMP_SUNWAY_EMULATOR_OUTPUT_H_
#define SWAMP_SUNWAY_EMULATOR_OUTPUT_H_

#include <string>

namespace swamp::sunway {

inline constexpr int kReportedExit = 86;

// say() writes one line to stderr, whole, whatever other threads write.
void say(const std::string& line);

// fail() says the line, after "swamp: ", and ends the program.
[[noreturn]] void fail(int exit_code, const std::string& line);

// end_now() flushes what the program printed and ends it, without destructors:
// slaves may still run.
[[noreturn]] void end_now(int exit_code);

// leave() ends the process and flushes nothing: what was printed is another's
// to print, or cannot be trusted. A signal handler may call it.
[[noreturn]] void leave(int exit_code);

}  // namespace swamp::sunway

#endif  // SWAMP_SUNWAY_EMULATOR_OUTPUT_H_
