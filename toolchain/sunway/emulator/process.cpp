#include "toolchain/sunway/emulator/process.h"

#include <stdio_ext.h>
#include <unistd.h>

#include <cstdio>

namespace swamp::sunway {

void print_line(const std::string& line) {
  const std::string whole = line + "\n";
  std::size_t written = 0;
  while (written < whole.size()) {
    const ssize_t count =
        write(STDERR_FILENO, whole.data() + written, whole.size() - written);
    if (count <= 0) return;
    written += static_cast<std::size_t>(count);
  }
}

void end_now(int exit_code) {
  // Not all streams: a slave may hold the lock of one, in a loop.
  if (ftrylockfile(stdout) == 0) {
    std::fflush(stdout);
    funlockfile(stdout);
  }
  _exit(exit_code);
}

void leave(int exit_code) { _exit(exit_code); }

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
