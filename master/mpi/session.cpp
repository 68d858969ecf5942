#include "master/mpi/session.h"

#include <mpi.h>

#include <mutex>
#include <string>

#include "master/text.h"

namespace swamp::mpi {
namespace {

// State of MPI in this process, guarded by the mutex.
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

void check(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  std::string reason = "error " + std::to_string(code);
  if (MPI_Error_string(code, text, &length) == MPI_SUCCESS && length > 0) {
    reason.assign(text, static_cast<std::size_t>(length));
  }
  throw Error(SWAMP_INTERNAL, std::string(call) + ": " + reason);
}

Session::Session(bool may_start) {
  const std::lock_guard<std::mutex> lock(process().mutex);
  int finalized = 0;
  int initialized = 0;
  check(MPI_Finalized(&finalized), "MPI_Finalized");
  check(MPI_Initialized(&initialized), "MPI_Initialized");
  if (finalized != 0) {
    master::refuse("MpiCommunicator: MPI", "a finalised one",
                   "one that is not, because a process can initialise it only "
                   "once");
  }
  if (initialized == 0) {
    if (!may_start) {
      master::refuse("MpiCommunicator::from_fortran: MPI",
                     "one that is not initialised", "MPI_Init before");
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
  master::refuse("MpiCommunicator: thread",
                 "another one than that which initialised MPI",
                 "that one, because MPI provides less than "
                 "MPI_THREAD_SERIALIZED");
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
