// A finding is printed once for its category and places, and counted after
// that. Signals of a crash are caught on an alternate stack: the place and the
// action of the slave are printed, then the signal ends the process.
#include "toolchain/sunway/emulator/report.h"

#include <fnmatch.h>
#include <link.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>
#include <unwind.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "toolchain/sunway/emulator/debug_info.h"
#include "toolchain/sunway/emulator/host_process.h"
#include "toolchain/sunway/emulator/machine.h"

namespace swamp::sunway {
namespace {

// Printed is a line and how often it was reported.
struct Printed {
  std::string line;
  std::size_t count = 0;
  bool is_note = false;
  bool is_suppressed = false;
};
using Key = std::tuple<std::string, const void*, const void*>;

struct All {
  std::mutex mutex;
  std::map<Key, Printed> printed;
  std::atomic<bool> reporting{false};
  std::atomic<bool> reported{false};
  Forward forward = nullptr;
};
All& all() {
  static All* const made = new All;  // outlives every destructor
  return *made;
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return out + '"';
}

void append_json(const Finding& finding, const Location& at, bool is_note,
                 const std::string& text) {
  if (settings().report_file.empty()) return;
  std::string line = "{\"category\":" + quoted(finding.category) +
                     ",\"note\":" + (is_note ? "true" : "false") +
                     ",\"file\":" + quoted(at.file) +
                     ",\"line\":" + std::to_string(at.line);
  if (finding.slave != nullptr) {
    line += ",\"cg\":" + std::to_string(finding.slave->group) +
            ",\"slave\":" + std::to_string(finding.slave->id);
  }
  if (finding.clash != nullptr) {
    const Location other = locate(finding.clash);
    line += ",\"other_file\":" + quoted(other.file) +
            ",\"other_line\":" + std::to_string(other.line);
  }
  append_to_report_file(line + ",\"text\":" + quoted(text) + "}");
}

std::string with_rank(const Slave* slave) {
  const std::string& rank = settings().rank;
  return (rank.empty() ? "" : "rank " + rank + " ") + name_of(slave);
}

bool is_suppressed(const char* category, const Location& at) {
  const std::string place = std::string(category) + " " + at.text();
  const std::vector<std::string>& all = settings().suppressed;
  return std::any_of(all.begin(), all.end(), [&](const std::string& pattern) {
    return fnmatch(pattern.c_str(), place.c_str(), 0) == 0;
  });
}

void emit(const Finding& finding, bool is_note) {
  const OwnAllocations own;
  All& state = all();
  const std::lock_guard<std::mutex> lock(state.mutex);
  Printed& printed =
      state.printed[{finding.category, finding.pc, finding.clash}];
  printed.is_note = is_note;
  if (printed.count++ != 0) return;
  if (state.forward != nullptr && settings().suppressed.empty()) {
    if (!is_note) state.reported = true;
    return state.forward(finding, is_note);
  }
  state.reporting = true;
  const Location at = locate(finding.pc);
  printed.is_suppressed =
      !settings().suppressed.empty() && is_suppressed(finding.category, at);
  if (printed.is_suppressed) {
    state.reporting = false;
    return;
  }
  if (!is_note) state.reported = true;
  if (state.forward != nullptr) {
    state.reporting = false;
    return state.forward(finding, is_note);
  }
  std::string text = finding.text;
  if (finding.clash != nullptr) {
    text += " (the other: " + locate(finding.clash).text() + ")";
  }
  const std::string who = with_rank(finding.slave);
  printed.line = at.text() + ": " + (is_note ? "note: " : "") +
                 finding.category + ": " + who + ": " + text;
  print_line(printed.line);
  append_json(finding, at, is_note, text);
  state.reporting = false;
  if (!is_note && settings().halt) end_now(kReportedExit);
}

}  // namespace

void report(const Finding& finding) { emit(finding, false); }
void note(const Finding& finding) { emit(finding, true); }

bool reported() noexcept { return all().reported; }

bool is_reporting() noexcept { return all().reporting; }

void forward_findings(Forward forward) {
  const std::lock_guard<std::mutex> lock(all().mutex);
  all().forward = forward;
}

void print_totals() {
  const std::lock_guard<std::mutex> lock(all().mutex);
  if (all().forward != nullptr) return;
  std::size_t repeated = 0;
  std::size_t suppressed = 0;
  for (const auto& [key, printed] : all().printed) {
    if (printed.is_suppressed) {
      suppressed += printed.count;
    } else if (!printed.is_note) {
      repeated += printed.count - 1;
    }
  }
  if (suppressed != 0) {
    print_line("swamp: " + std::to_string(suppressed) +
               " findings at places of SWAMP_CHECK_SUPPRESS");
  }
  if (repeated != 0) {
    print_line("swamp: " + std::to_string(repeated) +
               " more findings of the same kind at these places");
  }
}

namespace {

constexpr unsigned kAlarmSeconds = 10;  // limit for finding the place
constexpr std::uintptr_t kPage = 4096;

// in_program() returns whether the code is the program's, not a library's.
bool in_program(std::uintptr_t pc) {
  struct Search {
    std::uintptr_t pc;
    bool found;
  } search{pc, false};
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* out) {
        auto& in = *static_cast<Search*>(out);
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          const auto& part = info->dlpi_phdr[i];
          in.found = in.found ||
                     (part.p_type == PT_LOAD && (part.p_flags & PF_X) != 0 &&
                      in.pc - info->dlpi_addr - part.p_vaddr < part.p_memsz);
        }
        return 1;  // only the program itself
      },
      &search);
  return search.found;
}

bool is_jump(const ucontext_t& context) {
  constexpr greg_t kPageFault = 14;
  constexpr greg_t kExecute = 16;
  return context.uc_mcontext.gregs[REG_TRAPNO] == kPageFault &&
         (context.uc_mcontext.gregs[REG_ERR] & kExecute) != 0;
}

// program_call() is the program's own code at the fault, or its call of the
// library in which the fault is, as a return address.
const void* program_call(const ucontext_t& context) {
  const auto pc =
      static_cast<std::uintptr_t>(context.uc_mcontext.gregs[REG_RIP]);
  if (in_program(pc)) return reinterpret_cast<const void*>(pc + 1);
  if (is_jump(context)) {  // it has no stack frame
    return *reinterpret_cast<void**>(context.uc_mcontext.gregs[REG_RSP]);
  }
  return sunway::program_call();
}

}  // namespace

const void* program_call() {
  const void* found = nullptr;
  _Unwind_Backtrace(
      [](_Unwind_Context* frame, void* out) {
        const std::uintptr_t at = _Unwind_GetIP(frame);
        if (!in_program(at)) return _URC_NO_REASON;
        *static_cast<const void**>(out) = reinterpret_cast<const void*>(at);
        return _URC_NORMAL_STOP;
      },
      &found);
  return found;
}

namespace {

bool overflows_stack(const Slave& slave, const siginfo_t& info) {
  return info.si_signo == SIGSEGV && info.si_code > 0 &&
         reinterpret_cast<std::uintptr_t>(slave.stack) -
                 reinterpret_cast<std::uintptr_t>(info.si_addr) <=
             kPage;
}

// what_of() describes the action of the slave that caused the signal.
std::string what_of(const Slave& slave, const siginfo_t& info,
                    const ucontext_t& context) {
  constexpr greg_t kPageFault = 14;
  constexpr greg_t kWrite = 2;
  if (info.si_code <= 0) return "receives a signal";
  if (info.si_signo == SIGFPE) {
    return info.si_code == FPE_INTDIV
               ? "divides by zero"
               : "calculates a result that cannot be represented";
  }
  if (info.si_signo == SIGILL) return "runs an instruction that does not exist";
  if (context.uc_mcontext.gregs[REG_TRAPNO] != kPageFault) {
    return info.si_signo == SIGBUS
               ? "uses a misaligned address"
               : "uses an address outside the address space";
  }
  const greg_t error = context.uc_mcontext.gregs[REG_ERR];
  const auto address = reinterpret_cast<std::uintptr_t>(info.si_addr);
  char text[32];
  std::snprintf(text, sizeof text, "%#lx", address);
  std::string what = is_jump(context)        ? "jumps to "
                     : (error & kWrite) != 0 ? "stores to "
                                             : "loads from ";
  what += address == 0 ? "NULL" : text;
  const std::string remote = why_not_remote(address);
  if (!remote.empty()) return what + ", " + remote;
  if (info.si_signo == SIGBUS) return what + ", beyond the end of a file";
  if (overflows_stack(slave, info)) what += ", beyond the end of its stack";
  return what;
}

std::atomic<int> fault{0};

void end_by(int signal_number) {
  signal(signal_number, SIG_DFL);
  raise(signal_number);
}

// The functions called are not async-signal-safe. The process ends anyway; the
// alarm ends it if they block.
void print_crash(const Slave& slave, const siginfo_t& info,
                 const ucontext_t& context) {
  const OwnAllocations own;
  signal(SIGALRM, [](int) { end_by(fault); });
  alarm(kAlarmSeconds);
  const void* pc = program_call(context);
  const std::string what = what_of(slave, info, context);
  if (machine().check && overflows_stack(slave, info)) {
    report({"ldm-range", pc, &slave, what + ": LDM overflows"});
  }
  print_line(locate(pc).text() + ": crash: " + with_rank(&slave) + ": " + what +
             ": " + strsignal(info.si_signo));
}

void crashed(int signal_number, siginfo_t* info, void* context) {
  // abort() may be called by malloc(), which the report of a crash needs.
  const Slave* slave = signal_number == SIGABRT ? nullptr : self();
  if (slave != nullptr) {
    int none = 0;
    // Only the first crash is reported; other threads wait here for the end.
    while (!fault.compare_exchange_strong(none, signal_number)) pause();
    print_crash(*slave, *info, *static_cast<const ucontext_t*>(context));
  }
  if (reported()) {
    // Without print_line(), which may allocate.
    constexpr char kLine[] = "swamp: then the program crashed\n";
    (void)!write(STDERR_FILENO, kLine, sizeof kLine - 1);
    leave(kReportedExit);
  }
  signal(signal_number, SIG_DFL);
  // The faulting instruction runs again and faults with the default handler, so
  // that a debugger sees it.
  if (info->si_code <= 0) raise(signal_number);
}

// running_slave() returns a slave that runs, for the user who interrupts an
// endless loop. Without a lock: the process ends.
const Slave* running_slave() {
  if (!has_machine()) return nullptr;
  const Machine& all = machine();
  if (all.turn != nullptr) return all.turn;
  for (const Group& group : all.groups) {
    for (const auto& slave : group.slaves) {
      // In check mode it has lost the turn.
      const bool runs = !all.check || slave->state == SlaveState::without_turn;
      if (runs && slave->live() && slave->wait == nullptr) return slave.get();
    }
  }
  return nullptr;
}

std::atomic<bool> shown{false};

// show_place() runs in the thread of the slave.
void show_place(int, siginfo_t*, void* context) {
  const Slave* slave = self();
  if (slave == nullptr || shown) return;
  const OwnAllocations own;
  const Location at =
      locate(program_call(*static_cast<const ucontext_t*>(context)));
  print_line(at.text() + ": note: interrupted: " + with_rank(slave) +
             ": runs here");
  shown = true;
}

// interrupted() prints where a slave is, before the signal ends the process.
void interrupted(int signal_number) {
  constexpr int kTries = 500;
  // A second signal ends the process at once, but timeout(1) sends two.
  constexpr unsigned long kSecond = 1000000000;
  static std::atomic<unsigned long> first{0};
  unsigned long none = 0;
  if (!first.compare_exchange_strong(none, nanoseconds())) {
    if (nanoseconds() - first > kSecond) end_by(signal_number);
    return;
  }
  constexpr timespec kTick{0, 10000000};
  const Slave* slave = running_slave();
  if (slave != nullptr) {
    struct sigaction now {};
    now.sa_sigaction = &show_place;
    now.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
    sigaction(SIGTRAP, &now, nullptr);
    pthread_kill(slave->thread, SIGTRAP);
    for (int i = 0; i < kTries && !shown; ++i) nanosleep(&kTick, nullptr);
  }
  end_by(signal_number);
}

}  // namespace

void watch_crashes() {
  static const bool watches = [] {
    for (const int signal_number : {SIGINT, SIGTERM}) {
      struct sigaction now {};
      if (sigaction(signal_number, nullptr, &now) == 0 &&
          now.sa_handler == SIG_DFL) {
        now.sa_handler = &interrupted;
        now.sa_flags = SA_NODEFER;
        sigaction(signal_number, &now, nullptr);
      }
    }
    for (const int signal_number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) {
      struct sigaction now {};
      if (sigaction(signal_number, nullptr, &now) != 0 ||
          now.sa_handler != SIG_DFL) {
        continue;  // the program's own
      }
      now.sa_sigaction = &crashed;
      now.sa_flags = SA_ONSTACK | SA_SIGINFO;
      sigaction(signal_number, &now, nullptr);
    }
    return true;
  }();
  (void)watches;
}

void have_signal_stack() {
  constexpr std::size_t kBytes = 256 * 1024;
  stack_t stack{};
  stack.ss_sp = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  stack.ss_size = kBytes;
  if (stack.ss_sp != MAP_FAILED) sigaltstack(&stack, nullptr);
}

}  // namespace swamp::sunway
