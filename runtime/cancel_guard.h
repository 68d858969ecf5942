#ifndef SWAMP_RUNTIME_CANCEL_GUARD_H_
#define SWAMP_RUNTIME_CANCEL_GUARD_H_

#include <pthread.h>

namespace swamp::runtime {

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

#endif  // SWAMP_RUNTIME_CANCEL_GUARD_H_
