#ifndef SWAMP_SUNWAY_EMULATOR_CHECK_SHADOW_H_
#define SWAMP_SUNWAY_EMULATOR_CHECK_SHADOW_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace swamp::sunway::check {

// Shadow records for every byte of a slave's slot whether it was written since
// it was allocated (heap) or since the launch began (stack). Unwritten words
// also hold a poison value. System libraries write without being observed, so a
// word counts as unwritten only if it is marked so and still holds the poison.
class Shadow {
 public:
  static constexpr std::uint8_t kPoison = 0xff;  // nan in every float format

  Shadow(std::byte* slot, std::size_t slot_bytes);

  void poison(std::byte* begin, std::size_t bytes) noexcept;
  void written(std::byte* begin, std::size_t bytes) noexcept;
  // words() is how many words [begin, begin + bytes) touches.
  static std::size_t words(const std::byte* begin, std::size_t bytes) noexcept;
  // unwritten_words() counts the words of [begin, begin + bytes) never written.
  std::size_t unwritten_words(const std::byte* begin,
                              std::size_t bytes) const noexcept;
  // for_unwritten() visits the offsets from `begin` of the bytes never written.
  template <class Visit>
  void for_unwritten(const std::byte* begin, std::size_t bytes,
                     Visit visit) const {
    const auto first = static_cast<std::size_t>(begin - slot_);
    for (std::size_t i = 0; i < bytes; ++i) {
      const std::size_t at = first + i;
      if ((unwritten_[at / 4] >> at % 4 & 1u) != 0) visit(i);
    }
  }
  // unwritten_run() is the longest run of unwritten words.
  std::size_t unwritten_run(const std::byte* begin,
                            std::size_t bytes) const noexcept;

 private:
  bool is_unwritten(std::size_t word) const noexcept;

  std::byte* slot_;
  std::vector<std::uint8_t> unwritten_;  // of each word, a bit for each byte
};

}  // namespace swamp::sunway::check

#endif  // SWAMP_SUNWAY_EMULATOR_CHECK_SHADOW_H_
