#ifndef SWAMP_MASTER_MPI_SESSION_H_
#define SWAMP_MASTER_MPI_SESSION_H_

namespace swamp::mpi {

// Session is a share in MPI being initialised. The first one initialises it
// where nobody has, and then the last one finalises it.
class Session {
 public:
  // Throws Error when MPI is finalised, or not initialised and `may_start` is
  // false, or when this thread may not call MPI.
  explicit Session(bool may_start);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // may_call() returns whether MPI allows calls of this thread: those of any
  // thread from MPI_THREAD_SERIALIZED on, below it only those of the thread
  // that initialised MPI.
  bool may_call() const noexcept;
  // require_thread() throws Error if it does not.
  void require_thread() const;

  // give_up() says that ranks may be gone: MPI_Finalize would wait for them,
  // and is never called.
  static void give_up() noexcept;

 private:
  int level_ = 0;  // that MPI provides, which may be less than was asked for
};

}  // namespace swamp::mpi

#endif  // SWAMP_MASTER_MPI_SESSION_H_
