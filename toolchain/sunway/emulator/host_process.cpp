// From the start to the end of a program: the SWAMP_* variables, the exchange
// of the process for the instrumented copy in check mode, and the summaries and
// the exit code at its end, whichever way it ends.
#include "toolchain/sunway/emulator/host_process.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdio_ext.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <sstream>
#include <string>
#include <vector>

#include "runtime/variables.h"
#include "toolchain/sunway/emulator/machine.h"
#include "toolchain/sunway/emulator/prediction.h"
#include "toolchain/sunway/emulator/report.h"

namespace swamp::sunway {

// remove_image_file() removes the copy of the program that a debugger needs.
void remove_image_file();

namespace {

constexpr char kReportFile[] = "SWAMP_CHECK_REPORT";

const char* value_of(const char* variable) noexcept {
  const char* value = std::getenv(variable);
  return value != nullptr && *value != '\0' ? value : nullptr;
}

// first_of() returns the value of the first variable that is set, or "".
std::string first_of(std::initializer_list<const char*> variables) {
  for (const char* variable : variables) {
    if (value_of(variable) != nullptr) return value_of(variable);
  }
  return "";
}

constexpr char kDigits[] = "0123456789";

[[noreturn]] void refuse(const char* variable, const char* value,
                         const std::string& expected) {
  const bool is_number = value[std::strspn(value, kDigits)] == '\0';
  const char* quote = is_number ? "" : "\"";
  fail(2, std::string(variable) + ": got " + quote + value + quote +
              ", expected " + expected);
}

constexpr std::uint64_t kMostSeed = 999999999;

std::optional<std::uint64_t> whole_number(const char* text) {
  const std::size_t length = std::strlen(text);
  if (length == 0 || length > 18 || std::strspn(text, kDigits) != length) {
    return std::nullopt;
  }
  return std::strtoull(text, nullptr, 10);
}

std::uint64_t number(const char* variable, std::uint64_t fallback,
                     std::uint64_t lowest, std::uint64_t highest) {
  const char* text = value_of(variable);
  if (text == nullptr) return fallback;
  const std::optional<std::uint64_t> value = whole_number(text);
  if (!value || *value < lowest || *value > highest) {
    refuse(variable, text,
           "a whole number from " + std::to_string(lowest) + " to " +
               std::to_string(highest));
  }
  return *value;
}

bool flag(const char* variable) { return number(variable, 0, 0, 1) == 1; }

// read_suppressed() reads the lines of SWAMP_CHECK_SUPPRESS without comments.
std::vector<std::string> read_suppressed(const char* name) {
  constexpr char kVariable[] = "SWAMP_CHECK_SUPPRESS";
  std::vector<std::string> all;
  std::ifstream file(name);
  if (!file) refuse(kVariable, name, "a file that can be read");
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    std::istringstream words(line.substr(0, line.find('#')));
    std::string category;
    std::string place;
    std::string more;
    if (!(words >> category)) continue;
    const bool is_good = words >> place && !(words >> more) &&
                         place.find(':') != std::string::npos;
    if (!is_good) {
      fail(2, std::string(kVariable) + ": " + name + ":" +
                  std::to_string(number) + ": got \"" + line +
                  "\", expected CATEGORY FILE:LINE; * and ? are wildcards");
    }
    all.push_back(category + " " + place);
  }
  return all;
}

// read_schedules() reads SWAMP_CHECK_SCHEDULES: a number, or 1:SEED.
void read_schedules(Settings& all) {
  constexpr char kVariable[] = "SWAMP_CHECK_SCHEDULES";
  constexpr std::uint64_t kMost = 1000;
  const char* text = value_of(kVariable);
  if (text == nullptr) return;
  const bool has_seed = std::strncmp(text, "1:", 2) == 0;
  const std::optional<std::uint64_t> value =
      whole_number(has_seed ? text + 2 : text);
  if (!value || *value > (has_seed ? kMostSeed : kMost)) {
    refuse(kVariable, text,
           "a whole number from 0 to " + std::to_string(kMost) +
               ", or 1:SEED with a seed up to " + std::to_string(kMostSeed));
  }
  all.schedules = has_seed ? 1 : static_cast<int>(*value);
  if (has_seed) all.schedule_seed = value;
}

Settings read_environment() {
  Settings all;
  if (const char* machine = value_of("SWAMP_MACHINE")) {
    all.machine = machine;
    if (all.machine == "sw26010") {
      all.core_groups = 4;
      all.ldm_bytes = 64 * 1024;
    } else if (all.machine != "sw26010pro") {
      refuse("SWAMP_MACHINE", machine, "one of: sw26010pro, sw26010");
    }
  }
  if (const char* transfer = value_of("SWAMP_TRANSFER")) {
    all.check = std::strcmp(transfer, "check") == 0;
    if (!all.check && std::strcmp(transfer, "copy") != 0 &&
        std::strcmp(transfer, "view") != 0) {
      refuse("SWAMP_TRANSFER", transfer, "one of: view, copy, check");
    }
  }
  if (const char* backend = value_of("SWAMP_BACKEND")) {
    if (std::strcmp(backend, "threads") != 0 &&
        std::strcmp(backend, "athread") != 0) {
      refuse("SWAMP_BACKEND", backend, "one of: threads, athread");
    }
  }
  all.core_groups = static_cast<int>(number(
      "SWAMP_CORE_GROUPS", static_cast<std::uint64_t>(all.core_groups), 1, 6));
  all.slaves_per_group = static_cast<int>(
      number("SWAMP_SLAVES_PER_GROUP",
             static_cast<std::uint64_t>(all.slaves_per_group), 1, 64));
  all.ldm_bytes = number("SWAMP_LDM_BYTES", all.ldm_bytes, 1024, 1u << 20);
  const char* predict = value_of("SWAMP_PREDICT");
  all.lines = predict != nullptr && std::strcmp(predict, "lines") == 0;
  if (all.lines && !all.check) {
    refuse("SWAMP_PREDICT", predict,
           "transfer mode check, which counts what each line does");
  }
  all.predict = all.lines || flag("SWAMP_PREDICT");
  all.halt = flag("SWAMP_CHECK_HALT");
  all.main_access = flag("SWAMP_CHECK_MAIN_ACCESS");
  all.cache = flag("SWAMP_CHECK_CACHE");
  if (all.cache && all.check && all.machine != "sw26010pro") {
    refuse("SWAMP_CHECK_CACHE", "1",
           "SWAMP_MACHINE=sw26010pro: the slaves of " + all.machine +
               " have no data cache");
  }
  all.seed = number("SWAMP_CHECK_SEED", 0, 0, kMostSeed);
  read_schedules(all);
  all.timeout_seconds =
      static_cast<int>(number("SWAMP_CHECK_TIMEOUT", 8, 1, 3600));
  if (const char* file = value_of(kReportFile)) {
    // The program may change its working directory.
    std::error_code none;
    all.report_file = std::filesystem::absolute(file, none);
    const bool writes = all.check || all.predict;
    if (writes && !std::ofstream(all.report_file, std::ios::app)) {
      refuse(kReportFile, file, "a file that can be written");
    }
  }
  if (const char* file = value_of("SWAMP_CHECK_SUPPRESS")) {
    all.suppressed = read_suppressed(file);
  }
  all.rank = first_of(
      {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"});
  if (const char* file = value_of("SWAMP_TRACE")) {
    if (all.check) {
      refuse("SWAMP_TRACE", file,
             "transfer mode copy: in check mode slaves run one at a time");
    }
    all.trace_file = file + (all.rank.empty() ? "" : "." + all.rank);
  }
  all.ranks = first_of({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"});
  return all;
}

}  // namespace

const Settings& settings() {
  static const Settings* const all = new Settings(read_environment());
  return *all;
}

bool is_check_asked() noexcept {
  const char* transfer = value_of("SWAMP_TRANSFER");
  return transfer != nullptr && std::strcmp(transfer, "check") == 0;
}

namespace {

bool write_line(int file, const std::string& line) {
  const std::string whole = line + "\n";
  std::size_t written = 0;
  while (written < whole.size()) {
    const ssize_t count =
        write(file, whole.data() + written, whole.size() - written);
    if (count <= 0) return false;
    written += static_cast<std::size_t>(count);
  }
  return true;
}

}  // namespace

void print_line(const std::string& line) {
  (void)write_line(STDERR_FILENO, line);
}

void append_to_report_file(const std::string& line) {
  static std::atomic<bool> failed{false};
  const std::string& name = settings().report_file;
  if (name.empty()) return;
  const int file =
      open(name.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
  const bool written = file >= 0 && write_line(file, line);
  const int error = errno;
  if (file >= 0) close(file);
  if (written || failed.exchange(true)) return;
  print_line("swamp: " + std::string(kReportFile) + ": cannot write " + name +
             ": " + std::strerror(error));
}

void end_now(int exit_code) {
  // Only stdout, and only if no slave holds its lock, because that slave may
  // never release it.
  if (ftrylockfile(stdout) == 0) {
    std::fflush(stdout);
    funlockfile(stdout);
  }
  leave(exit_code);
}

void leave(int exit_code) {
  remove_image_file();
  for (;;) syscall(SYS_exit_group, exit_code);
}

void fail(int exit_code, const std::string& line) {
  print_line("swamp: " + line);
  end_now(exit_code);
}

sigset_t block_signals() noexcept {
  sigset_t blocked;
  sigset_t own;
  sigfillset(&blocked);
  for (const int fault :
       {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS}) {
    sigdelset(&blocked, fault);
  }
  pthread_sigmask(SIG_SETMASK, &blocked, &own);
  return own;
}

}  // namespace swamp::sunway

// The instrumented copy of a program that swcc links; its size is 0 in the copy
// itself.
extern "C" {
extern const unsigned char swamp_check_image[] __attribute__((weak));
extern const unsigned char swamp_check_image_end[] __attribute__((weak));
}

namespace swamp::sunway {
namespace {

// Debuggers read the symbols of a file, not of memory.
constexpr char kImageFile[] = "/swamp-check-XXXXXX";

bool is_traced() {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word) {
    if (word == "TracerPid:") return status >> word && word != "0";
  }
  return false;
}

bool write_image(int file) {
  const auto bytes =
      static_cast<std::size_t>(swamp_check_image_end - swamp_check_image);
  std::size_t written = 0;
  while (file >= 0 && written < bytes) {
    const ssize_t count =
        write(file, swamp_check_image + written, bytes - written);
    if (count <= 0) break;
    written += static_cast<std::size_t>(count);
  }
  return written == bytes;
}

bool is_replay() noexcept { return has_machine() && machine().is_replay; }

// run_checked_image() replaces the process by the instrumented copy.
void run_checked_image(char** argv, char** environment) {
  if (swamp_check_image == nullptr ||
      swamp_check_image_end - swamp_check_image == 0) {
    return;
  }
  if (!is_traced()) {
    const int file = memfd_create(argv[0], MFD_CLOEXEC);
    if (write_image(file)) fexecve(file, argv, environment);
  }
  const char* folder = value_of("TMPDIR");
  std::string name =
      std::string(folder != nullptr ? folder : "/tmp") + kImageFile;
  const int file = mkstemp(name.data());
  if (write_image(file) && fchmod(file, 0700) == 0 && close(file) == 0) {
    execve(name.c_str(), argv, environment);
  }
  unlink(name.c_str());
  fail(1, "cannot start the program in transfer mode check");
}

}  // namespace

void remove_image_file() {
  if (is_replay()) return;
  char name[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", name, sizeof name - 1);
  constexpr std::size_t kLength = sizeof kImageFile - 1;
  if (length < static_cast<ssize_t>(kLength)) return;
  name[length] = '\0';
  const char* last = name + length - kLength;
  if (std::strncmp(last, kImageFile, kLength - 6) == 0) unlink(name);
}

namespace {

// is_child() returns whether the process was forked from the one with the
// slaves.
bool is_child() { return has_machine() && machine().process != getpid(); }

// code_of() returns the exit code for one of the program: 86 for 0 after a
// report.
int code_of(int status) {
  const bool reports = settings().check && reported() && !is_child();
  return status == 0 && reports ? kReportedExit : status;
}

// at_end() prints the summary.
void at_end(int status, void*) {
  if (is_replay()) leave(0);
  if (is_child()) return;
  remove_image_file();
  if (observer != nullptr) observer->exiting();
  print_prediction();
  if (!settings().check) return;
  print_totals();
  if (code_of(status) != status) {
    std::fflush(nullptr);
    leave(kReportedExit);
  }
}

// Runs before the library's other constructors: it may replace the process.
__attribute__((constructor(101))) void start(int, char** argv,
                                             char** environment) {
  if (!is_check_asked()) return;
  run_checked_image(argv, environment);
  if (!is_traced()) remove_image_file();
}

__attribute__((constructor)) void start_settings() {
  (void)settings();
  const std::string warning = runtime::unknown_variables_warning();
  if (!warning.empty()) print_line(warning);
  if (!settings().trace_file.empty()) start_trace();
  on_exit(&at_end, nullptr);
}

}  // namespace
}  // namespace swamp::sunway

// These skip at_end(). A signal handler may call _exit().
extern "C" {

#pragma GCC visibility push(default)

void _exit(int status) {
  if (swamp::sunway::is_child()) {
    for (;;) syscall(SYS_exit_group, status);
  }
  swamp::sunway::leave(swamp::sunway::code_of(status));
}
void _Exit(int status) { _exit(status); }
void quick_exit(int status) noexcept {
  static auto* const next =
      reinterpret_cast<void (*)(int)>(dlsym(RTLD_NEXT, "quick_exit"));
  next(swamp::sunway::code_of(status));
  _exit(status);  // not reached
}

#pragma GCC visibility pop

}  // extern "C"
