// Kernels against their references: every count and odd alignments, without one
// byte read or written outside the tiles, and many bit patterns.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "kernel_cases.h"
#include "slave/kernel_list.h"
#include "support/guarded_pages.h"
#include "support/random.h"

namespace swamp::test {
namespace {

constexpr std::size_t kMaxCount = 200;
constexpr std::size_t kFirst = 1000;

class KernelEdges : public testing::TestWithParam<KernelOnIsa> {
 protected:
  const std::vector<OperandCase>& operands() const {
    return GetParam().kernel->operands;
  }

  // A few sets of arguments. For unscale an ordinary factor, with and without
  // prefetch, and inf, which makes nan of zeros outside of a masked vector.
  std::vector<const ArgsSample*> some_args() const {
    std::vector<const ArgsSample*> some;
    const std::vector<ArgsSample>& all = GetParam().kernel->family.samples;
    for (std::size_t i = 6; i < all.size() && some.size() < 4; i += 5) {
      some.push_back(&all[i]);
    }
    if (some.size() < 2) {  // kernels that have only a few
      some.clear();
      for (const ArgsSample& args : all) some.push_back(&args);
    }
    return some;
  }

  // expect_tiles() tests tiles of `count` elements at `tiles`, which must lie
  // in memory that may be written.
  void expect_tiles(void* const* tiles, std::size_t count,
                    const ArgsSample& args, Random& random) {
    const KernelTiles original(*GetParam().kernel, count, fill_any, random);
    ASSERT_TRUE(run_against_reference(GetParam(), args, original, tiles,
                                      kFirst + count))
        << "count " << count << ", " << args.text;
  }
};

// Guarded is the memory of one operand's tile, surrounded by bytes that must
// not change.
class Guarded {
 public:
  static constexpr std::byte kGuard{0xa5};

  std::byte* place(std::size_t offset, std::size_t bytes) {
    std::fill(std::begin(memory_), std::end(memory_), kGuard);
    std::byte* begin = memory_ + kMargin + offset;
    begin_ = begin;
    end_ = begin + bytes;
    return begin;
  }
  bool intact() const {
    const auto is_guard = [](std::byte b) { return b == kGuard; };
    return std::all_of(std::begin(memory_), begin_, is_guard) &&
           std::all_of(end_, std::end(memory_), is_guard);
  }

 private:
  static constexpr std::size_t kMargin = 128;
  alignas(64)
      std::byte memory_[kMargin + (kMaxCount + 32) * sizeof(double) + kMargin];
  const std::byte* begin_ = memory_;
  const std::byte* end_ = memory_;
};

TEST_P(KernelEdges, EveryCountBetweenGuardBytes) {
  std::vector<Guarded> memory(operands().size());
  Random random(1);
  for (const ArgsSample* args : some_args()) {
    for (std::size_t count = 0; count <= kMaxCount; ++count) {
      for (const std::size_t offset : {0u, 1u, 3u, 7u, 11u}) {
        void* tiles[kMaxOperands] = {};
        for (std::size_t s = 0; s < operands().size(); ++s) {
          const std::size_t bytes = operands()[s].format->bytes;
          tiles[s] =
              memory[s].place((offset + 5 * s) % 17 * bytes, count * bytes);
        }
        expect_tiles(tiles, count, *args, random);
        if (HasFatalFailure()) return;
        for (std::size_t s = 0; s < operands().size(); ++s) {
          ASSERT_TRUE(memory[s].intact())
              << "operand " << s << ", count " << count << ", " << args->text;
        }
      }
    }
  }
}

class KernelPages : public KernelEdges {
 protected:
  // expect_every_count() puts the tiles at the ends of pages, or the
  // beginnings.
  void expect_every_count(bool at_end) {
    std::vector<std::unique_ptr<GuardedPages>> pages;
    for (const OperandCase& operand : operands()) {
      pages.push_back(
          std::make_unique<GuardedPages>(kMaxCount * operand.format->bytes));
    }
    Random random(2);
    for (const ArgsSample* args : some_args()) {
      for (std::size_t count = 0; count <= kMaxCount; ++count) {
        void* tiles[kMaxOperands] = {};
        for (std::size_t s = 0; s < operands().size(); ++s) {
          tiles[s] = at_end
                         ? pages[s]->end() - count * operands()[s].format->bytes
                         : pages[s]->begin();
        }
        expect_tiles(tiles, count, *args, random);
        if (HasFatalFailure()) return;
      }
    }
  }
};

TEST_P(KernelPages, EveryCountDirectlyBeforeForbiddenMemory) {
  expect_every_count(true);
}

TEST_P(KernelPages, EveryCountAfterForbiddenMemory) {
  expect_every_count(false);
}

// Operands that are only read may be in read-only memory.
TEST_P(KernelPages, ReadsReadOnlyMemory) {
  const KernelCase& kernel = *GetParam().kernel;
  Random random(3);
  const KernelTiles original(kernel, kMaxCount - 1, fill_any, random);
  KernelTiles actual = original;
  std::vector<std::unique_ptr<GuardedPages>> pages;
  void* tiles[kMaxOperands] = {};
  for (std::size_t s = 0; s < operands().size(); ++s) {
    tiles[s] = actual.operand(s);
    if (operands()[s].access != Access::in) continue;
    pages.push_back(std::make_unique<GuardedPages>(original.bytes(s)));
    tiles[s] = pages.back()->begin();
    std::copy_n(original.operand(s), original.bytes(s), pages.back()->begin());
    pages.back()->make_read_only();
  }
  for (const ArgsSample* args : some_args()) {
    run_kernel(kernel, GetParam().function(), *args, tiles, original.count());
  }
}

INSTANTIATE_TEST_SUITE_P(All, KernelEdges, testing::ValuesIn(kernels_on_isas()),
                         kernel_on_isa_name);
INSTANTIATE_TEST_SUITE_P(All, KernelPages, testing::ValuesIn(kernels_on_isas()),
                         kernel_on_isa_name);

// ---- Every kernel against its scalar reference, on many bit patterns.

class KernelPatterns : public testing::TestWithParam<KernelOnIsa> {
 protected:
  const KernelCase& kernel() const { return *GetParam().kernel; }

  // expect_reference() runs kernel and reference with every sample of
  // arguments.
  void expect_reference(const KernelTiles& original) {
    for (const ArgsSample& args : kernel().family.samples) {
      ASSERT_TRUE(run_against_reference(GetParam(), args, original, 77))
          << args.text;
    }
  }
};

TEST_P(KernelPatterns, RowIsTheKernelOfItsName) {
  const KernelOnIsa& param = GetParam();
  EXPECT_STREQ(param.table->rows[param.kernel->id].name, param.kernel->name);
}

TEST_P(KernelPatterns, EveryPatternOfANarrowFormat) {
  const unsigned bytes = kernel().operands[0].format->bytes;
  if (bytes > 2) return;
  std::vector<std::uint64_t> input(std::size_t{1} << (8 * bytes));
  for (std::size_t i = 0; i < input.size(); ++i) input[i] = i;
  Random random(1);
  KernelTiles tiles(kernel(), input.size(), fill_ordinary, random);
  tiles.set(input);
  expect_reference(tiles);
}

TEST_P(KernelPatterns, SpecialAndRandomPatterns) {
  Random random(7013);
  KernelTiles tiles(kernel(), 7013, fill_any, random);
  tiles.set(special_bits(*kernel().operands[0].format));
  expect_reference(tiles);
}

// Without inf and nan, so that the kernels' fast path runs.
TEST_P(KernelPatterns, FinitePatterns) {
  Random random(7019);
  expect_reference(KernelTiles(kernel(), 7019, fill_finite, random));
}

// Tiles in which a kernel flags nothing, and one element at every position: 4
// vectors of the widest ISA are 128 halves, and counts exceed that by every
// possible length of a tail.
TEST_P(KernelPatterns, FlagsOneElementAtEveryPosition) {
  if (kernel().family.flagged == Flagged::nothing) return;
  const Format& format = *kernel().operands[0].format;
  const bool zeros = kernel().family.flagged == Flagged::zeros;
  const std::uint64_t marks[] = {zeros ? 0 : format.infinity(),
                                 zeros ? format.sign() : format.quiet_nan(),
                                 zeros ? 0 : format.infinity() | 1};
  // The third of many: the first of unscale is 1, which multiplies nothing.
  const std::vector<ArgsSample>& samples = kernel().family.samples;
  const ArgsSample& args =
      samples[std::min<std::size_t>(2, samples.size() - 1)];
  Random random(4);
  for (const std::size_t count : {1u, 2u, 7u, 31u, 66u, 100u, 159u, 167u}) {
    for (std::size_t at = 0; at <= count; ++at) {
      KernelTiles tiles(kernel(), count, fill_finite, random);
      std::vector<std::uint64_t> bits(count);
      for (std::size_t i = 0; i < count; ++i) {
        bits[i] = load_bits(format, tiles.operand(0), i) | (zeros ? 1 : 0);
        if (i == at)
          bits[i] = marks[at % 3] | (at % 2 == 0 ? format.sign() : 0);
      }
      tiles.set(bits);
      const KernelResult found = tiles.run(GetParam().function(), args, kFirst);
      ASSERT_EQ(found.flagged_elements, at < count ? 1u : 0u);
      ASSERT_EQ(found.first_index, at < count ? kFirst + at : 0);
    }
  }
}

// Near 1 in all operands, so that every term of a sum affects the last bits.
TEST_P(KernelPatterns, OrdinaryPatterns) {
  Random random(7027);
  expect_reference(KernelTiles(kernel(), 7027, fill_ordinary, random));
}

// Some zeros of both signs among ordinary elements, as in real gradients.
TEST_P(KernelPatterns, OrdinaryPatternsAndZeros) {
  const auto fill = [](const Format& format, void* data, std::size_t count,
                       Random& random) {
    fill_ordinary(format, data, count, random);
    for (std::size_t i = 0; i < count; i += 1 + random.below(9)) {
      store_bits(format, data, i, random.below(2) * format.sign());
    }
  };
  Random random(7039);
  expect_reference(KernelTiles(kernel(), 7039, fill, random));
}

INSTANTIATE_TEST_SUITE_P(All, KernelPatterns,
                         testing::ValuesIn(kernels_on_isas()),
                         kernel_on_isa_name);

TEST(KernelTables, EveryIsaHasEveryKernelAndScalarIsThere) {
  // Those of row operators have tests of their own.
  std::size_t count = 0;
#define SWAMP_ROW_FAMILY(...)
#define SWAMP_FAMILY(name, ...)      \
  count += static_cast<std::size_t>( \
      slave::info_of(KernelFamily::name).kernel_count);
#include "slave/kernels.inc"
#undef SWAMP_FAMILY
  EXPECT_EQ(kernel_cases().size(), count);
  ASSERT_FALSE(runnable_tables().empty());
  // Best first; every CPU can run the last.
  EXPECT_STREQ(runnable_tables().back()->isa, "scalar");
}

}  // namespace
}  // namespace swamp::test
