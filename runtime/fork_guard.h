#ifndef SWAMP_RUNTIME_FORK_GUARD_H_
#define SWAMP_RUNTIME_FORK_GUARD_H_

#include <mutex>

namespace swamp::runtime {

// fork_generation() returns the number of forks between the process that loaded
// swamp and this one. A child has none of its parent's threads, and libgomp
// hangs if a child uses its parent's pool, so a backend that was made in
// another generation works serially.
int fork_generation() noexcept;

// ForkMutexes are swamp's process-wide locks, in the order in which they are
// locked. fork() locks them all, because a child could otherwise inherit one
// that is held by a thread that does not exist there.
struct ForkMutexes {
  std::mutex default_machine;
  std::mutex topology;  // also protects hwloc's own locks
  std::mutex slaves;    // of the athread backend
  std::mutex reports;
};
ForkMutexes& fork_mutexes() noexcept;

}  // namespace swamp::runtime

#endif  // SWAMP_RUNTIME_FORK_GUARD_H_
