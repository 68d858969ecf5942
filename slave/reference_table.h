// The table of the scalar references, which the kernels are tested against.
#ifndef SWAMP_SLAVE_REFERENCE_TABLE_H_
#define SWAMP_SLAVE_REFERENCE_TABLE_H_

#include "slave/kernel_list.h"

namespace swamp::slave::reference {

#define SWAMP_FAMILY(name, Args, formats, ...) \
  extern const KernelFunction SWAMP_KERNEL_TABLE(name, formats)[kMaxFormats];
#include "slave/kernels.inc"
#undef SWAMP_FAMILY

// Returns the references as the rows of a KernelTable.
inline const KernelRow* reference_rows() {
  static constexpr const KernelFunction* kFamilyKernels[] = {
#define SWAMP_FAMILY(name, Args, formats, ...) \
  SWAMP_KERNEL_TABLE(name, formats),
#include "slave/kernels.inc"
#undef SWAMP_FAMILY
  };
  static constexpr KernelRows kRows = kernel_rows(kFamilyKernels);
  return kRows.rows;
}

// Returns the reference of one kernel, which must exist.
inline KernelFunction reference_of(KernelFamily family,
                                   const Formats& formats) {
  return *reference_rows()[kernel_of(family, formats)].function;
}

}  // namespace swamp::slave::reference

#endif  // SWAMP_SLAVE_REFERENCE_TABLE_H_
