// The dispatch tables: every kernel of the list, for every target this build
// was compiled for.
#include "slave/kernel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "slave/dispatch.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace swamp::slave::HWY_NAMESPACE {

#define SWAMP_KERNEL(name, ...) \
  void name(const void* args, const Tile& tile, Result& result);
#include "slave/kernels.inc"
#undef SWAMP_KERNEL

const KernelRow* kernel_rows() noexcept {
  static const KernelRow rows[] = {
#define SWAMP_KERNEL(name, ...) {#name, &name},
#include "slave/kernels.inc"
#undef SWAMP_KERNEL
  };
  return rows;
}

}  // namespace swamp::slave::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace swamp {
namespace {

KernelTable table(const char* isa, const KernelRow* rows, std::int64_t target) {
  return {isa, (hwy::SupportedTargets() & target) != 0, rows};
}

}  // namespace

KernelTables kernel_tables() noexcept {
  static const KernelTable tables[] = {
#if HWY_TARGETS & HWY_AVX3
    table("avx512", slave::N_AVX3::kernel_rows(), HWY_AVX3),
#endif
#if HWY_TARGETS & HWY_AVX2
    table("avx2", slave::N_AVX2::kernel_rows(), HWY_AVX2),
#endif
#if HWY_TARGETS & HWY_SSE4
    table("sse4", slave::N_SSE4::kernel_rows(), HWY_SSE4),
#endif
#if HWY_TARGETS & HWY_SSSE3
    table("ssse3", slave::N_SSSE3::kernel_rows(), HWY_SSSE3),
#endif
#if HWY_TARGETS & HWY_NEON
    table("neon", slave::N_NEON::kernel_rows(), HWY_NEON),
#endif
// g++ 12 cannot compile EMU128 (GCC bug, mended in 12.3) and gets SCALAR.
#if HWY_TARGETS & HWY_EMU128
    table("scalar", slave::N_EMU128::kernel_rows(), HWY_EMU128),
#elif HWY_TARGETS & HWY_SCALAR
    table("scalar", slave::N_SCALAR::kernel_rows(), HWY_SCALAR),
#endif
  };
  return {tables, sizeof tables / sizeof tables[0]};
}

}  // namespace swamp
#endif  // HWY_ONCE
