#ifndef SWAMP_TESTS_SUPPORT_RANDOM_H_
#define SWAMP_TESTS_SUPPORT_RANDOM_H_

#include <cstddef>
#include <cstdint>

#include "support/formats.h"

namespace swamp::test {

// Random is splitmix64: the same numbers with every standard library.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  std::uint64_t below(std::uint64_t limit) { return next() % limit; }

 private:
  std::uint64_t state_;
};

// fill_any() draws bit patterns, every eighth of them special.
inline void fill_any(const Format& format, void* data, std::size_t count,
                     Random& random) {
  const std::vector<std::uint64_t> special = special_bits(format);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t draw = random.next();
    store_bits(
        format, data, i,
        draw % 8 == 0 ? special[random.below(special.size())] : random.next());
  }
}

// fill_finite() draws finite bit patterns only.
inline void fill_finite(const Format& format, void* data, std::size_t count,
                        Random& random) {
  for (std::size_t i = 0; i < count; ++i) {
    std::uint64_t bits = random.next();
    if (format.is_nonfinite(bits)) bits &= ~(format.exponent() / 2);
    store_bits(format, data, i, bits);
  }
}

// fill_ordinary() draws numbers of magnitudes from 1/16 to 32, three of four
// positive.
inline void fill_ordinary(const Format& format, void* data, std::size_t count,
                          Random& random) {
  const std::uint64_t mantissa = format.mantissa(), sign = format.sign();
  const std::uint64_t step = mantissa + 1;
  const std::uint64_t first = format.exponent() / 2 / step * step - 4 * step;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t draw = random.next();
    const std::uint64_t exponent = first + random.below(9) * step;
    // A factor, because processors cannot predict the sign.
    const std::uint64_t is_negative = draw >> 62 == 0 ? 1 : 0;
    store_bits(format, data, i,
               is_negative * sign | exponent | (draw & mantissa));
  }
}

}  // namespace swamp::test

#endif  // SWAMP_TESTS_SUPPORT_RANDOM_H_
