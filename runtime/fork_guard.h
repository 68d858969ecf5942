#ifndef SWAMP_RUNTIME_FORK_GUARD_H_
#define SWAMP_RUNTIME_FORK_GUARD_H_

namespace swamp::runtime {

// fork_generation() counts the forks between the process that loaded swamp and
// this one. Threads do not come along through a fork, and libgomp hangs when a
// child uses its parent's pool: what was made in another generation works
// serially.
int fork_generation() noexcept;

}  // namespace swamp::runtime

#endif  // SWAMP_RUNTIME_FORK_GUARD_H_
