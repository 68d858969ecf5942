#include "toolchain/sunway/emulator/check/replay_child.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <vector>

#include "toolchain/sunway/emulator/check/channel.h"
#include "toolchain/sunway/emulator/check/replay.h"
#include "toolchain/sunway/emulator/check/report.h"
#include "toolchain/sunway/emulator/check/watchdog.h"
#include "toolchain/sunway/emulator/output.h"

namespace swamp::sunway::check {
namespace {

int own_channel = -1;

// Whoever reads a file of the parent's would take it from the parent, or not
// get what the parent's run got; whoever opens one to write would write it
// twice. Both end the child.
void forbid_files(const std::vector<int>& inherited) {
  constexpr std::uint32_t kRead[] = {SYS_read,    SYS_readv,   SYS_pread64,
                                     SYS_preadv,  SYS_preadv2, SYS_recvfrom,
                                     SYS_recvmsg, SYS_lseek,   SYS_getdents64};
  constexpr std::uint32_t kReads = sizeof kRead / sizeof kRead[0];
  constexpr auto argument = [](std::size_t i) {
    return static_cast<std::uint32_t>(offsetof(seccomp_data, args) +
                                      i * sizeof(std::uint64_t));
  };
  const auto add = [](std::vector<sock_filter>& to, int code, std::uint32_t k,
                      std::uint32_t if_true = 0, std::uint32_t if_false = 0) {
    to.push_back({static_cast<std::uint16_t>(code),
                  static_cast<std::uint8_t>(if_true),
                  static_cast<std::uint8_t>(if_false), k});
  };
  constexpr int kLoad = BPF_LD | BPF_W | BPF_ABS;
  constexpr int kEqual = BPF_JMP | BPF_JEQ | BPF_K;
  constexpr int kReturn = BPF_RET | BPF_K;
  std::vector<sock_filter> filter;
  add(filter, kLoad, offsetof(seccomp_data, nr));
  for (std::uint32_t i = 0; i < kReads; ++i) {
    add(filter, kEqual, kRead[i], kReads - i + 5);  // to the files
  }
  add(filter, kEqual, SYS_openat, 1);
  add(filter, kReturn, SECCOMP_RET_ALLOW);
  add(filter, kLoad, argument(2));
  add(filter, BPF_JMP | BPF_JSET | BPF_K, O_WRONLY | O_RDWR, 1);
  add(filter, kReturn, SECCOMP_RET_ALLOW);
  add(filter, kReturn, SECCOMP_RET_KILL_PROCESS);
  add(filter, kLoad, argument(0));
  for (const int file : inherited) {
    add(filter, kEqual, static_cast<std::uint32_t>(file), 0, 1);
    add(filter, kReturn, SECCOMP_RET_KILL_PROCESS);
  }
  add(filter, kReturn, SECCOMP_RET_ALLOW);
  const sock_fprog program{static_cast<std::uint16_t>(filter.size()),
                           filter.data()};
  if (filter.size() > BPF_MAXINSNS ||
      prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
    leave(0);  // better no second run than a wrong one
  }
}

// silence() keeps what the slaves print, and files that they may have, from
// being written twice, and from being read.
void silence(int channel) {
  const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
  std::vector<int> files;
  std::vector<int> inherited;
  if (DIR* folder = opendir("/proc/self/fd")) {
    while (const dirent* entry = readdir(folder)) {
      if (entry->d_name[0] != '.') files.push_back(std::atoi(entry->d_name));
    }
    closedir(folder);
  }
  for (const int file : files) {
    if (file != channel && file != nothing && nothing >= 0 &&
        fcntl(file, F_GETFD) >= 0) {
      dup2(nothing, file);
      inherited.push_back(file);
    }
  }
  forbid_files(inherited);
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
