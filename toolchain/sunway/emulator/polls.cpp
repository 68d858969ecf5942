// A loop that reads a reply word or a flag until it changes would use all of
// its time slice, so that a message would take as long as all slices together.
// A timer interrupts slaves that compute without a pause. One that is found in
// the same place with the same registers again polls: it sleeps until something
// arrives in its LDM or, because other memory may change too, for a while, and
// is interrupted soon after that. Loops that compute change their registers.
#include "toolchain/sunway/emulator/polls.h"

#include <errno.h>
#include <link.h>
#include <linux/futex.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <thread>

#include "toolchain/sunway/emulator/host_process.h"

namespace swamp::sunway {
namespace {

// Nanoseconds: of CPU time between two interrupts, of CPU time in which a slave
// polls after a nap, of the first nap, and of the longest one for each slave:
// it takes the processors about as long to let each of them poll once.
constexpr long kSlice = 1000000;
constexpr long kPoll = 20000;
constexpr long kFirstNap = 500000;
constexpr long kLongestNap = 64000;
constexpr int kMostPolls = 8;  // after a nap

// Watch is the timers of a slave and what it did lately.
struct Watch {
  timer_t slice, soon;
  long nap = kFirstNap;
  unsigned long polls_since = 0;         // CPU time at the end of the last nap
  int polls = kMostPolls;                // since then
  std::array<std::uintptr_t, 8> seen{};  // states of its registers
  std::size_t next = 0;
  unsigned arrivals = 0;
};
thread_local Watch watch;

// The program's own code.
std::uintptr_t code_begin, code_end;

void find_code() {
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void*) {
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          const auto& part = info->dlpi_phdr[i];
          if (part.p_type != PT_LOAD || (part.p_flags & PF_X) == 0) continue;
          code_begin = info->dlpi_addr + part.p_vaddr;
          code_end = code_begin + part.p_memsz;
        }
        return 1;  // only the program itself
      },
      nullptr);
}

void interrupt_soon() {
  const itimerspec soon{{0, 0}, {0, 2 * kPoll}};
  timer_settime(watch.soon, 0, &soon, nullptr);
}

// was_seen() returns whether the slave had these registers at one of the last
// interrupts.
bool was_seen(const greg_t* registers) {
  std::uintptr_t state = 0;
  for (int i = REG_R8; i <= REG_RIP; ++i) {
    state = (state ^ static_cast<std::uintptr_t>(registers[i])) *
            0x9e3779b97f4a7c15u;
    state ^= state >> 29;
  }
  auto& seen = watch.seen;
  if (std::find(seen.begin(), seen.end(), state) != seen.end()) return true;
  seen[watch.next++ % seen.size()] = state;
  return false;
}

void sleep(Slave& slave) {
  const timespec time{0, watch.nap};
  slave.naps = true;
  syscall(SYS_futex, &slave.arrivals, FUTEX_WAIT_PRIVATE, watch.arrivals, &time,
          nullptr, 0);
  slave.naps = false;
  watch.nap = std::min(2 * watch.nap, kLongestNap * machine().live);
}

// is_crowded() returns whether more slaves can run than there are processors.
bool is_crowded() {
  static const auto processors =
      static_cast<int>(std::thread::hardware_concurrency());
  return machine().live - machine().waiting > processors;
}

void interrupted(int, siginfo_t*, void* context) {
  const int error = errno;
  const auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  const auto pc = static_cast<std::uintptr_t>(registers[REG_RIP]);
  Slave* const slave = self();
  if (slave == nullptr || pc < code_begin || pc >= code_end || !is_crowded()) {
    return;
  }
  const bool after_nap = watch.polls < kMostPolls;
  if (after_nap &&
      nanoseconds(CLOCK_THREAD_CPUTIME_ID) - watch.polls_since < kPoll) {
    interrupt_soon();
  } else if (was_seen(registers)) {
    const unsigned arrivals = slave->arrivals;
    if (watch.arrivals == arrivals) {
      sleep(*slave);
    } else {  // it may not have seen them yet
      watch.arrivals = arrivals;
      watch.nap = kFirstNap;
    }
    watch.polls = 0;
    watch.polls_since = nanoseconds(CLOCK_THREAD_CPUTIME_ID);
    interrupt_soon();
  } else if (after_nap) {
    ++watch.polls;
    interrupt_soon();
  } else {
    watch.nap = kFirstNap;
  }
  errno = error;
}

}  // namespace

void watch_polls() {
  static const bool possible = [] {
    struct sigaction old = {};
    sigaction(SIGURG, nullptr, &old);
    if (old.sa_handler != SIG_DFL) return false;  // the program's
    find_code();
    struct sigaction action = {};
    action.sa_sigaction = interrupted;
    action.sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK;
    return sigaction(SIGURG, &action, nullptr) == 0;
  }();
  if (!possible) return;
  sigevent event = {};
  event.sigev_notify = SIGEV_THREAD_ID;
  event.sigev_signo = SIGURG;
  event._sigev_un._tid = gettid();
  sigset_t signal;
  sigemptyset(&signal);
  sigaddset(&signal, SIGURG);
  pthread_sigmask(SIG_UNBLOCK, &signal, nullptr);
  const itimerspec slice{{0, kSlice}, {0, kSlice}};
  if (timer_create(CLOCK_MONOTONIC, &event, &watch.soon) == 0 &&
      timer_create(CLOCK_THREAD_CPUTIME_ID, &event, &watch.slice) == 0) {
    timer_settime(watch.slice, 0, &slice, nullptr);
  }
}

void end_nap(Slave& slave) noexcept {
  ++slave.arrivals;
  if (!slave.naps) return;
  syscall(SYS_futex, &slave.arrivals, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr,
          0);
}

}  // namespace swamp::sunway
