// The kernels that count zeros: one in stream that is only read. Every element
// that is +0 or -0 is flagged.
#ifndef SWAMP_SLAVE_COUNT_ZEROS_H_
#define SWAMP_SLAVE_COUNT_ZEROS_H_

#include <cstdint>

namespace swamp::slave {

struct CountZerosArgs {};

}  // namespace swamp::slave

#endif  // SWAMP_SLAVE_COUNT_ZEROS_H_
