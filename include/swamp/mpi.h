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
  /// A call fails after this many seconds in which no rank joined it, and none
  /// of its messages ended. 0: never.
  /// Negative: the environment variable SWAMP_MPI_TIMEOUT, or 300 if it is
  /// unset.
  int timeout_seconds = -1;
  /// A longer piece is sent as several messages, one in each collective; from
  /// 64 to INT_MAX. If ranks differ, the smallest value is used.
  std::size_t message_bytes = std::size_t{1} << 30;
};

/// MpiCommunicator connects the ranks of an MPI communicator. It uses a
/// duplicate of its own, so that its messages cannot match others.
///
/// It uses nonblocking collectives, polls with pauses and never blocks inside
/// MPI, so a dead or stuck rank becomes an Error that names it; if it is lost
/// while large pieces move, one that names the ranks of these pieces. Every
/// failure of MPI is an Error with its own text. After one, this communicator
/// and MPI cannot be used any more in this process, the memory of the pieces
/// must stay (MPI may still use it), and the program should end with an error:
/// its exit without MPI_Finalize makes mpirun end the other ranks. MPI_Init and
/// MPI_Finalize themselves may still block.
///
/// Any thread may call, one call at a time in the whole process, which is what
/// MPI_THREAD_SERIALIZED allows. If MPI provides less, only the thread that
/// initialised it may call, create and destroy an MpiCommunicator; calls from
/// other threads are errors.
class SWAMP_API MpiCommunicator final : public Communicator {
 public:
  /// All ranks of mpirun (MPI_COMM_WORLD), or one without mpirun. Initialises
  /// MPI if the program has not; then the last MpiCommunicator finalises it,
  /// and no other can be made afterwards. Collective.
  ///
  /// @param options of this rank
  /// @throws Error SWAMP_INVALID_ARGUMENT for a bad option or
  ///   SWAMP_MPI_TIMEOUT, on a thread that may not call MPI, or if MPI has been
  ///   finalised; SWAMP_INTERNAL for a failure of MPI
  explicit MpiCommunicator(const MpiOptions& options = {});

  /// from_fortran() takes a communicator of the program, as the Fortran handle
  /// that MPI_Comm_c2f() or mpi4py's Comm.py2f() returns. Collective in that
  /// communicator.
  ///
  /// @param handle of an intracommunicator; stays the caller's
  /// @param options of this rank
  /// @throws Error as the constructor, also SWAMP_INVALID_ARGUMENT if MPI is
  ///   not initialised or the handle does not belong to an intracommunicator
  static MpiCommunicator from_fortran(int handle,
                                      const MpiOptions& options = {});

  /// Frees the duplicate, and finalises MPI if this was the last one and
  /// initialised MPI. After a failure, or while an exception leaves the scope,
  /// it does neither, because both would wait for ranks that may be gone.
  ~MpiCommunicator() override;

  int rank() const noexcept override;
  int size() const noexcept override;

  /// abort_all() ends all ranks at once (MPI_Abort).
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
