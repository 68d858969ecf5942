// Processes with unusual signals, keys, forks, cancellation and destructors;
// the argument names the case. Exits with 0 if all is well.
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "swamp/swamp.h"

namespace {

bool unscale_is_right(swamp::Machine* machine) {
  std::vector<float> values(200000, 8.0f);
  const swamp::Tensor tensors[] = {
      {values.data(), values.size(), swamp::kFloat32}};
  float found_inf = 0.0f;
  swamp::amp_foreach_non_finite_check_and_unscale_(tensors, found_inf, 0.5f,
                                                   nullptr, machine);
  return found_inf == 0.0f && values == std::vector<float>(200000, 4.0f);
}

bool scan_is_right(swamp::Machine* machine) {
  std::vector<float> values(200000, 8.0f);
  const swamp::Tensor tensors[] = {
      {values.data(), values.size(), swamp::kFloat32}};
  swamp::TensorStatistics statistics;
  swamp::scan_non_finite(tensors, &statistics, machine);
  return statistics.max == 8.0;
}

swamp::MachineConfig config(const char* backend, const char* transfer) {
  swamp::MachineConfig out;
  out.backend = backend;
  out.transfer = transfer;
  out.slaves_per_group = 4;
  return out;
}

// Late calls swamp in its destructor, after swamp's own memory of the thread
// was freed.
struct Late {
  bool active = false;
  ~Late() {
    if (active && !unscale_is_right(nullptr)) {
      std::fputs("late call: wrong result\n", stderr);
      _exit(1);
    }
  }
};
Late late_static;
thread_local Late late_thread_local;

int late_destructors() {
  setenv("SWAMP_TRANSFER", "copy", 1);
  late_static.active = true;
  std::thread([] {
    late_thread_local.active = true;
    if (!unscale_is_right(nullptr)) _exit(1);
  }).join();
  return unscale_is_right(nullptr) ? 0 : 1;
}

// A signal that every thread of the program blocks must wait for sigwait() and
// not be delivered to a slave's thread.
int signals() {
  swamp::Machine machine(config("threads", "view"));
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  kill(getpid(), SIGTERM);
  int taken = 0;
  return sigwait(&set, &taken) == 0 && taken == SIGTERM &&
                 unscale_is_right(&machine)
             ? 0
             : 1;
}

// A page that a handler maps at its first access.
struct LazyPage {
  std::byte* page;
  std::size_t bytes;
  std::atomic<int> faults;
  std::atomic<int> on_slaves;
} lazy;

void on_segv(int, siginfo_t* info, void*) {
  auto* address = static_cast<std::byte*>(info->si_addr);
  if (address < lazy.page || address >= lazy.page + lazy.bytes) _exit(3);
  mprotect(lazy.page, lazy.bytes, PROT_READ | PROT_WRITE);
  ++lazy.faults;
  lazy.on_slaves += syscall(SYS_gettid) != getpid();
}

// blocks_faults() returns whether a thread of the process blocks a signal that
// it causes itself.
bool blocks_faults() {
  std::uint64_t faults = 0;
  for (const int signal :
       {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS}) {
    faults |= std::uint64_t{1} << (signal - 1);
  }
  int threads = 0;
  for (const auto& task :
       std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream file(task.path() / "status");
    for (std::string line; std::getline(file, line);) {
      if (line.rfind("SigBlk:", 0) != 0) continue;
      ++threads;
      if ((std::stoull(line.substr(7), nullptr, 16) & faults) != 0) return true;
    }
  }
  return threads < 2;  // there are no slaves' threads
}

// The program's handler must be called for faults of slaves.
int faults() {
  swamp::Machine machine(config("threads", "view"));
  if (!unscale_is_right(&machine) || blocks_faults()) return 1;
  struct sigaction action = {};
  action.sa_sigaction = &on_segv;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &action, nullptr);
  lazy.bytes = std::size_t{1} << 20;
  lazy.page = static_cast<std::byte*>(
      mmap(nullptr, lazy.bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  const swamp::Tensor tensors[] = {
      {lazy.page, lazy.bytes / sizeof(float), swamp::kFloat32}};
  swamp::TensorStatistics statistics;
  swamp::scan_non_finite(tensors, &statistics, &machine);
  return statistics.count == tensors[0].count && statistics.max == 0.0 &&
                 lazy.faults > 0 && lazy.faults == lazy.on_slaves
             ? 0
             : 1;
}

// A program that has used up all thread-specific keys gets an error, its keys
// keep their values, and swamp works as soon as a key is free.
int keys() {
  // First: it starts OpenMP, and LLVM's aborts if it gets no key.
  swamp::Machine machine(config("serial", "view"));
  std::vector<pthread_key_t> keys;
  pthread_key_t key;
  while (pthread_key_create(&key, nullptr) == 0) keys.push_back(key);
  static int value;
  for (const pthread_key_t each : keys) pthread_setspecific(each, &value);
  for (int round = 0; round < 2; ++round) {
    try {
      unscale_is_right(&machine);
      return 1;
    } catch (const swamp::Error& error) {
      if (error.status() != SWAMP_OUT_OF_MEMORY ||
          std::strstr(error.what(), "pthread_key_create: got error ") ==
              nullptr) {
        return 1;
      }
    }
    for (const pthread_key_t each : keys) {
      if (pthread_getspecific(each) != &value) return 1;
    }
  }
  pthread_key_delete(keys.back());
  keys.pop_back();
  if (!unscale_is_right(&machine)) return 1;
  for (const pthread_key_t each : keys) {
    if (pthread_getspecific(each) != &value) return 1;
  }
  return 0;
}

// A child that is forked while another thread makes the default machine must
// not inherit a locked mutex.
int fork_while_made() {
  for (int delay = 0; delay < 4000; delay += 100) {
    const pid_t round = fork();  // a process without a default machine
    if (round == 0) {
      std::thread first([] { unscale_is_right(nullptr); });
      std::this_thread::sleep_for(std::chrono::microseconds(delay));
      const pid_t child = fork();
      if (child == 0) {
        alarm(300);
        _exit(unscale_is_right(nullptr) ? 0 : 1);
      }
      int status = 1;
      waitpid(child, &status, 0);
      first.join();
      _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 2);
    }
    int status = 1;
    waitpid(round, &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) return 1;
  }
  return 0;
}

// A cancellation that is pending when swamp is called must not end the process.
int cancel() {
  for (const char* backend : {"threads", "serial"}) {
    for (const bool own_machine : {true, false}) {
      struct Call {
        const char* backend;
        bool own_machine, done;
      } call = {backend, own_machine, false};
      pthread_t thread;
      const auto body = [](void* argument) -> void* {
        auto* it = static_cast<Call*>(argument);
        pthread_cancel(pthread_self());
        int state = 0;
        {
          if (it->own_machine) {
            swamp::Machine machine(config(it->backend, "copy"));
            it->done = unscale_is_right(&machine) && scan_is_right(&machine);
          } else {
            it->done = unscale_is_right(nullptr);
          }
        }
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
        return nullptr;
      };
      if (pthread_create(&thread, nullptr, body, &call) != 0) return 1;
      pthread_join(thread, nullptr);
      if (!call.done) return 1;
    }
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const struct {
    const char* name;
    int (*run)();
  } cases[] = {{"late_destructors", late_destructors},
               {"signals", signals},
               {"faults", faults},
               {"keys", keys},
               {"fork_while_made", fork_while_made},
               {"cancel", cancel}};
  for (const auto& one : cases) {
    if (argc == 2 && std::strcmp(argv[1], one.name) == 0) return one.run();
  }
  std::fprintf(stderr, "usage: %s CASE\n", argv[0]);
  return 2;
}
