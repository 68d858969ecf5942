// The scalar references, which the kernels are tested against: one function for
// each kernel of the list, with its name and signature.
#ifndef SWAMP_SLAVE_REFERENCE_H_
#define SWAMP_SLAVE_REFERENCE_H_

#include "slave/formats.h"
#include "slave/kernel.h"

namespace swamp::slave::reference {

using namespace element;  // the formats

#define SWAMP_KERNEL(name, ...) \
  void name(const void* args, const Tile& tile, Result& result);
#include "slave/kernels.inc"
#undef SWAMP_KERNEL

}  // namespace swamp::slave::reference

#endif  // SWAMP_SLAVE_REFERENCE_H_
