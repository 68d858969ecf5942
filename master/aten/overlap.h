#ifndef SWAMP_MASTER_ATEN_OVERLAP_H_
#define SWAMP_MASTER_ATEN_OVERLAP_H_

#include <cstdint>
#include <vector>

namespace swamp::aten {

// Extent is the memory between a tensor's first and last byte; never empty.
struct Extent {
  std::uintptr_t begin;
  std::uintptr_t end;  // behind the last byte
};

// any_overlap() is true when two extents share a byte. Lists whose addresses
// rise or fall cost a look at each; others a radix sort, about 5 ns each.
// Reorders `extents`; `scratch` is memory to be used again.
bool any_overlap(std::vector<Extent>& extents, std::vector<Extent>& scratch);

}  // namespace swamp::aten

#endif  // SWAMP_MASTER_ATEN_OVERLAP_H_
