// A child's side of a replay: a socket to the parent, over which it sends its
// outcome and the bytes that the parent asks for, and the redirection of files,
// so that slaves neither print nor read nor write anything a second time.
#include <dirent.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <vector>

#include "toolchain/sunway/emulator/check/progress.h"
#include "toolchain/sunway/emulator/check/replay.h"
#include "toolchain/sunway/emulator/host_process.h"
#include "toolchain/sunway/emulator/report.h"

namespace swamp::sunway::check {
namespace {

// Head precedes every message.
struct Head {
  bool is_end;
  const char* category;
  const void* pc;
  const void* clash;
  const Slave* slave;
  std::size_t text;
  std::size_t written;
  std::size_t usages;
};

struct Request {
  std::uintptr_t address;
  std::size_t bytes;
};

bool send_all(int channel, const void* data, std::size_t bytes) {
  const auto* at = static_cast<const char*>(data);
  while (bytes != 0) {
    const ssize_t sent = send(channel, at, bytes, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    at += sent;
    bytes -= static_cast<std::size_t>(sent);
  }
  return true;
}

// Limit is the CPU time that a child may take, because the machine may be busy
// otherwise, and ten times as long if the child only waits.
struct Limit {
  pid_t child;
  unsigned long most;
  unsigned long begin = nanoseconds();

  bool is_over() const {
    clockid_t clock = 0;
    return nanoseconds() - begin > 10 * most ||
           (clock_getcpuclockid(child, &clock) == 0 &&
            nanoseconds(clock) > most);
  }
};

// receive_all() returns false at the end of the stream or at the limit.
bool receive_all(int channel, void* data, std::size_t bytes,
                 const Limit* limit = nullptr) {
  constexpr int kMilliseconds = 20;
  auto* at = static_cast<char*>(data);
  while (bytes != 0) {
    if (limit != nullptr) {
      pollfd one{channel, POLLIN, 0};
      if (poll(&one, 1, kMilliseconds) <= 0) {
        if (limit->is_over()) return false;
        continue;
      }
    }
    const ssize_t got = recv(channel, at, bytes, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    at += got;
    bytes -= static_cast<std::size_t>(got);
  }
  return true;
}

}  // namespace

std::vector<Usage> usages() {
  std::vector<Usage> all;
  for (const Group& group : machine().groups) {
    for (const auto& slave : group.slaves) {
      all.push_back({slave->clock_reads, slave->atomic_operations});
    }
  }
  return all;
}

Outcome receive(int channel, pid_t child, unsigned long most) {
  const Limit limit{child, most};
  Outcome outcome;
  Head head;
  while (receive_all(channel, &head, sizeof head, &limit)) {
    if (!head.is_end) {
      std::string text(head.text, ' ');
      if (!receive_all(channel, text.data(), head.text, &limit)) break;
      outcome.findings.push_back(
          {head.category, head.pc, head.slave, text, head.clash});
      continue;
    }
    outcome.written.resize(head.written);
    outcome.usages.resize(head.usages);
    if (receive_all(channel, outcome.written.data(),
                    head.written * sizeof(Written), &limit) &&
        receive_all(channel, outcome.usages.data(), head.usages * sizeof(Usage),
                    &limit)) {
      outcome.done = true;
    }
    break;
  }
  return outcome;
}

long read_bytes(int channel, std::uintptr_t address, std::size_t bytes,
                std::byte* out) {
  const Request request{address, bytes};
  long there = 0;
  if (!send_all(channel, &request, sizeof request) ||
      !receive_all(channel, &there, sizeof there) || there < 0 ||
      !receive_all(channel, out, static_cast<std::size_t>(there))) {
    return -1;
  }
  return there;
}

long read_own_bytes(std::uintptr_t address, std::size_t bytes, std::byte* out) {
  // Not kept open: a child of fork() would read its parent.
  const int file = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  const ssize_t there = pread(file, out, bytes, static_cast<off_t>(address));
  close(file);
  return std::max<ssize_t>(there, 0);
}

namespace {

// The child's side of the channel.
void send_finding(int channel, const Finding& finding) {
  Head head{};
  head.category = finding.category;
  head.pc = finding.pc;
  head.clash = finding.clash;
  head.slave = finding.slave;
  head.text = finding.text.size();
  if (!send_all(channel, &head, sizeof head) ||
      !send_all(channel, finding.text.data(), head.text)) {
    leave(0);  // the parent has ended
  }
}

void send_end(int channel) {
  const std::vector<Written>* list = written();
  const std::vector<Usage> all = usages();
  if (list == nullptr) leave(0);
  Head head{};
  head.is_end = true;
  head.written = list->size();
  head.usages = all.size();
  if (!send_all(channel, &head, sizeof head) ||
      !send_all(channel, list->data(), list->size() * sizeof(Written)) ||
      !send_all(channel, all.data(), all.size() * sizeof(Usage))) {
    leave(0);
  }
}

// serve_bytes() answers read_bytes() until the parent closes the channel.
[[noreturn]] void serve_bytes(int channel) {
  Request request;
  std::vector<std::byte> bytes;
  while (receive_all(channel, &request, sizeof request)) {
    bytes.resize(request.bytes);
    const long there =
        read_own_bytes(request.address, request.bytes, bytes.data());
    if (!send_all(channel, &there, sizeof there) ||
        !send_all(channel, bytes.data(), static_cast<std::size_t>(there))) {
      break;
    }
  }
  leave(0);
}

int own_channel = -1;

// forbid_files() makes two actions end the child: to read a file shared with
// the parent, which would move the parent's position, and to open one for
// writing, which would write it twice.
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
    leave(0);  // without the filter a replay could do damage
  }
}

// redirect_files() prevents the slaves from printing, and from reading or
// writing files, a second time.
void redirect_files(int channel) {
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

void begin_child(int channel, const Order& order, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) leave(0);
  if (!copy_ldm()) leave(0);
  own_channel = channel;
  const char copied = 1;
  (void)send(channel, &copied, 1, MSG_NOSIGNAL);
  machine().is_replay = true;
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) {
    signal(fault, SIG_DFL);
  }
  redirect_files(channel);
  forward_findings([](const Finding& finding, bool is_note) {
    if (!is_note) send_finding(own_channel, finding);
  });
  // Run only if the parent's own run found nothing.
  char go = 0;
  if (recv(channel, &go, 1, 0) != 1) leave(0);
  Machine& all = machine();
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
