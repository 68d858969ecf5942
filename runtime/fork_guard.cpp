#include "runtime/fork_guard.h"

#include <pthread.h>

namespace swamp::runtime {
namespace {

// Written only in a child's only thread, before fork() returns there.
int generation = 0;

// Registered when swamp is loaded, not at its first use: a caller's own OpenMP
// regions may have started libgomp's pool long before.
[[gnu::constructor]] void register_fork_handler() {
  pthread_atfork(nullptr, nullptr, [] { ++generation; });
}

}  // namespace

int fork_generation() noexcept { return generation; }

}  // namespace swamp::runtime
