// The dispatch table if there is only one target, known at compile time: on
// Sunway, for the master and, compiled once more, for the slaves. Highway has
// no such target, so it is its SCALAR; what asks the CPU (dispatch.cpp) needs
// code of the library.
#include <hwy/highway.h>

#include "slave/kernel.h"

namespace swamp::slave::HWY_NAMESPACE {

#define SWAMP_KERNEL(name, ...) \
  void name(const void* args, const Tile& tile, Result& result);
#include "slave/kernels.inc"
#undef SWAMP_KERNEL

}  // namespace swamp::slave::HWY_NAMESPACE

namespace swamp {
namespace {

constexpr KernelRow kRows[] = {
#define SWAMP_KERNEL(name, ...) {#name, &slave::HWY_NAMESPACE::name},
#include "slave/kernels.inc"
#undef SWAMP_KERNEL
};
constexpr KernelTable kTables[] = {{"scalar", true, kRows}};

}  // namespace

KernelTables kernel_tables() noexcept { return {kTables, 1}; }

}  // namespace swamp
