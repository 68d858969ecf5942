#include "toolchain/sunway/emulator/check/channel.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "toolchain/sunway/emulator/clock.h"
#include "toolchain/sunway/emulator/output.h"

namespace swamp::sunway::check {
namespace {

constexpr unsigned long kMillisecond = 1000000;

// Head comes before what is sent.
struct Head {
  bool is_end;
  const char* category;
  const void* pc;
  const void* clash;
  const Slave* slave;
  std::size_t text;
  std::size_t written;
  std::size_t uses;
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

// receive_all() returns false at the end of the stream or of the time.
bool receive_all(int channel, void* data, std::size_t bytes,
                 unsigned long deadline) {
  auto* at = static_cast<char*>(data);
  while (bytes != 0) {
    if (deadline != 0) {
      const unsigned long now = nanoseconds();
      if (now >= deadline) return false;
      pollfd one{channel, POLLIN, 0};
      const auto wait = static_cast<int>((deadline - now) / kMillisecond + 1);
      if (poll(&one, 1, wait) <= 0) continue;
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

std::vector<Use> uses() {
  std::vector<Use> all;
  for (const Group& group : world().groups) {
    for (const auto& slave : group.slaves) {
      all.push_back({slave->clock_reads, slave->tickets});
    }
  }
  return all;
}

void send_finding(int channel, const Finding& finding) {
  Head head{};
  head.category = finding.category;
  head.pc = finding.pc;
  head.clash = finding.clash;
  head.slave = finding.slave;
  head.text = finding.text.size();
  if (!send_all(channel, &head, sizeof head) ||
      !send_all(channel, finding.text.data(), head.text)) {
    leave(0);  // the parent has gone
  }
}

void send_end(int channel) {
  const std::vector<Written>* list = written();
  const std::vector<Use> all = uses();
  if (list == nullptr) leave(0);
  Head head{};
  head.is_end = true;
  head.written = list->size();
  head.uses = all.size();
  if (!send_all(channel, &head, sizeof head) ||
      !send_all(channel, list->data(), list->size() * sizeof(Written)) ||
      !send_all(channel, all.data(), all.size() * sizeof(Use))) {
    leave(0);
  }
}

void serve_bytes(int channel) {
  Request request;
  std::vector<std::byte> bytes;
  while (receive_all(channel, &request, sizeof request, 0)) {
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

Outcome receive(int channel, unsigned long deadline) {
  Outcome outcome;
  Head head;
  while (receive_all(channel, &head, sizeof head, deadline)) {
    if (!head.is_end) {
      std::string text(head.text, ' ');
      if (!receive_all(channel, text.data(), head.text, deadline)) break;
      outcome.findings.push_back(
          {head.category, head.pc, head.slave, text, head.clash});
      continue;
    }
    outcome.written.resize(head.written);
    outcome.uses.resize(head.uses);
    if (receive_all(channel, outcome.written.data(),
                    head.written * sizeof(Written), deadline) &&
        receive_all(channel, outcome.uses.data(), head.uses * sizeof(Use),
                    deadline)) {
      outcome.end = Outcome::End::done;
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
      !receive_all(channel, &there, sizeof there, 0) || there < 0 ||
      !receive_all(channel, out, static_cast<std::size_t>(there), 0)) {
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

}  // namespace swamp::sunway::check
