// What a kernel computes for one unit, for the cost model.
#ifndef SWAMP_SLAVE_WORK_H_
#define SWAMP_SLAVE_WORK_H_

#include "slave/kernel.h"

namespace swamp {

// Work is counted from the sources of the kernels, as if they were compiled for
// vectors of 8 float32 or float64, which is what a slave of SW26010-Pro has.
struct Work {
  double operations = 0;  // on one vector: add, fused multiply-add, convert...
  double accesses = 0;    // to LDM, of at most 32 bytes

  Work& operator+=(const Work& more) noexcept {
    operations += more.operations;
    accesses += more.accesses;
    return *this;
  }
};

// work_of() returns the work of one unit of a kernel with these arguments and
// operands. slave/work.cpp defines it; a test may define its own instead.
Work work_of(KernelId kernel, const void* args,
             const Operand* operands) noexcept;

}  // namespace swamp

#endif  // SWAMP_SLAVE_WORK_H_
