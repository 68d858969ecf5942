// The scalar references: the readable truth that every kernel is tested
// against. One function per kernel of the list, same name, same signature.
#ifndef SWAMP_SLAVE_REFERENCE_H_
#define SWAMP_SLAVE_REFERENCE_H_

#include <cstddef>

#include "slave/kernel.h"

namespace swamp::slave::reference {

#define SWAMP_KERNEL(name, ...) \
  void name(const void* args, const Tile& tile, Result& result);
#include "slave/kernels.inc"
#undef SWAMP_KERNEL

}  // namespace swamp::slave::reference

#endif  // SWAMP_SLAVE_REFERENCE_H_
