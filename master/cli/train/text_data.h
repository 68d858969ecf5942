// The examples that a model is trained on.
#ifndef SWAMP_MASTER_CLI_TRAIN_TEXT_DATA_H_
#define SWAMP_MASTER_CLI_TRAIN_TEXT_DATA_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace swamp::cli {

// Random is splitmix64 (Steele, Lea, Flood 2014). It has its own distributions,
// because those of <random>, and so the weights, differ between libraries.
class Random {
 public:
  explicit Random(std::uint64_t seed) noexcept : state_(seed) {}

  // A Random with this seed continues the sequence.
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
    // Without the values below 2^64 mod count all remainders are equally
    // likely.
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

// kContext is the number of bytes from which the model predicts the next one.
inline constexpr std::size_t kContext = 16;

// read_text() returns the bytes of a regular file that holds at least one
// example; throws Failure for anything else.
std::string read_text(const std::string& path);

// Batch is examples: kContext bytes of context and one target each.
struct Batch {
  std::vector<std::uint8_t> contexts;
  std::vector<std::uint8_t> targets;
};

// sample_batch() fills `batch` with `count` examples from random places.
void sample_batch(const std::string& text, std::size_t count, Random& random,
                  Batch& batch);

}  // namespace swamp::cli

#endif  // SWAMP_MASTER_CLI_TRAIN_TEXT_DATA_H_
