/// @file
/// Communicator: the ranks (processes) that train one model together.
#ifndef SWAMP_COMMUNICATOR_H_
#define SWAMP_COMMUNICATOR_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>

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

/// Communicator connects ranks. A backend implements one function that moves
/// bytes (exchange_pieces()). The reductions are implemented here and add in
/// the order of the ranks, so every rank gets the same bits, on every backend.
///
/// All functions except rank() and size() are *collective*: every rank calls
/// the same functions in the same order, with arguments that agree, and a call
/// returns when this rank's part is done. Any thread may call, one call at a
/// time on one communicator (alone() takes any number at once).
///
/// A bad argument is an error before anything is sent; the other ranks then
/// wait until their backend's timeout. If a call fails later, its output is
/// undefined and the communicator cannot be used any more.
///
/// The functions throw Error: SWAMP_INVALID_ARGUMENT for a mistake of the
/// caller, on this rank or another, otherwise SWAMP_INTERNAL. Ranks with
/// different rounding modes or flush-to-zero settings get different sums.
class SWAMP_API Communicator {
 public:
  virtual ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  /// This rank, from 0 to size() - 1.
  virtual int rank() const noexcept = 0;
  /// How many ranks there are; at least 1.
  virtual int size() const noexcept = 0;

  /// alone() returns the communicator of a single process: calls return at
  /// once. It lives as long as the process.
  static Communicator& alone() noexcept;

  /// exchange() sends a piece to each rank and receives one from each. Pieces
  /// may have any size, including 0; both ranks must give the same size.
  /// Received pieces must not overlap sent ones, except that a rank's own piece
  /// may be received in place.
  ///
  /// @param send size() pieces: the r-th goes to rank r
  /// @param receive size() pieces: the r-th comes from rank r
  /// @throws Error SWAMP_INVALID_ARGUMENT that names the piece, for null data
  ///   or for a length that the other rank does not expect
  void exchange(const ConstBytes* send, const MutableBytes* receive);

  /// max() returns the largest value of all ranks, and nan if any rank has nan.
  /// It serves found_inf (0, a positive number or nan), so that all ranks take
  /// or skip the same steps.
  ///
  /// @param value this rank's
  /// @return the same bits on every rank
  float max(float value);

  /// max() of each entry of a list, in one exchange, for example of the amax of
  /// all tensors (swamp/scale_manager.h).
  ///
  /// @param[in,out] values this rank's; then the largest of all ranks
  /// @param count the same on every rank
  void max(float* values, std::size_t count);

  /// sum() returns value 0 + value 1 + ..., in the order of the ranks, for
  /// example for the squares of a norm.
  ///
  /// @param value this rank's
  /// @return the same bits on every rank
  double sum(double value);

  /// sum() of integers, modulo 2^64.
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

  /// all_gather_varied() is all_gather() with pieces of different lengths.
  ///
  /// @param mine this rank's piece; may lie at its own place in `all`
  /// @param bytes size() lengths, of the piece of each rank; the same on every
  ///   rank
  /// @param all the pieces one after another, in the order of the ranks
  void all_gather_varied(const void* mine, const std::size_t* bytes, void* all);

  /// require_same() refuses ranks that differ in a value that all must have,
  /// for example an option. It sends 8 bytes if they do not.
  ///
  /// @param values this rank's, as text, by name
  /// @throws Error SWAMP_INVALID_ARGUMENT on every rank, with the same text:
  ///   the first name whose value on one rank is not that of rank 0, and both
  ///   values. The communicator can be used after it.
  void require_same(const std::map<std::string, std::string>& values);

  /// require_same() of values whose text takes time to make.
  ///
  /// @param bits of all values: they differ if a value does
  /// @param values makes the text, only if the bits of two ranks differ
  /// @throws Error as above
  void require_same(
      const std::string& bits,
      const std::function<std::map<std::string, std::string>()>& values);

 protected:
  Communicator() = default;

 private:
  // Implements exchange() with the other ranks; rank()'s own piece is copied by
  // the caller. The pieces are valid, and size() is above 1.
  virtual void exchange_pieces(const ConstBytes* send,
                               const MutableBytes* receive) = 0;
};

/// launched_ranks() returns the number of ranks that this program was started
/// with, according to the environment (mpirun of Open MPI, MPICH or MVAPICH2,
/// or srun with one of their plug-ins), or 1. A program that was built without
/// MPI should refuse more than 1, because each process would train alone.
SWAMP_API int launched_ranks();

}  // namespace swamp

#endif  // SWAMP_COMMUNICATOR_H_
