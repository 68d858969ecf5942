#include "runtime/sunway/check/replay_child.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <new>
#include <vector>

#include "runtime/sunway/check/channel.h"
#include "runtime/sunway/check/replay.h"
#include "runtime/sunway/check/report.h"
#include "runtime/sunway/check/watchdog.h"
#include "runtime/sunway/output.h"

namespace swamp::sunway::check {
namespace {

int own_channel = -1;

// silence() keeps what the slaves print, and files that they may have, from
// being written twice.
void silence(int channel) {
  const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
  std::vector<int> files;
  if (DIR* folder = opendir("/proc/self/fd")) {
    while (const dirent* entry = readdir(folder)) {
      files.push_back(std::atoi(entry->d_name));
    }
    closedir(folder);
  }
  for (const int file : files) {
    if (file > 0 && file != channel && file != nothing && nothing >= 0 &&
        fcntl(file, F_GETFD) >= 0) {
      dup2(nothing, file);
    }
  }
}

}  // namespace

bool is_replay() noexcept { return own_channel >= 0; }

void begin_child(int channel, const Order& order, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) leave(0);
  own_channel = channel;
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) {
    signal(fault, SIG_DFL);
  }
  silence(channel);
  forward_findings([](const Finding& finding, bool is_note) {
    if (!is_note) send_finding(own_channel, finding);
  });
  // Only when the parent's own run has found nothing is this one worth it.
  char go = 0;
  if (recv(channel, &go, 1, 0) != 1) leave(0);
  World& all = world();
  new (&all.master_wake) std::condition_variable;
  all.order = order;
  restart_slaves();
  restart_watchdog();
}

void finish_child() {
  send_end(own_channel);
  serve_bytes(own_channel);
}

}  // namespace swamp::sunway::check
