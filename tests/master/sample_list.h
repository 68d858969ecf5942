// A list of tensors in one arena, with gaps between them, and the expected
// result of unscaling it.
#ifndef SWAMP_TESTS_MASTER_SAMPLE_LIST_H_
#define SWAMP_TESTS_MASTER_SAMPLE_LIST_H_

#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

#include "support/random.h"
#include "swamp/amp.h"
#include "swamp/tensor.h"

namespace swamp::test {

class SampleList {
 public:
  // add() appends a tensor of finite random values, `skip` elements after a
  // multiple of 64 bytes.
  void add(ScalarType type, std::size_t count, std::size_t skip,
           Random& random);
  // add_bits() appends a tensor of these bits.
  void add_bits(ScalarType type, const std::vector<std::uint64_t>& bits);

  void set(std::size_t tensor, std::size_t index, std::uint64_t bits);
  std::uint64_t get(std::size_t tensor, std::size_t index) const;

  std::size_t tensor_count() const { return places_.size(); }
  std::size_t element_count(std::size_t tensor) const {
    return places_[tensor].count;
  }
  ScalarType type(std::size_t tensor) const { return places_[tensor].type; }

  // tensors() points into this list; valid until the next add().
  std::vector<Tensor> tensors();

  // unscale() computes the result of amp.h, element by element, by the scalar
  // references of the kernels.
  OverflowReport unscale(float inv_scale);

  // Data and the bytes between the tensors.
  testing::AssertionResult same_as(const SampleList& expected) const;

 private:
  struct Place {
    std::size_t offset;
    std::size_t count;
    ScalarType type;
  };
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  std::byte* base() { return reinterpret_cast<std::byte*>(lines_.data()); }
  const std::byte* base() const {
    return reinterpret_cast<const std::byte*>(lines_.data());
  }
  Place& append(ScalarType type, std::size_t count, std::size_t skip);

  std::vector<Line> lines_;
  std::vector<Place> places_;
};

// mixed_list() is about 60 tensors of all dtypes: odd counts, odd starts, empty
// ones, large ones that are divided between slaves. `planted` inf and nan.
SampleList mixed_list(std::uint64_t seed, std::size_t planted);

// unscale() runs the operator on `list` and expects that found_inf, which was
// 0, agrees with the report that it returns.
OverflowReport unscale(TensorList list, float inv_scale, Machine& machine);

testing::AssertionResult same_report(const OverflowReport& actual,
                                     const OverflowReport& expected);

}  // namespace swamp::test

#endif  // SWAMP_TESTS_MASTER_SAMPLE_LIST_H_
