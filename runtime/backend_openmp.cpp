// Backend openmp: slaves multiplexed on the caller's OpenMP threads.
#include <omp.h>

#include <algorithm>
#include <limits>

#include "runtime/backend.h"
#include "runtime/fork_cancel.h"

namespace swamp::runtime {
namespace {

class OpenmpBackend final : public Backend {
 public:
  explicit OpenmpBackend(const BackendOptions& options)
      : topology_(options.topology),
        bind_(options.bind),
        cpus_(options.topology->is_this_system
                  ? omp_get_num_procs()
                  : std::numeric_limits<int>::max()) {}

  // More threads than CPUs would not run at the same time; a synthetic topology
  // simulates as many as OpenMP is told.
  int worker_count() const noexcept override {
    // libgomp hangs in a forked child; inside a parallel region the threads
    // are already busy.
    if (fork_generation() != 0 || omp_in_parallel() != 0) return 1;
    return std::max(1, std::min(omp_get_max_threads(), cpus_));
  }

  bool has_claims() const noexcept override { return true; }

  void run(const Launch& launch) noexcept override {
    const int workers = launch.slaves == 1 ? 1 : worker_count();
    if (workers == 1) {
      run_slaves(launch, 0, launch.slaves, 0);
      return;
    }
    const bool claims = launch.claims != nullptr;
    if (claims) {
      make_claims(launch, workers);
    }
    // All of the caller's team, even if fewer threads are needed: libgomp ends
    // the threads that a smaller team does not use, and the caller's next
    // region would have to start them again.
#pragma omp parallel
    {
      const int worker = omp_get_thread_num();
      const int team = std::min(workers, omp_get_num_threads());
      if (worker < team) {
        if (bind_ && worker != 0) bind_worker(worker, team);
        if (claims) {
          run_claims(launch, worker, workers);
        } else {
          const int begin = first_slave(launch.slaves, worker, team);
          const int end = first_slave(launch.slaves, worker + 1, team);
          if (begin < end) run_slaves(launch, begin, end, worker);
        }
      }
    }
  }

 private:
  // Binds once per thread and team, and never the calling thread, because the
  // threads that it starts would inherit the binding.
  void bind_worker(int worker, int team) const noexcept {
    thread_local const OpenmpBackend* bound_by = nullptr;
    thread_local int bound_team = 0;
    if (bound_by == this && bound_team == team) return;
    bound_by = this;
    bound_team = team;
    bind_this_thread(*topology_, worker, team);
  }

  const Topology* topology_;
  bool bind_;
  int cpus_;  // kept, because omp_get_num_procs() is a system call
};

}  // namespace

std::unique_ptr<Backend> make_openmp_backend(const BackendOptions& options) {
  return std::make_unique<OpenmpBackend>(options);
}

}  // namespace swamp::runtime
