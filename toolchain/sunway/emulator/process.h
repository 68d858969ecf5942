// What the run-time library does with the process: output, exit, clock.
#ifndef SWAMP_SUNWAY_EMULATOR_PROCESS_H_
#define SWAMP_SUNWAY_EMULATOR_PROCESS_H_

#include <csignal>
#include <ctime>
#include <string>

namespace swamp::sunway {

inline constexpr int kReportedExit = 86;

// print_line() writes one whole line to stderr; lines of several threads do not
// mix.
void print_line(const std::string& line);

// fail() prints "swamp: " and the line, and ends the program.
[[noreturn]] void fail(int exit_code, const std::string& line);

// end_now() flushes what the program printed and ends it, without destructors:
// slaves may still run.
[[noreturn]] void end_now(int exit_code);

// leave() ends the process and flushes nothing: the parent prints the buffers,
// or they may be damaged. A signal handler may call it.
[[noreturn]] void leave(int exit_code);

// block_signals() blocks the signals of the process for the calling thread and
// the threads that it starts, because they are for the program's own threads,
// and returns the mask to restore. Signals that a thread causes itself stay
// unblocked: blocking them would bypass any handler.
sigset_t block_signals() noexcept;

// nanoseconds() is a clock that only goes forward.
inline unsigned long nanoseconds() noexcept {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<unsigned long>(now.tv_sec) * 1000000000ul +
         static_cast<unsigned long>(now.tv_nsec);
}

// In check mode the cycle counter advances by this amount per read, so that
// runs are reproducible in every order of the slaves.
inline constexpr unsigned long kCyclesPerRead = 225;

}  // namespace swamp::sunway

#endif  // SWAMP_SUNWAY_EMULATOR_PROCESS_H_
