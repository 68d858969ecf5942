// What swamp does about the process that it runs in: fork() and
// pthread_cancel().
#ifndef SWAMP_RUNTIME_FORK_CANCEL_H_
#define SWAMP_RUNTIME_FORK_CANCEL_H_

#include <pthread.h>

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

// CancelGuard delays a pthread_cancel() of this thread until the call of swamp
// returns, because unwinding through a noexcept function would end the process.
// It makes no system call.
class CancelGuard {
 public:
  CancelGuard() noexcept {
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state_);
  }
  ~CancelGuard() { pthread_setcancelstate(state_, nullptr); }
  CancelGuard(const CancelGuard&) = delete;
  CancelGuard& operator=(const CancelGuard&) = delete;

 private:
  int state_ = PTHREAD_CANCEL_ENABLE;
};

}  // namespace swamp::runtime

#endif  // SWAMP_RUNTIME_FORK_CANCEL_H_
