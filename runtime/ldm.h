// LDM: the scratchpad of a slave, an arena of exactly the machine's size.
#ifndef SWAMP_RUNTIME_LDM_H_
#define SWAMP_RUNTIME_LDM_H_

#include <cstddef>
#include <cstdint>

namespace swamp::runtime {

inline constexpr std::size_t kLdmAlignment = 128;  // a line of main memory

// Reply is a reply word, which lies in LDM: every completed transfer adds 1.
using Reply = std::int32_t;

constexpr std::size_t align_up(std::size_t bytes,
                               std::size_t alignment) noexcept {
  return (bytes + alignment - 1) / alignment * alignment;
}

// Ldm allocates from one arena, from the bottom.
class Ldm {
 public:
  Ldm(std::byte* base, std::size_t bytes) noexcept
      : base_(base), bytes_(bytes) {}

  // allocate() returns nullptr if less than `bytes` is left.
  void* allocate(std::size_t bytes) noexcept {
    const std::size_t rounded = align_up(bytes, kLdmAlignment);
    if (rounded < bytes || rounded > bytes_ - used_) return nullptr;
    std::byte* piece = base_ + used_;
    used_ += rounded;
    return piece;
  }
  // contains() returns whether [address, address + bytes) lies in the arena.
  bool contains(const void* address, std::size_t bytes) const noexcept {
    const auto begin = reinterpret_cast<std::uintptr_t>(base_);
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    return at >= begin && at - begin <= bytes_ &&
           bytes <= bytes_ - (at - begin);
  }

  std::byte* base() const noexcept { return base_; }
  std::size_t bytes() const noexcept { return bytes_; }
  std::size_t used() const noexcept { return used_; }

 private:
  std::byte* base_;
  std::size_t bytes_;
  std::size_t used_ = 0;
};

}  // namespace swamp::runtime

#endif  // SWAMP_RUNTIME_LDM_H_
