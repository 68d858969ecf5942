// The kernels that count zeros: one in stream that is only read. Every element
// that is +0 or -0 is flagged.
#ifndef SWAMP_SLAVE_COUNT_ZEROS_H_
#define SWAMP_SLAVE_COUNT_ZEROS_H_

#include <cstdint>

namespace swamp::slave {

struct CountZerosArgs {
  std::uint32_t prefetch_bytes;  // how far ahead to prefetch; 0: not at all
};

}  // namespace swamp::slave

#endif  // SWAMP_SLAVE_COUNT_ZEROS_H_
