#ifndef SWAMP_RUNTIME_FORK_GUARD_H_
#define SWAMP_RUNTIME_FORK_GUARD_H_

#include <mutex>

namespace swamp::runtime {

// fork_generation() counts the forks between the process that loaded swamp and
// this one. Threads do not come along through a fork, and libgomp hangs when a
// child uses its parent's pool: what was made in another generation works
// serially.
int fork_generation() noexcept;

// ForkMutexes are swamp's process-wide locks. A fork() waits for them, or a
// child would find one held by a thread that it does not have. In the order in
// which they are taken.
struct ForkMutexes {
  std::mutex default_machine;
  std::mutex topology;  // also hwloc's own locks, while it is read
  std::mutex slaves;    // of the athread backend
  std::mutex reports;
};
ForkMutexes& fork_mutexes() noexcept;

}  // namespace swamp::runtime

#endif  // SWAMP_RUNTIME_FORK_GUARD_H_
