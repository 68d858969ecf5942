// Ordinary data raises no "invalid operation" on any ISA: a caller may have
// unmasked it.
#include <gtest/gtest.h>

#include <cfenv>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "slave/kernel_id.h"
#include "slave/unscale.h"
#include "swamp/kernel.h"

namespace swamp::test {
namespace {

template <class T>
void expect_no_invalid(KernelId kernel, T value, float inv_scale) {
  const KernelTables tables = kernel_tables();
  for (std::size_t t = 0; t < tables.count; ++t) {
    if (!tables.tables[t].runnable) continue;
#ifdef __clang__
    // clang vectorises the plain loops of EMU128 and computes on lanes that
    // nobody asked for; it does not know of flags.
    if (std::strcmp(tables.tables[t].isa, "scalar") == 0) continue;
#endif
    const KernelRow& row = tables.tables[t].rows[kernel];
    for (std::size_t count = 1; count < 300; ++count) {
      std::vector<T> data(count, value);
      void* tiles[] = {data.data()};
      const slave::UnscaleArgs args{inv_scale, 0};
      Result result;
      std::feclearexcept(FE_ALL_EXCEPT);
      row.function(&args, tiles, count, 0, result);
      ASSERT_EQ(std::fetestexcept(FE_INVALID), 0)
          << row.name << " " << tables.tables[t].isa << " " << count;
    }
  }
}

TEST(FloatFlags, OrdinaryDataIsNotInvalid) {
  namespace id = slave::kernel_id;
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const float inv_scale : {0.5f, kInf, 0.0f}) {
    expect_no_invalid<std::uint16_t>(id::unscale_float16, 0x6be8, inv_scale);
    expect_no_invalid<std::uint16_t>(id::unscale_bfloat16, 0x457a, inv_scale);
    expect_no_invalid<float>(id::unscale_float32, 4000.0f, inv_scale);
    expect_no_invalid<double>(id::unscale_float64, 4000.0, inv_scale);
  }
}

}  // namespace
}  // namespace swamp::test
