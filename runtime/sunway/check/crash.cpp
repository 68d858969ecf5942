#include "runtime/sunway/check/crash.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>

#include "runtime/sunway/check/report.h"
#include "runtime/sunway/output.h"

namespace swamp::sunway::check {
namespace {

void crashed(int signal_number) {
  if (reported()) {
    constexpr char kText[] = "swamp: then the program crashed\n";
    (void)!write(STDERR_FILENO, kText, sizeof kText - 1);
    leave(kReportedExit);
  }
  signal(signal_number, SIG_DFL);
  raise(signal_number);
}

}  // namespace

void watch_crashes() {
  static const bool watches = [] {
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) {
      struct sigaction now {};
      if (sigaction(fault, nullptr, &now) != 0 || now.sa_handler != SIG_DFL) {
        continue;  // the program's own
      }
      now.sa_handler = &crashed;
      now.sa_flags = SA_ONSTACK;
      sigaction(fault, &now, nullptr);
    }
    return true;
  }();
  (void)watches;
}

void have_signal_stack() {
  constexpr std::size_t kBytes = 64 * 1024;
  stack_t stack{};
  stack.ss_sp = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  stack.ss_size = kBytes;
  if (stack.ss_sp != MAP_FAILED) sigaltstack(&stack, nullptr);
}

}  // namespace swamp::sunway::check
