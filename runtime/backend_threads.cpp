// Backend threads: one parked OS thread per slave, as on the real machine.
#include <semaphore.h>
#include <signal.h>

#include <atomic>
#include <cerrno>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "runtime/backend.h"
#include "runtime/fork_cancel.h"
#include "swamp/error.h"

namespace swamp::runtime {
namespace {

class Semaphore {
 public:
  Semaphore() noexcept { sem_init(&semaphore_, 0, 0); }
  ~Semaphore() { sem_destroy(&semaphore_); }
  Semaphore(const Semaphore&) = delete;
  Semaphore& operator=(const Semaphore&) = delete;
  void post() noexcept { sem_post(&semaphore_); }
  void wait() noexcept {
    while (sem_wait(&semaphore_) != 0 && errno == EINTR) {
    }
  }

 private:
  sem_t semaphore_;
};

// SignalsBlocked blocks signals in the threads that are started in its scope,
// so that the caller's threads handle the signals of the process. Signals that
// a thread causes itself stay unblocked, because the kernel kills a thread that
// blocks them, even if it has a handler.
class SignalsBlocked {
 public:
  SignalsBlocked() noexcept {
    sigset_t blocked;
    sigfillset(&blocked);
    for (const int signal :
         {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS}) {
      sigdelset(&blocked, signal);
    }
    pthread_sigmask(SIG_SETMASK, &blocked, &own_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &own_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t own_;
};

class ThreadsBackend final : public Backend {
 public:
  explicit ThreadsBackend(const BackendOptions& options)
      : slaves_(options.slaves),
        generation_(fork_generation()),
        start_(std::make_unique<Semaphore[]>(
            static_cast<std::size_t>(options.slaves))),
        threads_(std::make_unique<std::vector<std::thread>>()) {
    threads_->reserve(static_cast<std::size_t>(slaves_));
    const SignalsBlocked blocked;
    try {
      for (int slave = 0; slave < slaves_; ++slave) {
        threads_->emplace_back([this, slave, options] {
          if (options.bind) {
            bind_this_thread(*options.topology, slave, options.slaves);
          }
          serve(slave);
        });
      }
    } catch (const std::system_error& error) {
      const std::size_t started = threads_->size();
      stop();
      throw Error(SWAMP_OUT_OF_MEMORY, "backend threads: cannot start thread " +
                                           std::to_string(started + 1) +
                                           " of " + std::to_string(slaves_) +
                                           ": " + error.what());
    } catch (...) {
      stop();  // or the threads that run would end the process
      throw;
    }
  }

  ~ThreadsBackend() override { stop(); }

  int worker_count() const noexcept override {
    return is_parent() ? slaves_ : 1;
  }

  void run(const Launch& launch) noexcept override {
    if (launch.slaves == 1 ||
        !is_parent()) {  // a child of fork() has no slaves
      run_slaves(launch, 0, launch.slaves, 0);
      return;
    }
    // One run at a time: a slave is one thread.
    const std::lock_guard<std::mutex> lock(run_mutex_);
    launch_ = &launch;
    remaining_.store(launch.slaves, std::memory_order_relaxed);
    for (int slave = 0; slave < launch.slaves; ++slave)
      start_[slave_index(slave)].post();
    done_.wait();
  }

 private:
  static std::size_t slave_index(int slave) noexcept {
    return static_cast<std::size_t>(slave);
  }

  bool is_parent() const noexcept { return fork_generation() == generation_; }

  void serve(int slave) noexcept {
    for (;;) {
      start_[slave_index(slave)].wait();
      if (stopping_.load(std::memory_order_acquire)) return;
      run_slaves(*launch_, slave, slave + 1, slave);
      if (remaining_.fetch_sub(1, std::memory_order_acq_rel) == 1) done_.post();
    }
  }

  void stop() noexcept {
    if (!is_parent()) {
      // Joining threads that do not exist here would hang; leave the handles.
      (void)threads_.release();
      return;
    }
    stopping_.store(true, std::memory_order_release);
    for (std::size_t i = 0; i < threads_->size(); ++i) start_[i].post();
    for (std::thread& thread : *threads_) thread.join();
  }

  const int slaves_;
  const int generation_;
  std::unique_ptr<Semaphore[]> start_;
  Semaphore done_;
  std::mutex run_mutex_;
  std::atomic<int> remaining_{0};
  std::atomic<bool> stopping_{false};
  const Launch* launch_ = nullptr;
  std::unique_ptr<std::vector<std::thread>> threads_;
};

}  // namespace

std::unique_ptr<Backend> make_threads_backend(const BackendOptions& options) {
  return std::make_unique<ThreadsBackend>(options);
}

}  // namespace swamp::runtime
