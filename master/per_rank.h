// A value of every rank, for the time of a call.
#ifndef SWAMP_MASTER_PER_RANK_H_
#define SWAMP_MASTER_PER_RANK_H_

#include <algorithm>
#include <cstddef>
#include <vector>

namespace swamp::master {

// PerRank allocates only where there are many ranks: what a step of one process
// does should not.
template <class Value>
class PerRank {
 public:
  explicit PerRank(std::size_t ranks, const Value& value = Value())
      : ranks_(ranks) {
    if (ranks > kFew) many_.resize(ranks);
    std::fill(begin(), end(), value);
  }
  PerRank(const PerRank&) = delete;
  PerRank& operator=(const PerRank&) = delete;

  Value* data() noexcept { return ranks_ > kFew ? many_.data() : few_; }
  Value* begin() noexcept { return data(); }
  Value* end() noexcept { return data() + ranks_; }
  Value& operator[](std::size_t rank) noexcept { return data()[rank]; }
  std::size_t size() const noexcept { return ranks_; }

 private:
  static constexpr std::size_t kFew = 16;
  std::size_t ranks_;
  Value few_[kFew];
  std::vector<Value> many_;
};

}  // namespace swamp::master

#endif  // SWAMP_MASTER_PER_RANK_H_
