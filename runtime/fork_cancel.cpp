#include "runtime/fork_cancel.h"

#include <pthread.h>

namespace swamp::runtime {
namespace {

// Written only in a child's only thread, before fork() returns there.
int generation = 0;

ForkMutexes mutexes;

void lock_all() {
  mutexes.default_machine.lock();
  mutexes.topology.lock();
  mutexes.slaves.lock();
  mutexes.reports.lock();
}

void unlock_all() {
  mutexes.reports.unlock();
  mutexes.slaves.unlock();
  mutexes.topology.unlock();
  mutexes.default_machine.unlock();
}

// Registered when swamp is loaded, not at its first use, because the caller's
// own OpenMP regions may start libgomp's pool before that.
[[gnu::constructor]] void register_fork_handlers() {
  pthread_atfork(&lock_all, &unlock_all, [] {
    unlock_all();
    ++generation;
  });
}

}  // namespace

int fork_generation() noexcept { return generation; }

ForkMutexes& fork_mutexes() noexcept { return mutexes; }

}  // namespace swamp::runtime
