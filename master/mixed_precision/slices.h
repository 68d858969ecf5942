// What of a model's parameters an optimizer moves: all of them, or one rank's
// shard.
#ifndef SWAMP_MASTER_MIXED_PRECISION_SLICES_H_
#define SWAMP_MASTER_MIXED_PRECISION_SLICES_H_

#include <cstddef>
#include <vector>

namespace swamp::master {

// Slice is some elements of a parameter that follow each other.
struct Slice {
  std::size_t parameter;  // in the order of all groups
  std::size_t begin;
  std::size_t count;
};

// whole_slices() is every parameter, whole; `counts` are their elements.
std::vector<Slice> whole_slices(const std::vector<std::size_t>& counts);

// cut_slices() cuts the parameters into as many shards as there are ranks, of
// nearly equal size, without padding. A cut lies at an edge of the list's
// grains, and no tensor's end is cut off that is smaller than a block: so the
// grains of the shards are those of the list, and a norm adds up the same
// numbers in the same order on any number of ranks (as long as a grain is one
// block: up to kMaxGrains of them).
std::vector<std::vector<Slice>> cut_slices(
    const std::vector<std::size_t>& counts, int ranks);

}  // namespace swamp::master

#endif  // SWAMP_MASTER_MIXED_PRECISION_SLICES_H_
