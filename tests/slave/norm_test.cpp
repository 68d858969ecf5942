// The norm kernels: lanes do not depend on the division of a tensor into tiles.
// The norm of lists is in tests/master/foreach_norm_test.cpp.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "run_kernel.h"
#include "slave/kernel_args.h"
#include "support/formats.h"
#include "support/random.h"

namespace swamp::test {
namespace {

using slave::NormArgs;
using slave::NormPartial;

// NormRun is a grain: tiles of tensors, one after another.
class NormRun {
 public:
  NormRun(const KernelTable& table, KernelId kernel, float inv_scale)
      : function_(*table.rows[kernel].function), args_{inv_scale} {}
  void tile(std::byte* data, std::size_t count, std::size_t first) {
    void* const operands[] = {data};
    function_(&args_, Tile{operands, count, first, &partial_, 0, 512}, result_);
  }
  const NormPartial& partial() const { return partial_; }
  const Result& result() const { return result_; }

 private:
  KernelFunction function_;
  NormArgs args_;
  NormPartial partial_{};
  Result result_;
};

std::vector<std::byte> ordinary(const Format& format, std::size_t count,
                                Random& random) {
  std::vector<std::byte> data(count * format.bytes);
  fill_ordinary(format, data.data(), count, random);
  return data;
}

void expect_same(const NormPartial& actual, const NormPartial& expected) {
  for (int lane = 0; lane < NormPartial::kLanes; ++lane) {
    ASSERT_EQ(actual.lanes[lane], expected.lanes[lane]) << "lane " << lane;
  }
}

TEST(Norm, LanesDoNotDependOnTilesOrIsa) {
  constexpr std::size_t kElements = 5003;
  for (const Format* format : kAllFormats) {
    const KernelId id = kernel_of(F::norm, {format->type});
    SCOPED_TRACE(format->name);
    Random random(id);
    std::vector<std::byte> data = ordinary(*format, kElements, random);
    const std::size_t bytes = format->bytes;
    NormRun whole(kernel_tables_here()[0], id, 0.7f);
    whole.tile(data.data(), kElements, 0);
    whole.tile(data.data(), 100, 0);  // the grain's next tensor
    for (const KernelTable& table : kernel_tables_here()) {
      for (int round = 0; round < 50; ++round) {
        NormRun cut(table, id, 0.7f);
        for (std::size_t at = 0; at < kElements;) {
          const std::size_t left = kElements - at;
          const std::size_t next =
              1 + random.below(std::min(left, left / 8 + 9));
          cut.tile(data.data() + at * bytes, next, at);
          at += next;
        }
        cut.tile(data.data(), 37, 0);
        cut.tile(data.data() + 37 * bytes, 63, 37);
        expect_same(cut.partial(), whole.partial());
        if (HasFatalFailure()) return;
      }
    }
  }
}

// A tile of several grains gives the same partial results and flags as its
// grains one by one; the last grain may be short.
TEST(Norm, GrainsOfATileAreIndependent) {
  constexpr std::size_t kGrain = 512;
  constexpr std::size_t kBegin = 3 * kGrain;
  for (const Format* format : kAllFormats) {
    const KernelId id = kernel_of(F::norm, {format->type});
    SCOPED_TRACE(format->name);
    const std::size_t bytes = format->bytes;
    for (const KernelTable& table : kernel_tables_here()) {
      SCOPED_TRACE(table.isa);
      // The references take tiles of one grain.
      if (&table == &kernel_tables_here()[0]) continue;
      for (const std::size_t count : {std::size_t{600}, 4 * kGrain, 11 * kGrain,
                                      13 * kGrain + 37, 8 * kGrain - 1}) {
        for (const bool dirty : {false, true}) {
          Random random(id + count);
          std::vector<std::byte> data = ordinary(*format, count, random);
          // All ones in the exponent: the last element of the second grain, and
          // the first of the last one.
          if (dirty) {
            for (const std::size_t at : {std::min(count, 2 * kGrain) - 1,
                                         (count - 1) / kGrain * kGrain}) {
              store_bits(*format, data.data(), at, format->sign() - 1);
            }
          }
          const std::size_t grains = (count + kGrain - 1) / kGrain;
          std::vector<NormPartial> partials(grains);
          const NormArgs args{0.7f};
          void* const operands[] = {data.data()};
          const Tile tile{operands,        count,  kBegin,
                          partials.data(), kGrain, 512};
          Result result;
          (*table.rows[id].function)(&args, tile, result);

          std::uint64_t flagged = 0;
          std::uint64_t first_index = 0;
          for (std::size_t g = 0; g < grains; ++g) {
            NormRun alone(table, id, 0.7f);
            alone.tile(data.data() + g * kGrain * bytes,
                       std::min(kGrain, count - g * kGrain),
                       kBegin + g * kGrain);
            if (flagged == 0) first_index = alone.result().first_index;
            flagged += alone.result().flagged_elements;
            ASSERT_EQ(std::memcmp(&partials[g], &alone.partial(),
                                  sizeof(NormPartial)),
                      0)
                << "grain " << g << " of " << count;
          }
          ASSERT_EQ(result.flagged_elements, flagged);
          ASSERT_EQ(flagged != 0, dirty);
          if (dirty) {
            ASSERT_EQ(result.first_index, first_index);
          }
        }
      }
    }
  }
}

TEST(Norm, TotalAddsTheLanesAsATree) {
  NormPartial partial{};
  for (int lane = 0; lane < 16; ++lane) partial.lanes[lane] = 1 << lane;
  EXPECT_EQ(partial.total(), 65535.0);
  // 2^53 + 1 is lost, 1 + 1 is not: lanes 1 and 9 are added before lane 0.
  partial = {};
  partial.lanes[0] = 0x1p53;
  partial.lanes[1] = partial.lanes[9] = 1.0;
  EXPECT_EQ(partial.total(), 0x1p53 + 2);
}

// A lane that is not finite stays so; later elements are flagged once, and
// finite ones are not flagged.
TEST(Norm, FlagsEachTileOnceAfterAnInf) {
  const float inf = std::numeric_limits<float>::infinity();
  for (const KernelTable& table : kernel_tables_here()) {
    for (const float inv_scale : {1.0f, 0.0f, inf, 3e38f}) {
      std::vector<float> g(3000, 2.0f);
      g[700] = inf;
      g[2999] = -inf;
      NormRun run(table, kernel_of(F::norm, {kFloat32}), inv_scale);
      for (std::size_t at = 0; at < g.size(); at += 500) {
        run.tile(reinterpret_cast<std::byte*>(g.data() + at), 500, at);
      }
      EXPECT_EQ(run.result().flagged_elements, 2u) << table.isa;
      EXPECT_EQ(run.result().first_index, 700u);
    }
  }
}

}  // namespace
}  // namespace swamp::test
