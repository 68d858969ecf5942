/// @file
/// Ranks: the processes that train one model together, alone or over MPI.
#ifndef SWAMP_COMMUNICATOR_H_
#define SWAMP_COMMUNICATOR_H_

#include <cstddef>
#include <cstdint>

#include "swamp/error.h"
#include "swamp/export.h"

namespace swamp {

/// ConstBytes is a piece of memory that is sent; not owned.
struct ConstBytes {
  const void* data = nullptr;  ///< may be null when bytes is 0
  std::size_t bytes = 0;       ///< how many
};

/// MutableBytes is a piece of memory that is received into; not owned.
struct MutableBytes {
  void* data = nullptr;   ///< may be null when bytes is 0
  std::size_t bytes = 0;  ///< how many
};

/// Communicator joins ranks. A backend brings one function that moves bytes
/// (exchange_pieces()); the reductions are written here, once, and fold in the
/// order of the ranks: every rank gets the same bits, on every backend.
///
/// All but rank() and size() are *collective*: every rank calls the same
/// functions in the same order, with arguments that fit together, and a call
/// returns when this rank's part is done. Any thread may call, one call at a
/// time on one communicator (alone() takes any number at once).
///
/// A bad argument is found before anything is sent; the other ranks then wait
/// in vain, until their backend gives up. When a call has failed after that,
/// what it was to write is undefined, and the communicator is of no more use.
///
/// Thrown is Error: SWAMP_INVALID_ARGUMENT for what a caller did wrong, here or
/// on another rank, else SWAMP_INTERNAL. Ranks that sum with different rounding
/// modes or flush-to-zero get different sums.
class SWAMP_API Communicator {
 public:
  virtual ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  /// This rank, from 0 to size() - 1.
  virtual int rank() const noexcept = 0;
  /// How many ranks there are; at least 1.
  virtual int size() const noexcept = 0;

  /// alone() is the only rank of one: nobody is asked, nothing waits. It lives
  /// as long as the process.
  static Communicator& alone() noexcept;

  /// exchange() sends a piece to each rank and receives one from each. Pieces
  /// may have any size, also 0; what one rank sends is as long as what the
  /// other expects. What is received must not overlap what is sent, but that a
  /// rank's own piece may be received where it lies.
  ///
  /// @param send size() pieces: the r-th goes to rank r
  /// @param receive size() pieces: the r-th comes from rank r
  /// @throws Error SWAMP_INVALID_ARGUMENT that names the piece, for null data
  ///   or for a length that the other rank does not expect
  void exchange(const ConstBytes* send, const MutableBytes* receive);

  /// max() is the largest value of all ranks, and nan when one of them has nan:
  /// for found_inf (0, a positive number or nan), so that all ranks take or
  /// skip the same steps.
  ///
  /// @param value this rank's
  /// @return the same bits on every rank
  float max(float value);

  /// sum() is value 0 + value 1 + ..., in the order of the ranks: for the
  /// squares of a norm.
  ///
  /// @param value this rank's
  /// @return the same bits on every rank
  double sum(double value);

  /// sum() of whole numbers, modulo 2^64.
  ///
  /// @param value this rank's
  std::uint64_t sum(std::uint64_t value);

  /// barrier() returns when every rank has called it.
  void barrier();

  /// all_gather() gives every rank the pieces of all, of equal length.
  ///
  /// @param mine this rank's piece; may lie at its own place in `all`
  /// @param bytes of one piece; the same on every rank
  /// @param all size() * bytes bytes: the pieces, in the order of the ranks
  void all_gather(const void* mine, std::size_t bytes, void* all);

  /// all_gather_varied() does so with pieces of different length.
  ///
  /// @param mine this rank's piece; may lie at its own place in `all`
  /// @param bytes size() lengths, of the piece of each rank; the same on every
  ///   rank
  /// @param all the pieces one after another, in the order of the ranks
  void all_gather_varied(const void* mine, const std::size_t* bytes, void* all);

 protected:
  Communicator() = default;

 private:
  // exchange_pieces() does exchange() with the other ranks; rank()'s own piece
  // is none of its business. The pieces are valid, and it is never called for
  // one rank alone.
  virtual void exchange_pieces(const ConstBytes* send,
                               const MutableBytes* receive) = 0;
};

/// launched_ranks() is how many ranks the environment says that this program
/// was started as (by mpirun of Open MPI, MPICH or MVAPICH2, or by srun with
/// one of their plug-ins); 1 when it says nothing. A program that was built
/// without MPI refuses more than 1: each of its processes would train alone.
SWAMP_API int launched_ranks();

}  // namespace swamp

#endif  // SWAMP_COMMUNICATOR_H_
