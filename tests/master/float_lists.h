// Lists of arrays of one dtype, for operations of several operands.
#ifndef SWAMP_TESTS_MASTER_FLOAT_LISTS_H_
#define SWAMP_TESTS_MASTER_FLOAT_LISTS_H_

#include <cstdint>
#include <vector>

#include "support/formats.h"
#include "support/random.h"
#include "swamp/float_formats.h"
#include "swamp/tensor.h"

namespace swamp::test {

// The counts of a typical list: empty, odd, runs of small tensors, large ones
// that are divided between slaves.
inline const std::vector<std::size_t> kListCounts = {
    0, 1, 7, 64, 3, 0, 100, 8191, 8192, 1, 33, 20000, 5, 0, 12345, 2, 9, 65};

// FormatList is arrays of one dtype. Tensor i begins `i % 3 + skip` elements
// after a multiple of 64 bytes.
class FormatList {
 public:
  FormatList(ScalarType type, const std::vector<std::size_t>& counts,
             std::size_t skip = 0)
      : format_(&format_of(type)) {
    for (std::size_t i = 0; i < counts.size(); ++i) {
      const std::size_t offset =
          (bytes_.size() + 63) / 64 * 64 + (i % 3 + skip) * format_->bytes;
      places_.push_back({offset, counts[i]});
      bytes_.resize(offset + counts[i] * format_->bytes);
    }
    bytes_.resize(bytes_.size() + 64, std::byte{0xa5});
  }

  // fill_values() draws values of about `magnitude`, both signs.
  void fill_values(double magnitude, Random& random);
  void fill_any_bits(Random& random) {
    for (std::size_t t = 0; t < places_.size(); ++t) {
      fill_any(*format_, bytes_.data() + places_[t].offset, places_[t].count,
               random);
    }
  }

  std::vector<Tensor> tensors() {
    std::vector<Tensor> list;
    for (const Place& place : places_) {
      list.push_back(
          {bytes_.data() + place.offset, place.count, format_->type});
    }
    return list;
  }
  bool operator==(const FormatList& other) const {
    return bytes_ == other.bytes_;
  }

 private:
  struct Place {
    std::size_t offset;
    std::size_t count;
  };
  const Format* format_;
  std::vector<Place> places_;
  std::vector<std::byte> bytes_;
};

inline void FormatList::fill_values(double magnitude, Random& random) {
  for (const Tensor& tensor : tensors()) {
    for (std::size_t i = 0; i < tensor.count; ++i) {
      const double unit =
          static_cast<double>(random.next() >> 11) * 0x1p-52 - 1;
      const auto value = static_cast<float>(unit * magnitude);
      store_bits(*format_, tensor.data, i, bits_of(*format_, value));
    }
  }
}

}  // namespace swamp::test

#endif  // SWAMP_TESTS_MASTER_FLOAT_LISTS_H_
