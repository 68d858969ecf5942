#include "master/mpi/session.h"

#include <mpi.h>

#include <mutex>

#include "master/mpi/check.h"
#include "swamp/error.h"

namespace swamp::mpi {
namespace {

// What the process knows of MPI; behind its mutex.
struct Process {
  std::mutex mutex;
  int sessions = 0;
  bool started_here = false;
  bool given_up = false;
};

Process& process() {
  static Process process;
  return process;
}

}  // namespace

Session::Session(bool may_start) {
  const std::lock_guard<std::mutex> lock(process().mutex);
  int finalized = 0;
  int initialized = 0;
  check(MPI_Finalized(&finalized), "MPI_Finalized");
  check(MPI_Initialized(&initialized), "MPI_Initialized");
  if (finalized != 0) {
    throw Error(SWAMP_INVALID_ARGUMENT,
                "MpiCommunicator: MPI has been finalised; it can be used only "
                "once in a process");
  }
  if (initialized == 0) {
    if (!may_start) {
      throw Error(SWAMP_INVALID_ARGUMENT,
                  "MpiCommunicator::from_fortran: MPI is not initialised");
    }
    int provided = 0;
    check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided),
          "MPI_Init_thread");
    process().started_here = true;
    check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN),
          "MPI_Comm_set_errhandler");
  }
  check(MPI_Query_thread(&level_), "MPI_Query_thread");
  require_thread();
  ++process().sessions;
}

bool Session::may_call() const noexcept {
  if (level_ >= MPI_THREAD_SERIALIZED) return true;
  int is_main = 0;
  return MPI_Is_thread_main(&is_main) == MPI_SUCCESS && is_main != 0;
}

void Session::require_thread() const {
  if (may_call()) return;
  throw Error(SWAMP_INVALID_ARGUMENT,
              "MpiCommunicator: thread: got another one than that which "
              "initialised MPI, expected that one, because MPI provides less "
              "than MPI_THREAD_SERIALIZED");
}

Session::~Session() {
  const std::lock_guard<std::mutex> lock(process().mutex);
  if (--process().sessions != 0) return;
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized != 0 || !process().started_here || process().given_up) return;
  MPI_Finalize();
}

void Session::give_up() noexcept {
  const std::lock_guard<std::mutex> lock(process().mutex);
  process().given_up = true;
}

}  // namespace swamp::mpi
