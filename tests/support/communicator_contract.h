#ifndef SWAMP_TESTS_SUPPORT_COMMUNICATOR_CONTRACT_H_
#define SWAMP_TESTS_SUPPORT_COMMUNICATOR_CONTRACT_H_

// The contract of every communicator: each function is called by all ranks at
// once. Expected values are computed here, serially, in the order of the ranks.
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "support/errors.h"
#include "support/random.h"
#include "swamp/communicator.h"

namespace swamp::test {

inline std::size_t ranks_of(const Communicator& ranks) {
  return static_cast<std::size_t>(ranks.size());
}
inline std::size_t rank_of(const Communicator& ranks) {
  return static_cast<std::size_t>(ranks.rank());
}

template <class Value>
std::uint64_t bits_of(Value value) {
  std::uint64_t bits = 0;
  static_assert(sizeof(value) <= sizeof(bits));
  std::memcpy(&bits, &value, sizeof(value));
  return bits;
}

// The bytes that rank `from` has for rank `to`.
inline std::vector<unsigned char> message(std::size_t from, std::size_t to,
                                          std::size_t bytes) {
  Random random(from * 1000 + to);
  std::vector<unsigned char> data(bytes);
  for (unsigned char& each : data) {
    each = static_cast<unsigned char>(random.below(256));
  }
  return data;
}

// Every rank has all pieces of `bytes(from, to)` bytes after the exchange.
template <class Bytes>
void check_exchange(Communicator& ranks, Bytes bytes) {
  const std::size_t mine = rank_of(ranks);
  std::vector<std::vector<unsigned char>> out;
  std::vector<std::vector<unsigned char>> in;
  std::vector<ConstBytes> send;
  std::vector<MutableBytes> receive;
  for (std::size_t r = 0; r < ranks_of(ranks); ++r) {
    out.push_back(message(mine, r, bytes(mine, r)));
    in.emplace_back(bytes(r, mine), static_cast<unsigned char>(0xee));
    send.push_back({out[r].data(), out[r].size()});
    receive.push_back({in[r].data(), in[r].size()});
  }
  ranks.exchange(send.data(), receive.data());
  for (std::size_t r = 0; r < ranks_of(ranks); ++r) {
    EXPECT_TRUE(in[r] == message(r, mine, bytes(r, mine)))
        << "from rank " << r << " to rank " << mine << ": " << in[r].size()
        << " bytes";
    EXPECT_TRUE(out[r] == message(mine, r, bytes(mine, r))) << "sent changed";
  }
}

inline void check_exchanges(Communicator& ranks) {
  // Sizes around those of a backend's messages, and 0.
  for (const std::size_t bytes :
       {std::size_t{0}, std::size_t{1}, std::size_t{39}, std::size_t{40},
        std::size_t{41}, std::size_t{64}, std::size_t{4096},
        std::size_t{70001}}) {
    check_exchange(ranks, [=](std::size_t, std::size_t) { return bytes; });
  }
  check_exchange(ranks, [](std::size_t from, std::size_t to) {
    return (from + to) % 2 == 0 ? 0 : 100 * from + to;
  });
  check_exchange(ranks, [](std::size_t from, std::size_t to) {
    return from == 0 ? 10000 * to : std::size_t{0};
  });
}

inline void check_max(Communicator& ranks) {
  const auto mine = static_cast<float>(ranks.rank());
  EXPECT_EQ(ranks.max(mine), static_cast<float>(ranks.size() - 1));
  EXPECT_EQ(ranks.max(-mine), 0.0f);
  EXPECT_EQ(ranks.max(-1.0f - mine), -1.0f);
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(ranks.max(-inf), -inf);
  // All ranks get the inf or nan of any rank, of either sign.
  for (int at = 0; at < ranks.size(); ++at) {
    const bool here = ranks.rank() == at;
    EXPECT_EQ(ranks.max(here ? 1.0f : 0.0f), 1.0f);
    EXPECT_EQ(ranks.max(here ? inf : 1.0f), inf);
    for (const float sign : {1.0f, -1.0f}) {
      const float nan =
          std::copysign(std::numeric_limits<float>::quiet_NaN(), sign);
      EXPECT_EQ(bits_of(ranks.max(here ? nan : inf)),
                bits_of(std::numeric_limits<float>::quiet_NaN()));
    }
  }
  // A list: each rank has the largest of some entries, rank 0 also a nan.
  std::vector<float> values(ranks_of(ranks) + 2, 1.0f);
  values[rank_of(ranks)] = inf;
  values[ranks_of(ranks)] = -mine;
  if (ranks.rank() == 0) values.back() = std::nanf("");
  ranks.max(values.data(), values.size());
  for (std::size_t r = 0; r < ranks_of(ranks); ++r) EXPECT_EQ(values[r], inf);
  EXPECT_EQ(values[ranks_of(ranks)], 0.0f);
  EXPECT_TRUE(std::isnan(values.back()));
  ranks.max(nullptr, 0);
}

// Values whose sum in another order has other bits.
inline double summand(std::size_t rank) {
  const double values[] = {1e16, 1.0, -1e16, 1.0, 3.0, 0.1, 1e-20, -7.0};
  return values[rank % 8];
}

inline void check_sum(Communicator& ranks) {
  double expected = summand(0);
  double backwards = summand(ranks_of(ranks) - 1);
  for (std::size_t r = 1; r < ranks_of(ranks); ++r) {
    expected += summand(r);
    backwards += summand(ranks_of(ranks) - 1 - r);
  }
  if (ranks.size() == 4) {
    ASSERT_NE(expected, backwards);
  }
  EXPECT_EQ(bits_of(ranks.sum(summand(rank_of(ranks)))), bits_of(expected));
  EXPECT_EQ(bits_of(ranks.sum(-0.0)), bits_of(-0.0));

  const std::uint64_t large = (std::uint64_t{1} << 63) + 1;
  EXPECT_EQ(ranks.sum(large), large * ranks_of(ranks));
}

inline void check_gather(Communicator& ranks) {
  for (const std::size_t bytes :
       {std::size_t{0}, std::size_t{8}, std::size_t{1000}}) {
    const auto mine = message(rank_of(ranks), 0, bytes);
    std::vector<unsigned char> all(bytes * ranks_of(ranks));
    ranks.all_gather(mine.data(), bytes, all.data());
    std::vector<unsigned char> expected;
    for (std::size_t r = 0; r < ranks_of(ranks); ++r) {
      const auto theirs = message(r, 0, bytes);
      expected.insert(expected.end(), theirs.begin(), theirs.end());
    }
    EXPECT_TRUE(all == expected) << bytes;
  }
}

// Pieces of different length, also 0, and some already in place.
inline void check_gather_varied(Communicator& ranks) {
  std::vector<std::size_t> bytes;
  std::vector<unsigned char> expected;
  std::size_t offset = 0;
  for (std::size_t r = 0; r < ranks_of(ranks); ++r) {
    bytes.push_back(r % 3 == 1 ? 0 : 17 + 5000 * r);
    if (r == rank_of(ranks)) offset = expected.size();
    const auto theirs = message(r, 0, bytes[r]);
    expected.insert(expected.end(), theirs.begin(), theirs.end());
  }
  const auto mine = message(rank_of(ranks), 0, bytes[rank_of(ranks)]);
  std::vector<unsigned char> all(expected.size());
  ranks.all_gather_varied(mine.data(), bytes.data(), all.data());
  EXPECT_TRUE(all == expected);

  std::vector<unsigned char> in_place(expected.size());
  if (!mine.empty()) {
    std::memcpy(in_place.data() + offset, mine.data(), mine.size());
  }
  ranks.all_gather_varied(in_place.data() + offset, bytes.data(),
                          in_place.data());
  EXPECT_TRUE(in_place == expected);
}

// Every rank gets the same text: of the lowest rank that differs from rank 0,
// the first name that both have, or else the first that one has.
inline void check_require_same(Communicator& ranks) {
  using Values = std::map<std::string, std::string>;
  const Values same = {
      {"lr", "0.1"}, {"seed", ""}, {std::string("\0:3", 3), "5:"}};
  ranks.require_same(same);
  ranks.require_same({});
  const int last = ranks.size() - 1;
  if (last == 0) return;
  const std::string on = " on rank " + std::to_string(last);
  struct Row {
    Values last;
    std::string error;
  };
  for (const Row& row :
       {Row{{{"lr", "0.2"}, {"seed", "1"}},
            "lr: got 0.2" + on + ", expected 0.1 as on rank 0"},
        {{{"lr", "0.1"}, {"seed", "1"}},
         "seed: got 1" + on + ", expected  as on rank 0"},
        {{{"lr", "0.1"}, {"seed", ""}},
         "zip: got none" + on + ", expected 7 as on rank 0"},
        {{{"lr", "0.1"}, {"added", "1"}, {"seed", ""}, {"zip", "7"}},
         "added: got 1" + on + ", expected none as on rank 0"},
        {{{"lr", "9"}, {"added", "1"}},
         "lr: got 9" + on + ", expected 0.1 as on rank 0"},
        {{}, "lr: got none" + on + ", expected 0.1 as on rank 0"}}) {
    const Values others = {{"lr", "0.1"}, {"seed", ""}, {"zip", "7"}};
    EXPECT_EQ(error_of([&] {
                ranks.require_same(ranks.rank() == last ? row.last : others);
              }),
              row.error);
  }
  // Rank 0 is the one that differs: rank 1 is named.
  EXPECT_EQ(error_of([&] {
              ranks.require_same({{"lr", ranks.rank() == 0 ? "1" : "2"}});
            }),
            "lr: got 2 on rank 1, expected 1 as on rank 0");
  ranks.require_same(same);
}

inline void check_communicator(Communicator& ranks) {
  check_exchanges(ranks);
  check_max(ranks);
  check_sum(ranks);
  check_gather(ranks);
  check_gather_varied(ranks);
  check_require_same(ranks);
  ranks.barrier();
}

}  // namespace swamp::test

#endif  // SWAMP_TESTS_SUPPORT_COMMUNICATOR_CONTRACT_H_
