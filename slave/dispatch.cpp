// The dispatch tables: every kernel of the list, for every target this build
// was compiled for. On Sunway there is one, Highway's SCALAR, and this file is
// compiled twice: for the master, and for the slaves, which have no libraries.
#include "slave/kernel_list.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "slave/dispatch.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace swamp::slave::HWY_NAMESPACE {

#define SWAMP_FAMILY(name, Args, formats, ...) \
  extern const KernelFunction SWAMP_KERNEL_TABLE(name, formats)[kMaxFormats];
#include "slave/kernels.inc"
#undef SWAMP_FAMILY

constexpr const KernelFunction* kFamilyKernels[] = {
#define SWAMP_FAMILY(name, Args, formats, ...) \
  SWAMP_KERNEL_TABLE(name, formats),
#include "slave/kernels.inc"
#undef SWAMP_FAMILY
};
constexpr KernelRows kRows = kernel_rows(kFamilyKernels);

}  // namespace swamp::slave::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace swamp {

// Whether the CPU can run a target. Only x86 needs a test, and Highway's
// library for it. Highway's test of NEON would also demand AES, which swamp
// does not use and some CPUs lack.
#if HWY_ARCH_X86 && !defined(HWY_COMPILE_ONLY_SCALAR)
#define SWAMP_RUNNABLE(target) ((hwy::SupportedTargets() & (target)) != 0)
#else
#define SWAMP_RUNNABLE(target) true
#endif
#define SWAMP_TABLE(isa, name)                      \
  {                                                 \
    isa, [] { return SWAMP_RUNNABLE(HWY_##name); }, \
        slave::N_##name::kRows.rows                 \
  }

KernelTables kernel_tables() noexcept {
  static constexpr KernelTable tables[] = {
#if HWY_TARGETS & HWY_AVX3
    SWAMP_TABLE("avx512", AVX3),
#endif
#if HWY_TARGETS & HWY_AVX2
    SWAMP_TABLE("avx2", AVX2),
#endif
#if HWY_TARGETS & HWY_SSE4
    SWAMP_TABLE("sse4", SSE4),
#endif
#if HWY_TARGETS & HWY_NEON
    SWAMP_TABLE("neon", NEON),
#endif
// g++ 12 cannot compile EMU128 (a GCC bug, fixed in 12.3) and gets SCALAR.
#if HWY_TARGETS & HWY_EMU128
    SWAMP_TABLE("scalar", EMU128),
#elif HWY_TARGETS & HWY_SCALAR
    SWAMP_TABLE("scalar", SCALAR),
#endif
  };
  return {tables, sizeof tables / sizeof tables[0]};
}

}  // namespace swamp
#endif  // HWY_ONCE
