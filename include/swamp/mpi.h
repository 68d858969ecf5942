/// @file
/// Ranks over MPI: the library libswamp_mpi, CMake's target swamp::mpi. It is
/// not part of swamp.h, and needs no <mpi.h> where it is included.
#ifndef SWAMP_MPI_H_
#define SWAMP_MPI_H_

#include <cstddef>
#include <memory>

#include "swamp/communicator.h"
#include "swamp/export.h"

namespace swamp {

/// MpiOptions are the options of an MpiCommunicator.
struct MpiOptions {
  /// After this many seconds in which no message has come or gone, the ranks
  /// that are waited for are given up. 0: never. Negative: what the environment
  /// variable SWAMP_MPI_TIMEOUT says, else 300.
  int timeout_seconds = -1;
  /// A longer piece is sent as several messages; from 64 to INT_MAX. Of two
  /// ranks that disagree the smaller one counts.
  std::size_t message_bytes = std::size_t{1} << 30;
};

/// MpiCommunicator joins the ranks of an MPI communicator, of which it makes
/// its own duplicate: its messages meet nobody else's.
///
/// It waits by looking again, with pauses, never inside MPI: a rank that is
/// dead or stuck becomes an Error that names it. Every failure of MPI is an
/// Error with MPI's own text. After one, this communicator and MPI are of no
/// more use in this process, the memory of the pieces must stay (MPI may still
/// use it), and the program should end with an error: its exit without
/// MPI_Finalize makes mpirun end the other ranks. Only what happens in MPI_Init
/// and MPI_Finalize themselves is out of reach.
///
/// Any thread may call, one call at a time in the whole process, which is what
/// MPI_THREAD_SERIALIZED allows. If MPI provides less, because the program has
/// initialised it so or MPI cannot do more, only the thread that initialised it
/// may call, and make and destroy an MpiCommunicator; calls of other threads
/// are errors.
class SWAMP_API MpiCommunicator final : public Communicator {
 public:
  /// All ranks of mpirun (MPI_COMM_WORLD); started without it, one. Initialises
  /// MPI if nobody has; then the last MpiCommunicator finalises it, and no
  /// other can be made afterwards. Collective.
  ///
  /// @param options of this rank
  /// @throws Error SWAMP_INVALID_ARGUMENT for a bad option or
  /// SWAMP_MPI_TIMEOUT,
  ///   on a thread that MPI does not allow to call, or when MPI has been
  ///   finalised, SWAMP_INTERNAL for a failure of MPI
  explicit MpiCommunicator(const MpiOptions& options = {});

  /// from_fortran() takes the ranks of a communicator of the program's own, in
  /// a form that is the same for every MPI and language: what MPI_Comm_c2f() or
  /// mpi4py's Comm.py2f() gives. Collective in that communicator.
  ///
  /// @param handle of an intracommunicator; stays the caller's
  /// @param options of this rank
  /// @throws Error as the constructor, also SWAMP_INVALID_ARGUMENT when MPI was
  ///   not initialised or the handle is none
  static MpiCommunicator from_fortran(int handle,
                                      const MpiOptions& options = {});

  /// Frees the duplicate, and finalises MPI where this was the last and MPI was
  /// initialised here. Does nothing of this after a failure, or when an
  /// exception is leaving the scope: both would wait for ranks that may be
  /// gone.
  ~MpiCommunicator() override;

  int rank() const noexcept override;
  int size() const noexcept override;

  /// abort_all() ends all ranks at once (MPI_Abort): for a program that cannot
  /// go on and does not want to wait for the others to notice.
  ///
  /// @param code the exit code of this process and of mpirun
  [[noreturn]] void abort_all(int code) noexcept;

  /// For swamp's own sources.
  struct Impl;

 private:
  explicit MpiCommunicator(std::unique_ptr<Impl> impl) noexcept;
  void exchange_pieces(const ConstBytes* send,
                       const MutableBytes* receive) override;

  std::unique_ptr<Impl> impl_;
};

}  // namespace swamp

#endif  // SWAMP_MPI_H_
