// The process that the emulator runs in: SWAMP_* variables, output, exit,
// clock.
#ifndef SWAMP_SUNWAY_EMULATOR_HOST_PROCESS_H_
#define SWAMP_SUNWAY_EMULATOR_HOST_PROCESS_H_

#include <csignal>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <optional>
#include <string>
#include <vector>

namespace swamp::sunway {

inline constexpr int kReportedExit = 86;

// print_line() writes one whole line to stderr; lines of several threads do not
// mix.
void print_line(const std::string& line);

// append_to_report_file() writes one line to the file of SWAMP_CHECK_REPORT, if
// there is one. The first failure is printed.
void append_to_report_file(const std::string& line);

// fail() prints "swamp: " and the line, and ends the program.
[[noreturn]] void fail(int exit_code, const std::string& line);

// end_now() flushes what the program printed and ends it, without destructors:
// slaves may still run.
[[noreturn]] void end_now(int exit_code);

// leave() ends the process without a flush: the parent prints the buffers, or
// they may be damaged. A signal handler may call it.
[[noreturn]] void leave(int exit_code);

// block_signals() blocks the signals of the process for the calling thread and
// the threads that it starts, because they are for the program's own threads,
// and returns the mask to restore. Signals that a thread causes itself stay
// unblocked: blocking them would bypass any handler.
sigset_t block_signals() noexcept;

// While an OwnAllocations exists, allocations of the calling thread are the
// emulator's, not the program's: check mode does not record them.
class OwnAllocations {
 public:
  OwnAllocations() noexcept : outer_(exist_) { exist_ = true; }
  ~OwnAllocations() { exist_ = outer_; }
  OwnAllocations(const OwnAllocations&) = delete;
  OwnAllocations& operator=(const OwnAllocations&) = delete;

  static bool exist() noexcept { return exist_; }

 private:
  static inline __thread bool exist_ = false;
  bool outer_;
};

// nanoseconds() is a clock that only goes forward, or the CPU time of a thread.
inline unsigned long nanoseconds(clockid_t clock = CLOCK_MONOTONIC) noexcept {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<unsigned long>(now.tv_sec) * 1000000000ul +
         static_cast<unsigned long>(now.tv_nsec);
}

// In check mode the cycle counter advances by this amount per read, so that
// runs are reproducible in every order of the slaves.
inline constexpr unsigned long kCyclesPerRead = 225;

// Settings holds the SWAMP_* variables.
struct Settings {
  int core_groups = 6;
  int slaves_per_group = 64;
  std::size_t ldm_bytes = 256 * 1024;
  std::string machine = "sw26010pro";
  bool check = false;        // SWAMP_TRANSFER=check
  bool predict = false;      // SWAMP_PREDICT=1 or lines
  bool lines = false;        // SWAMP_PREDICT=lines
  bool halt = false;         // SWAMP_CHECK_HALT=1: end at the first report
  bool main_access = false;  // SWAMP_CHECK_MAIN_ACCESS=1
  bool cache = false;        // SWAMP_CHECK_CACHE=1
  std::uint64_t seed = 0;    // SWAMP_CHECK_SEED: the order of the slaves
  int schedules = -1;        // SWAMP_CHECK_SCHEDULES; -1: chosen per launch
  std::optional<std::uint64_t>
      schedule_seed;  // of SWAMP_CHECK_SCHEDULES=1:SEED
  // SWAMP_CHECK_TIMEOUT: seconds without progress that count as a hang
  int timeout_seconds = 8;
  std::string report_file;  // SWAMP_CHECK_REPORT
  std::string trace_file;   // SWAMP_TRACE; of an MPI program with its rank
  // SWAMP_CHECK_SUPPRESS: "CATEGORY FILE:LINE" with the wildcards of fnmatch()
  std::vector<std::string> suppressed;
  // The rank in MPI_COMM_WORLD and the number of ranks, if the program runs
  // under mpirun.
  std::string rank, ranks;
};

// settings() reads the environment at the first call. A bad value ends the
// program with exit code 2 and one line on stderr that lists the good values.
const Settings& settings();

// is_check_asked() reads SWAMP_TRANSFER alone; it allocates nothing.
bool is_check_asked() noexcept;

}  // namespace swamp::sunway

#endif  // SWAMP_SUNWAY_EMULATOR_HOST_PROCESS_H_
