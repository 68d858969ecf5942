// What swamp does about the process that it runs in: fork() and
// pthread_cancel().
#ifndef SWAMP_RUNTIME_FORK_CANCEL_H_
#define SWAMP_RUNTIME_FORK_CANCEL_H_

#include <pthread.h>

#include <atomic>
#include <memory>
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

// MadeOnce holds an object that the first get() makes and that is never
// destroyed, because destructors of the caller's statics may still use it.
// libswamp has no local statics that are initialized at run time: a child that
// is forked while another thread initializes one would wait for that thread
// forever. Here several threads may make an object at once, and all get the
// same one. T need not be copyable: make() returns a new one by value.
template <typename T>
class MadeOnce {
 public:
  template <typename Make>
  T& get(Make make) {
    T* made = object_.load(std::memory_order_acquire);
    if (made == nullptr) {
      std::unique_ptr<T> mine(new T(make()));
      if (object_.compare_exchange_strong(made, mine.get(),
                                          std::memory_order_acq_rel,
                                          std::memory_order_acquire)) {
        made = mine.release();
      }
    }
    return *made;
  }

 private:
  std::atomic<T*> object_{nullptr};
};

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
