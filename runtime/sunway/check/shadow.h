#ifndef SWAMP_RUNTIME_SUNWAY_CHECK_SHADOW_H_
#define SWAMP_RUNTIME_SUNWAY_CHECK_SHADOW_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace swamp::sunway::check {

// Shadow knows of every 4-byte word of a slave's slot whether it was written
// since it was allocated (heap) or since the launch began (stack). Words that
// never were hold poison; a word that the system's libraries wrote without our
// seeing it does not, so a word counts as unwritten only when both say so.
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
  // unwritten_run() is the longest run of them.
  std::size_t unwritten_run(const std::byte* begin,
                            std::size_t bytes) const noexcept;

 private:
  bool is_unwritten(std::size_t word) const noexcept;

  std::byte* slot_;
  std::vector<std::uint8_t> unwritten_;
};

}  // namespace swamp::sunway::check

#endif  // SWAMP_RUNTIME_SUNWAY_CHECK_SHADOW_H_
