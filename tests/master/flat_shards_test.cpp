// Flat padded shards, as FSDP's: padding is never an overflow.
#include "swamp/flat_shards.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "swamp/amp.h"
#include "swamp/error.h"
#include "swamp/float_formats.h"
#include "swamp/foreach.h"

namespace swamp::test {
namespace {

TEST(FlatShards, CoverTheArrayOnce) {
  for (const std::size_t count : {0u, 1u, 3u, 4u, 5u, 1000u}) {
    for (const int ranks : {1, 2, 3, 4, 7}) {
      const FlatShards shards(count, ranks);
      std::size_t next = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        EXPECT_EQ(shards.begin(rank),
                  shards.shard_count() * static_cast<std::size_t>(rank));
        if (shards.count(rank) != 0) {
          EXPECT_EQ(shards.begin(rank), next);
        }
        next += shards.count(rank);
      }
      EXPECT_EQ(next, count);
      EXPECT_GE(shards.padded_count(), count);
      EXPECT_LT(shards.padded_count(), count + static_cast<std::size_t>(ranks));
    }
  }
}

// FSDP's _post_reduction_hook on every rank: the reduced float16 gradient is
// divided, cast to float32, unscaled and checked, with nan in the padding.
TEST(FlatShards, PaddingIsNeverAnOverflow) {
  constexpr int kRanks = 4;
  const FlatShards shards(10, kRanks);  // 3, 3, 3 and 1 with 2 of padding
  const std::uint16_t nan = float16_from_float(std::nanf(""));
  for (int rank = 0; rank < kRanks; ++rank) {
    std::vector<std::uint16_t> reduced(shards.shard_count(), nan);
    std::vector<float> main(shards.shard_count(),
                            std::numeric_limits<float>::infinity());
    for (std::size_t i = 0; i < shards.count(rank); ++i) {
      reduced[i] = float16_from_float(static_cast<float>(i + 1));
    }
    const Tensor gradient =
        shards.unpadded({reduced.data(), reduced.size(), kFloat16}, rank);
    const Tensor sum =
        shards.unpadded({main.data(), main.size(), kFloat32}, rank);
    foreach_cast_(sum, gradient, kRanks);
    float found_inf = 0;
    amp_foreach_non_finite_check_and_unscale_(sum, found_inf, 0.5f);
    EXPECT_EQ(found_inf, 0.0f);
    EXPECT_TRUE(std::isfinite(foreach_norm(sum)));
    for (std::size_t i = 0; i < main.size(); ++i) {
      if (i < shards.count(rank)) {
        EXPECT_EQ(main[i], static_cast<float>(i + 1) / kRanks / 2);
      } else {
        EXPECT_EQ(main[i], std::numeric_limits<float>::infinity());
      }
    }
  }
}

// The quotient of a 16-bit gradient is rounded to 16 bits, then cast.
TEST(FlatShards, PostDivideRoundsBeforeTheCast) {
  std::uint16_t gradient = float16_from_float(1);
  float out = 0;
  foreach_cast_(Tensor{&out, 1, kFloat32}, Tensor{&gradient, 1, kFloat16}, 3);
  EXPECT_EQ(out, float16_to_float(float16_from_float(1.0f / 3)));
}

TEST(FlatShards, Refuses) {
  EXPECT_THROW(FlatShards(3, 0), Error);
  const FlatShards shards(10, 4);
  EXPECT_THROW(shards.begin(4), Error);
  EXPECT_THROW(shards.count(-1), Error);
  EXPECT_THROW(shards.unpadded({nullptr, 2, kFloat32}, 0), Error);
}

}  // namespace
}  // namespace swamp::test
