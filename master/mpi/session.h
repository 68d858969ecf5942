#ifndef SWAMP_MASTER_MPI_SESSION_H_
#define SWAMP_MASTER_MPI_SESSION_H_

#include <mpi.h>

namespace swamp::mpi {

// Throws Error with MPI's text unless `code` is MPI_SUCCESS. `call` is the name
// of the function that returned it.
void check(int code, const char* call);

// Session keeps MPI initialised. The first one initialises MPI if the program
// has not; in that case the last one finalises it.
class Session {
 public:
  // Throws Error if MPI is finalised, or not initialised and `may_start` is
  // false, or if this thread may not call MPI.
  explicit Session(bool may_start);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Returns whether this thread may call MPI: any thread if MPI provides at
  // least MPI_THREAD_SERIALIZED, otherwise only the one that initialised it.
  bool may_call() const noexcept;
  // Throws Error if it may not.
  void require_thread() const;

  // Ranks may be gone: MPI_Finalize would wait for them, so it is not called.
  static void give_up() noexcept;

 private:
  int level_ = 0;  // thread level that MPI provides
};

}  // namespace swamp::mpi

#endif  // SWAMP_MASTER_MPI_SESSION_H_
