// A backend runs the slaves of a launch. Each is one file, backend_NAME.cpp,
// that implements Backend::run(); backend.cpp has `serial` and the list.
#ifndef SWAMP_RUNTIME_BACKEND_H_
#define SWAMP_RUNTIME_BACKEND_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "runtime/launch.h"
#include "runtime/ldm.h"
#include "runtime/topology.h"

namespace swamp::runtime {

// LdmArenas is the LDM of slaves that are threads of the host: one arena for
// each OS thread of a launch. The calling thread owns it and allocates all
// arenas before the first slave writes.
class LdmArenas {
 public:
  // reserve() makes at least `workers` arenas of at least `bytes` each; if they
  // exist, it allocates nothing. Throws Error SWAMP_OUT_OF_MEMORY.
  void reserve(int workers, std::size_t bytes);
  // arena() returns `bytes` bytes of the arena of `worker`.
  Ldm arena(int worker, std::size_t bytes) const noexcept {
    return Ldm(arenas_[static_cast<std::size_t>(worker)].get(), bytes);
  }

 private:
  struct Free {
    void operator()(std::byte* arena) const noexcept;
  };
  std::vector<std::unique_ptr<std::byte[], Free>> arenas_;
  std::size_t bytes_ = 0;
};

// run_slaves() runs slaves [begin, end) one after another on the calling OS
// thread, which is number `worker` of this launch.
void run_slaves(const Launch& launch, int begin, int end, int worker) noexcept;

// first_slave() returns the first slave of `worker` of a team: slaves are
// divided evenly, and with fewer slaves than threads they are spread over the
// team, so that slave 0 is the caller's and neighbours have different cores.
constexpr int first_slave(int slaves, int worker, int team) noexcept {
  return static_cast<int>((static_cast<long long>(slaves) * worker + team - 1) /
                          team);
}

// make_claims() sets launch.claims, of `team` threads. Then each thread of the
// team, or of a part of it, calls run_claims(), which runs the slaves of
// `worker` and then those that the others have not begun, the nearest worker's
// first: memory that is near is likely the same core group's. Which thread runs
// a slave changes no result.
void make_claims(const Launch& launch, int team) noexcept;
void run_claims(const Launch& launch, int worker, int team) noexcept;

class Backend {
 public:
  Backend() = default;
  virtual ~Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;

  // run() is spawn and join: it runs all slaves of the launch, by run_slaves()
  // if they are threads of the host. A launch of one slave runs on the calling
  // thread. Any thread may call it, also several at once.
  virtual void run(const Launch& launch) = 0;

  // worker_count() returns the largest number of OS threads that a launch of
  // the calling thread uses.
  virtual int worker_count() const noexcept { return 1; }

  // has_claims() returns whether threads claim the slaves of a long launch,
  // which may then have more slaves than the machine.
  virtual bool has_claims() const noexcept { return false; }

  // ldm_limit() returns the largest LDM that a slave can have, in bytes.
  std::size_t ldm_limit() const noexcept { return ldm_limit_; }

 protected:
  explicit Backend(std::size_t ldm_limit) noexcept : ldm_limit_(ldm_limit) {}

 private:
  std::size_t ldm_limit_ = ~std::size_t{0};
};

struct BackendOptions {
  int slaves;                // of the whole machine
  bool bind;                 // SWAMP_BIND=core
  const Topology* topology;  // outlives the backend
};

// BackendRow is a backend of this build. The list is in backend.cpp, the
// default first.
struct BackendRow {
  const char* name;
  std::unique_ptr<Backend> (*make)(const BackendOptions& options);
  // Set if the slaves are not threads of the host: the default machine.
  // Transfers are then real, and `view` means `copy`.
  const char* machine = nullptr;
};
struct BackendRows {
  const BackendRow* rows;
  std::size_t count;
};
BackendRows backend_rows() noexcept;

std::unique_ptr<Backend> make_athread_backend(const BackendOptions& options);
std::unique_ptr<Backend> make_openmp_backend(const BackendOptions& options);
std::unique_ptr<Backend> make_threads_backend(const BackendOptions& options);

}  // namespace swamp::runtime

#endif  // SWAMP_RUNTIME_BACKEND_H_
