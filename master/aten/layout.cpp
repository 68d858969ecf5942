#include "master/aten/layout.h"

#include <ATen/ExpandUtils.h>
#include <ATen/TensorIterator.h>
#include <ATen/ops/empty.h>
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <array>
#include <utility>

#include "master/aten/tensor.h"

namespace swamp::aten {
namespace {

// Below this count std::sort() is as fast as the radix sort.
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

// sort_by_digit() is one stable pass of a radix sort by the distance of each
// address from `lowest`.
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
  // Sort only by the bits that differ: the low ones are equal because the
  // allocator aligns, and the high ones because a heap is much smaller than the
  // address space.
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

Layout::Layout(const at::Tensor& tensor) {
  const at::IntArrayRef sizes = tensor.sizes();
  const at::IntArrayRef strides = tensor.strides();
  c10::SmallVector<std::pair<std::int64_t, std::int64_t>, 8> dimensions;
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] != 1) dimensions.emplace_back(strides[d], sizes[d]);
  }
  std::sort(dimensions.begin(), dimensions.end());
  for (const auto& [stride, size] : dimensions) {
    // No two elements share memory if the stride of each dimension is at least
    // the extent of the smaller ones.
    disjoint = disjoint && stride >= extent;
    extent += (size - 1) * stride;
  }
}

Extent extent_of(const at::Tensor& tensor) {
  const std::int64_t count =
      is_dense(tensor) ? tensor.numel() : Layout(tensor).extent;
  const std::uintptr_t begin = address_of(tensor);
  return {begin, begin + static_cast<std::size_t>(count) * tensor.itemsize()};
}

at::Tensor empty_result(at::ScalarType type,
                        std::initializer_list<at::Tensor> inputs) {
  const at::Tensor& first = *inputs.begin();
  const auto has_one = [](const at::Tensor& x) {
    return std::count(x.sizes().begin(), x.sizes().end(), 1) != 0;
  };
  // Its strides decide alone, because no two of them are equal.
  const bool decides =
      first.is_contiguous() && first.numel() != 0 && !has_one(first);
  const bool is_simple = std::all_of(
      inputs.begin(), inputs.end(), [&](const at::Tensor& x) {
        return x.sizes() == first.sizes()
                   ? decides || x.is_contiguous()
                   : decides && at::is_expandable_to(x.sizes(), first.sizes());
      });
  if (is_simple) return at::empty(first.sizes(), first.options().dtype(type));
  at::TensorIteratorConfig config;
  config.check_all_same_dtype(false)
      .declare_static_dtype_and_device(type, first.device())
      .add_owned_output(at::Tensor());
  for (const at::Tensor& x : inputs) config.add_const_input(x);
  const at::TensorIterator iterator = config.build();
  return iterator.output();
}

at::Tensor with_strides_of(const at::Tensor& like, const at::Tensor& found) {
  if (!has_order_of(found, like)) return like.copy_(found);
  if (found.strides() != like.strides()) {
    found.unsafeGetTensorImpl()->set_sizes_and_strides(like.sizes(),
                                                       like.strides());
  }
  return found;
}

at::Tensor as_result(const at::Tensor& found,
                     std::initializer_list<at::Tensor> inputs) {
  return with_strides_of(empty_result(found.scalar_type(), inputs), found);
}

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
