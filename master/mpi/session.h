#ifndef SWAMP_MASTER_MPI_SESSION_H_
#define SWAMP_MASTER_MPI_SESSION_H_

namespace swamp::mpi {

// Session is a share in MPI being initialised. The first one initialises it
// where nobody has, and then the last one finalises it.
class Session {
 public:
  // Throws Error when MPI is finalised, or not initialised and `may_start` is
  // false.
  explicit Session(bool may_start);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // give_up() says that ranks may be gone: MPI_Finalize would wait for them,
  // and is never called.
  static void give_up() noexcept;
};

}  // namespace swamp::mpi

#endif  // SWAMP_MASTER_MPI_SESSION_H_
