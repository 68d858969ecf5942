/// @file
/// FlatShards: one flat array in equal shards, one a rank, as FSDP's
/// FlatParameter: the last shards are padded.
#ifndef SWAMP_FLAT_SHARDS_H_
#define SWAMP_FLAT_SHARDS_H_

#include <cstddef>

#include "swamp/export.h"
#include "swamp/tensor.h"

namespace swamp {

/// FlatShards says which elements of a flat array are whose, and which are
/// padding: what lies there, be it inf or nan, is nobody's gradient and must
/// reach neither check nor norm.
class SWAMP_API FlatShards {
 public:
  /// @param count elements of the flat array, without padding
  /// @param ranks at least 1
  /// @throws Error SWAMP_INVALID_ARGUMENT for ranks below 1
  FlatShards(std::size_t count, int ranks);

  /// Elements of every rank's shard, with padding.
  std::size_t shard_count() const noexcept { return shard_count_; }
  /// Elements of all shards: shard_count() for every rank.
  std::size_t padded_count() const noexcept;
  /// The flat index of the first element of a rank's shard.
  ///
  /// @param rank from 0 to ranks - 1
  std::size_t begin(int rank) const;
  /// Elements of a rank's shard that are not padding; they come first.
  ///
  /// @param rank from 0 to ranks - 1
  std::size_t count(int rank) const;

  /// unpadded() is a rank's shard without its padding, for the functions of
  /// amp.h and foreach.h.
  ///
  /// @param shard shard_count() elements of any dtype; the caller's
  /// @param rank from 0 to ranks - 1
  /// @throws Error SWAMP_INVALID_ARGUMENT for another count, or a rank that
  ///   there is not
  Tensor unpadded(const Tensor& shard, int rank) const;

 private:
  std::size_t count_;
  int ranks_;
  std::size_t shard_count_;
};

}  // namespace swamp

#endif  // SWAMP_FLAT_SHARDS_H_
