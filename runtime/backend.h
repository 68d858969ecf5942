// A backend stands for the slave cores with the threads it has. Each has one
// file, backend_NAME.cpp, that fills these few functions.
#ifndef SWAMP_RUNTIME_BACKEND_H_
#define SWAMP_RUNTIME_BACKEND_H_

#include <cstddef>
#include <memory>

#include "runtime/job.h"
#include "runtime/topology.h"

namespace swamp::runtime {

// WorkerEntry runs slaves [slave_begin, slave_end) one after another on the
// calling OS thread, which is number `worker` of this run.
using WorkerEntry = void (*)(void* context, int slave_begin, int slave_end,
                             int worker) noexcept;

class Backend {
 public:
  Backend() = default;
  virtual ~Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;

  // worker_count() bounds the `worker` of a run from the calling thread.
  virtual int worker_count() const noexcept = 0;

  // run() runs slaves [0, slave_count) and returns when all have ended: spawn
  // and join. Any thread may call it, also several at once.
  virtual void run(int slave_count, WorkerEntry entry,
                   void* context) noexcept = 0;

  // run_job() does the same. Slaves that run no code of the master's side do it
  // by their own, and find in `job` all that `entry` finds in `context`.
  virtual void run_job(const RemoteJob& job, WorkerEntry entry,
                       void* context) noexcept {
    run(job.job.slaves, entry, context);
  }

  // ldm_limit() bounds what a slave has for tiles, whatever was asked for.
  virtual std::size_t ldm_limit() const noexcept { return ~std::size_t{0}; }
};

struct BackendOptions {
  int slaves;                // of the whole machine
  bool bind;                 // SWAMP_BIND=core
  const Topology* topology;  // outlives the backend
};

// BackendRow is a backend this build has. The list is in backend.cpp, the
// default first.
struct BackendRow {
  const char* name;
  std::unique_ptr<Backend> (*make)(const BackendOptions& options);
  // The machine that the slaves are, where they are no threads of the host: the
  // default there. Transfers are then real ones, and `view` means `copy`.
  const char* machine = nullptr;
};
struct BackendRows {
  const BackendRow* rows;
  std::size_t count;
};
BackendRows backend_rows() noexcept;

std::unique_ptr<Backend> make_athread_backend(const BackendOptions& options);
std::unique_ptr<Backend> make_openmp_backend(const BackendOptions& options);
std::unique_ptr<Backend> make_serial_backend(const BackendOptions& options);
std::unique_ptr<Backend> make_threads_backend(const BackendOptions& options);

}  // namespace swamp::runtime

#endif  // SWAMP_RUNTIME_BACKEND_H_
