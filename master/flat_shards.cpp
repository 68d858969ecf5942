#include "swamp/flat_shards.h"

#include <algorithm>
#include <string>

#include "swamp/error.h"

namespace swamp {

FlatShards::FlatShards(std::size_t count, int ranks)
    : count_(count), ranks_(ranks), shard_count_(0) {
  if (ranks < 1) {
    throw Error(SWAMP_INVALID_ARGUMENT,
                "ranks: " + std::to_string(ranks) + "; expected at least 1");
  }
  const auto n = static_cast<std::size_t>(ranks);
  shard_count_ = count / n + (count % n != 0 ? 1 : 0);
}

std::size_t FlatShards::padded_count() const noexcept {
  return shard_count_ * static_cast<std::size_t>(ranks_);
}

std::size_t FlatShards::begin(int rank) const {
  if (rank < 0 || rank >= ranks_) {
    throw Error(SWAMP_INVALID_ARGUMENT, "rank: " + std::to_string(rank) +
                                            "; expected 0 to " +
                                            std::to_string(ranks_ - 1));
  }
  return shard_count_ * static_cast<std::size_t>(rank);
}

std::size_t FlatShards::count(int rank) const {
  const std::size_t first = begin(rank);
  return first >= count_ ? 0 : std::min(shard_count_, count_ - first);
}

Tensor FlatShards::unpadded(const Tensor& shard, int rank) const {
  const std::size_t real = count(rank);
  if (shard.count != shard_count_) {
    throw Error(SWAMP_INVALID_ARGUMENT,
                "shard.count: " + std::to_string(shard.count) + "; expected " +
                    std::to_string(shard_count_) + ", the padded shard");
  }
  return {shard.data, real, shard.dtype};
}

}  // namespace swamp
