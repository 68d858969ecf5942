#include "sample_list.h"

#include <cstring>
#include <iterator>

#include "slave/kernel_args.h"
#include "slave/reference_table.h"
#include "support/formats.h"

namespace swamp::test {
SampleList::Place& SampleList::append(ScalarType type, std::size_t count,
                                      std::size_t skip) {
  const std::size_t bytes = format_of(type).bytes;
  const std::size_t offset = lines_.size() * sizeof(Line) + skip * bytes;
  const std::size_t end = offset + count * bytes;
  Line gap;
  std::memset(gap.bytes, 0xa5, sizeof gap.bytes);
  lines_.resize(end / sizeof(Line) + 2, gap);
  places_.push_back({offset, count, type});
  return places_.back();
}

void SampleList::add(ScalarType type, std::size_t count, std::size_t skip,
                     Random& random) {
  const Place& place = append(type, count, skip);
  fill_finite(format_of(type), base() + place.offset, count, random);
}

void SampleList::add_bits(ScalarType type,
                          const std::vector<std::uint64_t>& bits) {
  append(type, bits.size(), 1);
  for (std::size_t i = 0; i < bits.size(); ++i) {
    set(places_.size() - 1, i, bits[i]);
  }
}

void SampleList::set(std::size_t tensor, std::size_t index,
                     std::uint64_t bits) {
  const Place& place = places_[tensor];
  store_bits(format_of(place.type), base() + place.offset, index, bits);
}

std::uint64_t SampleList::get(std::size_t tensor, std::size_t index) const {
  const Place& place = places_[tensor];
  return load_bits(format_of(place.type), base() + place.offset, index);
}

std::vector<Tensor> SampleList::tensors() {
  std::vector<Tensor> tensors;
  for (const Place& place : places_) {
    // An empty tensor may have no memory.
    tensors.push_back({place.count == 0 ? nullptr : base() + place.offset,
                       place.count, place.type});
  }
  return tensors;
}

OverflowReport SampleList::unscale(float inv_scale) {
  OverflowReport report;
  for (std::size_t t = 0; t < places_.size(); ++t) {
    const Place& place = places_[t];
    std::uint64_t found = 0;
    for (std::size_t i = 0; i < place.count; ++i) {
      if (!format_of(place.type).is_nonfinite(get(t, i))) continue;
      if (report.element_count == 0 && found == 0) {
        report.tensor = t;
        report.index = i;
      }
      ++found;
    }
    report.element_count += found;
    report.tensor_count += found != 0 ? 1 : 0;
    if (inv_scale == 1.0f) continue;
    const slave::UnscaleArgs args{inv_scale};
    void* const operands[] = {base() + place.offset};
    Result ignored;
    slave::reference::reference_of(KernelFamily::unscale, {place.type})(
        &args, Tile{operands, place.count}, ignored);
  }
  return report;
}

testing::AssertionResult SampleList::same_as(const SampleList& expected) const {
  const std::size_t bytes = lines_.size() * sizeof(Line);
  if (std::memcmp(base(), expected.base(), bytes) == 0) {
    return testing::AssertionSuccess();
  }
  std::size_t end = 0;
  for (std::size_t t = 0; t < places_.size(); ++t) {
    const Place& place = places_[t];
    if (std::memcmp(base() + end, expected.base() + end, place.offset - end) !=
        0) {
      return testing::AssertionFailure() << "bytes before tensor " << t;
    }
    const Format& format = format_of(place.type);
    const testing::AssertionResult same =
        same_elements(format, base() + place.offset,
                      expected.base() + place.offset, place.count);
    if (!same)
      return testing::AssertionFailure()
             << "tensor " << t << ": " << same.message();
    end = place.offset + place.count * format.bytes;
  }
  if (std::memcmp(base() + end, expected.base() + end, bytes - end) != 0) {
    return testing::AssertionFailure() << "bytes after the last tensor";
  }
  return testing::AssertionSuccess();
}

SampleList mixed_list(std::uint64_t seed, std::size_t planted) {
  Random random(seed);
  SampleList list;
  const std::size_t large[] = {8192,  8191,  8193,  16384,
                               20001, 16385, 24577, 12289};
  for (std::size_t t = 0; t < 60; ++t) {
    const auto type =
        static_cast<ScalarType>(random.below(std::size(kAllFormats)));
    std::size_t count = random.below(400);
    if (t % 8 == 3) count = large[t / 8];
    if (t % 8 == 5) count = random.below(2) * random.below(3000);
    if (t % 10 == 7) count = 0;
    list.add(type, count, random.below(8), random);
  }
  for (std::size_t i = 0; i < planted;) {
    const std::size_t t = random.below(list.tensor_count());
    if (list.element_count(t) == 0) continue;
    const Format& format = format_of(list.type(t));
    const std::uint64_t sign = random.below(2) * format.sign();
    list.set(t, random.below(list.element_count(t)),
             sign | (i % 2 == 0 ? format.infinity()
                                : format.quiet_nan() | random.below(9)));
    ++i;
  }
  return list;
}

OverflowReport unscale(TensorList list, float inv_scale, Machine& machine) {
  float found_inf = 0.0f;
  OverflowReport report{9, 9, 9, 9};
  amp_foreach_non_finite_check_and_unscale_(list, found_inf, inv_scale, &report,
                                            &machine);
  EXPECT_EQ(found_inf, report.element_count == 0 ? 0.0f : 1.0f);
  return report;
}

testing::AssertionResult same_report(const OverflowReport& actual,
                                     const OverflowReport& expected) {
  if (actual.tensor == expected.tensor && actual.index == expected.index &&
      actual.tensor_count == expected.tensor_count &&
      actual.element_count == expected.element_count) {
    return testing::AssertionSuccess();
  }
  const auto text = [](const OverflowReport& r) {
    return "tensor " + std::to_string(r.tensor) + " index " +
           std::to_string(r.index) + " tensors " +
           std::to_string(r.tensor_count) + " elements " +
           std::to_string(r.element_count);
  };
  return testing::AssertionFailure()
         << text(actual) << "; expected " << text(expected);
}

}  // namespace swamp::test
