#ifndef SWAMP_MASTER_CLI_RANDOM_H_
#define SWAMP_MASTER_CLI_RANDOM_H_

#include <cstdint>

namespace swamp::cli {

// Random is splitmix64 (Steele, Lea, Flood 2014). The distributions are ours
// too: those of <random> differ between libraries, and with them the weights.
class Random {
 public:
  explicit Random(std::uint64_t seed) noexcept : state_(seed) {}

  // state() is the seed with which another one goes on as this one.
  std::uint64_t state() const noexcept { return state_; }

  std::uint64_t next() noexcept {
    state_ += 0x9e3779b97f4a7c15u;
    std::uint64_t mixed = state_;
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9u;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebu;
    return mixed ^ (mixed >> 31);
  }

  // below() is uniform in 0..count-1; count > 0.
  std::uint64_t below(std::uint64_t count) noexcept {
    // The values under 2^64 mod count are too many for a fair remainder.
    const std::uint64_t unfair = (0 - count) % count;
    std::uint64_t value = next();
    while (value < unfair) value = next();
    return value % count;
  }

  // between() is uniform in [-limit, limit).
  float between(float limit) noexcept {
    const auto upper = static_cast<std::int64_t>(next() >> 40);  // 24 bits
    const auto unit = static_cast<float>(upper - (1 << 23)) * 0x1p-23f;
    return unit * limit;
  }

 private:
  std::uint64_t state_;
};

}  // namespace swamp::cli

#endif  // SWAMP_MASTER_CLI_RANDOM_H_
