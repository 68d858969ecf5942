#ifndef SWAMP_SLAVE_KERNEL_ID_H_
#define SWAMP_SLAVE_KERNEL_ID_H_

#include "swamp/kernel.h"

namespace swamp::slave {

// The ids of the kernels, in the order of kernels.inc: kUnscaleFloat16 is
// spelled kernel_id::unscale_float16.
namespace kernel_id {
enum : KernelId {
#define SWAMP_KERNEL(name, ...) name,
#include "slave/kernels.inc"
#undef SWAMP_KERNEL
  count
};
}  // namespace kernel_id

}  // namespace swamp::slave

#endif  // SWAMP_SLAVE_KERNEL_ID_H_
