// The tables of kernels: every ISA has every kernel, and each reference obeys
// the floating-point environment. That all have the bits of the references is
// tested with the operators (tests/master/operators_test.cpp).
#include <gtest/gtest.h>

#include <cstdint>

#include "run_kernel.h"
#include "slave/kernel_args.h"
#include "support/float_environment_scope.h"

namespace swamp::test {
namespace {

TEST(KernelTables, EveryIsaHasEveryKernelAndScalarIsThere) {
  for (const KernelTable& table : kernel_tables_here()) {
    for (const KernelInfo& info : slave::kKernels) {
      EXPECT_STREQ(table.rows[info.id].name, info.name) << table.isa;
    }
  }
  // Best first; every CPU can run the last.
  EXPECT_STREQ(kernel_tables_here().back().isa, "scalar");
}

// The modes have an effect: one product is flushed, one is rounded.
TEST(FloatEnvironment, ChangesTheResultsOfKernels) {
  const slave::UnscaleArgs args{0.7f};
  const auto run = [&](unsigned control, std::uint32_t* data) {
    data[0] = 0x00000003u;
    data[1] = 0x3f800001u;
    const ControlScope scope(control);
    run_kernel(kernel_tables_here()[0], kernel_of(F::unscale, {kFloat32}),
               &args, {data}, 2);
  };
  std::uint32_t nearest[2], flushed[2], up[2], down[2];
  run(0, nearest);
  run(kFlush, flushed);
  run(kUp, up);
  run(kDown, down);
  EXPECT_EQ(nearest[0], 2u);
  EXPECT_EQ(flushed[0], kFlush == 0 ? 2u : 0u);
  EXPECT_EQ(up[1], down[1] + 1);
}

}  // namespace
}  // namespace swamp::test
