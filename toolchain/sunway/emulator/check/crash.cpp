#include <link.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>
#include <unwind.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>

#include "toolchain/sunway/emulator/check/location.h"
#include "toolchain/sunway/emulator/check/registry.h"
#include "toolchain/sunway/emulator/check/report.h"
#include "toolchain/sunway/emulator/machine.h"
#include "toolchain/sunway/emulator/process.h"

namespace swamp::sunway::check {
namespace {

constexpr unsigned kAlarmSeconds = 10;  // seconds to find the place
constexpr std::uintptr_t kPage = 4096;

// in_program() returns whether the code is the program's, not a library's.
bool in_program(std::uintptr_t pc) {
  struct Asked {
    std::uintptr_t pc;
    bool found;
  } asked{pc, false};
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* out) {
        auto& in = *static_cast<Asked*>(out);
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          const auto& part = info->dlpi_phdr[i];
          in.found = in.found ||
                     (part.p_type == PT_LOAD && (part.p_flags & PF_X) != 0 &&
                      in.pc - info->dlpi_addr - part.p_vaddr < part.p_memsz);
        }
        return 1;  // the program alone
      },
      &asked);
  return asked.found;
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
  if (is_jump(context)) {  // there is no frame to unwind
    return *reinterpret_cast<void**>(context.uc_mcontext.gregs[REG_RSP]);
  }
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

// what_of() describes what the slave did.
std::string what_of(const Slave& slave, const siginfo_t& info,
                    const ucontext_t& context) {
  constexpr greg_t kPageFault = 14;
  constexpr greg_t kWrite = 2;
  if (info.si_code <= 0) return "was sent a signal";
  if (info.si_signo == SIGFPE) {
    return info.si_code == FPE_INTDIV ? "divides by zero"
                                      : "calculates what has no result";
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
  if (info.si_signo == SIGBUS) return what + ", beyond the end of a file";
  const auto stack = reinterpret_cast<std::uintptr_t>(slave.stack);
  if (stack - address <= kPage) what += ", beyond the end of its stack";
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
  const Location at = locate(program_call(context));
  print_line(at.file + ":" + std::to_string(at.line) + ": crash: cg " +
             std::to_string(slave.group) + " slave " +
             std::to_string(slave.id) + ": " + what_of(slave, info, context) +
             ": " + strsignal(info.si_signo));
}

void crashed(int signal_number, siginfo_t* info, void* context) {
  const Slave* slave = self();
  if (slave != nullptr) {
    int none = 0;
    // Only the first crash is reported; other threads wait here for the end.
    while (!fault.compare_exchange_strong(none, signal_number)) pause();
    print_crash(*slave, *info, *static_cast<const ucontext_t*>(context));
  }
  if (reported()) {
    print_line("swamp: then the program crashed");
    leave(kReportedExit);
  }
  signal(signal_number, SIG_DFL);
  // The faulting instruction runs again and faults with the default handler, so
  // that a debugger sees it.
  if (info->si_code <= 0) raise(signal_number);
}

}  // namespace

void watch_crashes() {
  static const bool watches = [] {
    for (const int signal_number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) {
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

}  // namespace swamp::sunway::check
