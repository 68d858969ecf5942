// Kernels at the edges of their tiles: every count, odd alignments, and not one
// byte read or written outside.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "kernel_cases.h"
#include "support/compare.h"
#include "support/guarded_pages.h"
#include "support/random.h"

namespace swamp::test {
namespace {

constexpr std::size_t kMaxCount = 200;

class KernelEdges : public testing::TestWithParam<KernelOnIsa> {
 protected:
  // A few sets of arguments: a plain factor, with and without prefetch, and one
  // that makes 0 of what lies outside of a masked vector nan.
  std::vector<const ArgsSample*> some_args() const {
    std::vector<const ArgsSample*> some;
    const std::vector<ArgsSample>& all = GetParam().kernel->args;
    for (std::size_t i = 6; i < all.size() && some.size() < 4; i += 5) {
      some.push_back(&all[i]);
    }
    if (some.empty()) {  // kernels that have only a few
      for (const ArgsSample& args : all) some.push_back(&args);
    }
    return some;
  }

  // expect_tile() tests a tile of `count` elements at `tile`, which must lie in
  // memory that may be written.
  void expect_tile(std::byte* tile, std::size_t count, const ArgsSample& args,
                   Random& random) {
    const KernelCase& kernel = *GetParam().kernel;
    const Format& format = *kernel.format;
    std::vector<std::byte> expected(count * format.bytes);
    fill_any(format, expected.data(), count, random);
    if (count != 0) std::memcpy(tile, expected.data(), expected.size());
    const KernelResult got =
        run_kernel(GetParam().function(), args, tile, count, 1000);
    const KernelResult want =
        run_kernel(kernel.reference, args, expected.data(), count, 1000);
    ASSERT_TRUE(same_result(got, want)) << "count " << count;
    ASSERT_TRUE(same_elements(format, tile, expected.data(), count,
                              format.nan_payload && args.nan_payload))
        << "count " << count;
  }
};

TEST_P(KernelEdges, EveryCountBetweenGuardBytes) {
  const std::size_t bytes = GetParam().kernel->format->bytes;
  constexpr std::size_t kGuard = 128;
  alignas(64)
      std::byte memory[kGuard + (kMaxCount + 16) * sizeof(double) + kGuard];
  Random random(1);
  for (const ArgsSample* args : some_args()) {
    SCOPED_TRACE(args->text);
    for (std::size_t count = 0; count <= kMaxCount; ++count) {
      for (const std::size_t offset : {0u, 1u, 3u, 7u, 11u}) {
        std::memset(memory, 0xa5, sizeof memory);
        std::byte* tile = memory + kGuard + offset * bytes;
        expect_tile(tile, count, *args, random);
        if (HasFatalFailure()) return;
        const std::byte* end = tile + count * bytes;
        for (const std::byte* at = memory; at < memory + sizeof memory; ++at) {
          if (at == tile && count != 0) at = end;
          ASSERT_EQ(*at, std::byte{0xa5})
              << "byte " << at - end << " behind the end of " << count;
        }
      }
    }
  }
}

TEST_P(KernelEdges, EveryCountDirectlyBeforeForbiddenMemory) {
  const std::size_t bytes = GetParam().kernel->format->bytes;
  GuardedPages pages(kMaxCount * bytes);
  Random random(2);
  for (const ArgsSample* args : some_args()) {
    for (std::size_t count = 0; count <= kMaxCount; ++count) {
      expect_tile(pages.end() - count * bytes, count, *args, random);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(KernelEdges, EveryCountDirectlyBehindForbiddenMemory) {
  GuardedPages pages(kMaxCount * GetParam().kernel->format->bytes);
  Random random(3);
  for (const ArgsSample* args : some_args()) {
    for (std::size_t count = 0; count <= kMaxCount; ++count) {
      expect_tile(pages.begin(), count, *args, random);
      if (HasFatalFailure()) return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, KernelEdges, testing::ValuesIn(kernels_on_isas()),
                         kernel_on_isa_name);

}  // namespace
}  // namespace swamp::test
