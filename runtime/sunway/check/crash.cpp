#include "runtime/sunway/check/crash.h"

#include <signal.h>
#include <unistd.h>

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
      now.sa_flags = 0;
      sigaction(fault, &now, nullptr);
    }
    return true;
  }();
  (void)watches;
}

}  // namespace swamp::sunway::check
