#include "master/aten/overlap.h"

#include <algorithm>
#include <array>
#include <cstddef>

namespace swamp::aten {
namespace {

// Fewer than this std::sort() sorts as fast.
constexpr std::size_t kRadixCount = 200;
constexpr int kDigitBits = 10;
constexpr std::size_t kBuckets = std::size_t{1} << kDigitBits;

bool rises(const std::vector<Extent>& extents) noexcept {
  for (std::size_t i = 1; i < extents.size(); ++i) {
    if (extents[i].begin < extents[i - 1].end) return false;
  }
  return true;
}

bool falls(const std::vector<Extent>& extents) noexcept {
  for (std::size_t i = 1; i < extents.size(); ++i) {
    if (extents[i].end > extents[i - 1].begin) return false;
  }
  return true;
}

// sort_by_digit() is one stable pass of a radix sort by the addresses' distance
// from `lowest`.
void sort_by_digit(const std::vector<Extent>& from, std::vector<Extent>& to,
                   std::uintptr_t lowest, int shift) {
  const auto digit = [&](const Extent& extent) {
    return ((extent.begin - lowest) >> shift) & (kBuckets - 1);
  };
  std::array<std::size_t, kBuckets> next{};
  for (const Extent& extent : from) ++next[digit(extent)];
  std::size_t sum = 0;
  for (std::size_t& bucket : next) {
    const std::size_t count = bucket;
    bucket = sum;
    sum += count;
  }
  for (const Extent& extent : from) to[next[digit(extent)]++] = extent;
}

void radix_sort(std::vector<Extent>& extents, std::vector<Extent>& scratch) {
  std::uintptr_t lowest = extents[0].begin;
  for (const Extent& extent : extents) lowest = std::min(lowest, extent.begin);
  // What differs: the allocator's alignment leaves the low bits equal, and a
  // heap is small beside the address space.
  std::uintptr_t bits = 0;
  for (const Extent& extent : extents) bits |= extent.begin - lowest;
  if (bits == 0) return;  // all at one address
  scratch.resize(extents.size());
  int shift = __builtin_ctzll(bits);
  const int end = 64 - __builtin_clzll(bits);
  for (; shift < end; shift += kDigitBits) {
    sort_by_digit(extents, scratch, lowest, shift);
    extents.swap(scratch);
  }
}

}  // namespace

bool any_overlap(std::vector<Extent>& extents, std::vector<Extent>& scratch) {
  if (rises(extents) || falls(extents)) return false;
  if (extents.size() < kRadixCount) {
    std::sort(
        extents.begin(), extents.end(),
        [](const Extent& a, const Extent& b) { return a.begin < b.begin; });
  } else {
    radix_sort(extents, scratch);
  }
  return !rises(extents);
}

}  // namespace swamp::aten
