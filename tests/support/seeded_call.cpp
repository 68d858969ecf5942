// The inputs of the operators, and what they wrote.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <numeric>

#include "support/operators.h"
#include "support/random.h"

namespace swamp::test {
namespace {

// Empty, odd, small and large tensors, which are divided between slaves.
const std::vector<std::size_t> kCounts = {0,    1, 7, 100,   8191,
                                          8193, 3, 0, 20001, 66};

// Every count of vectors, batches and their tails, and every pattern of 16
// bits, in three orders, or one on an emulated CPU.
constexpr std::size_t kPatterns = 65536;
#ifdef SWAMP_TEST_EMULATED
constexpr std::size_t kOrders = 1;
#else
constexpr std::size_t kOrders = 3;
#endif
std::vector<std::size_t> make_edge_counts() {
  std::vector<std::size_t> counts(201);
  std::iota(counts.begin(), counts.end(), std::size_t{0});
  counts.insert(counts.end(), kOrders, kPatterns + 13);
  return counts;
}

// Any bits, and every pattern in an order of the array's own; numbers, zeros of
// both signs, and one inf; or positive numbers.
void fill_edge(const Format& format, void* data, std::size_t count,
               Numbers numbers, Random& random) {
  if (numbers == Numbers::any_bits) {
    fill_any(format, data, count, random);
    const std::uint64_t step = random.next() | 1;
    for (std::size_t i = 0; count > kPatterns && i < kPatterns; ++i) {
      if (format.bytes > 2) break;
      store_bits(format, data, i, i * step % kPatterns);
    }
    return;
  }
  fill_ordinary(format, data, count, random);
  if (numbers == Numbers::ordinary) {
    for (std::size_t i = 0; i < count; ++i) {
      store_bits(format, data, i, load_bits(format, data, i) & ~format.sign());
    }
    return;
  }
  for (std::size_t i = 0; i < count; i += 1 + random.below(9)) {
    store_bits(format, data, i, random.below(2) * format.sign());
  }
  if (count % 2 != 0) {
    store_bits(format, data, random.below(count), format.infinity());
  }
}

// unify_nan() gives all nan of the numbers the same pattern.
template <class Bits>
void unify_nan(const Format& format, std::vector<std::byte>& bytes) {
  const Bits magnitude = static_cast<Bits>(format.sign() - 1),
             lowest = static_cast<Bits>(format.lowest_nan()),
             quiet = static_cast<Bits>(format.quiet_nan());
  for (std::size_t i = 0; i + sizeof(Bits) <= bytes.size(); i += sizeof(Bits)) {
    Bits bits;
    std::memcpy(&bits, bytes.data() + i, sizeof bits);
    bits = (bits & magnitude) >= lowest ? quiet : bits;
    std::memcpy(bytes.data() + i, &bits, sizeof bits);
  }
}

// Not operator==, which compares std::byte by std::byte.
bool is_same(const std::byte* data, const std::vector<std::byte>& bytes) {
  return bytes.empty() || std::memcmp(data, bytes.data(), bytes.size()) == 0;
}

// The bytes between an array and its protected pages. is_kept() returns whether
// they are unchanged: each is equal to the next one.
constexpr int kAround = 0xa5;
bool is_kept(const std::byte* begin, const std::byte* end) {
  return begin == end ||
         (*begin == std::byte{kAround} &&
          std::memcmp(begin, begin + 1,
                      static_cast<std::size_t>(end - begin) - 1) == 0);
}

}  // namespace

SeededCall::Array::Array(std::size_t count, std::size_t element_bytes,
                         std::size_t index)
    : pages(std::max<std::size_t>(count * element_bytes, 1)),
      bytes(count * element_bytes) {
  std::memset(pages.begin(), kAround, pages.bytes());
  const bool at_end = Random(index).below(2) == 0;
  data = at_end ? pages.end() - bytes : pages.begin();
}

SeededCall::SeededCall(const OperatorCase& one) : one_(one) {
  sizes = one.sizes;
  dtype = one.dtype;
  to = one.to;
}

void SeededCall::run(Machine& on, bool in_place) {
  for (Array& array : arrays_) {
    std::copy(array.first.begin(), array.first.end(), array.data);
    array.replaced_by = nullptr;
    array.before.clear();
  }
  machine = &on;
  in_place_ = in_place;
  next_ = 0;
  one_.run(*this);
  for (const Array& array : arrays_) {
    EXPECT_TRUE(is_kept(array.pages.begin(), array.data) &&
                is_kept(array.end(), array.pages.end()));
  }
}

// In place, the input has the bytes that it had at first.
const std::byte* SeededCall::bytes_of(const Array& array) const {
  for (const Array& other : arrays_) {
    if (other.replaced_by == &array) return array.first.data();
  }
  return array.replaced_by != nullptr ? array.replaced_by->data : array.data;
}

std::vector<std::byte> SeededCall::result_of(const Array& array) const {
  const std::byte* const from = bytes_of(array);
  std::vector<std::byte> bytes(from, from + array.bytes);
  if (!array.type) return bytes;
  const Format& format = format_of(*array.type);
  if (one_.has_nan_payload() && has_nan_payload(format)) return bytes;
  if (format.bytes == 1) unify_nan<std::uint8_t>(format, bytes);
  if (format.bytes == 2) unify_nan<std::uint16_t>(format, bytes);
  if (format.bytes == 4) unify_nan<std::uint32_t>(format, bytes);
  if (format.bytes == 8) unify_nan<std::uint64_t>(format, bytes);
  return bytes;
}

std::vector<std::vector<std::byte>> SeededCall::results() const {
  std::vector<std::vector<std::byte>> all;
  for (const Array& array : arrays_) all.push_back(result_of(array));
  return all;
}

bool SeededCall::gives(
    const std::vector<std::vector<std::byte>>& expected) const {
  if (arrays_.size() != expected.size()) return false;
  std::size_t i = 0;
  for (const Array& array : arrays_) {
    const std::vector<std::byte>& wanted = expected[i++];
    if (!is_same(bytes_of(array), wanted) &&
        !is_same(result_of(array).data(), wanted)) {
      return false;
    }
  }
  return true;
}

void SeededCall::next_call(std::initializer_list<const void*> written) {
  for (Array& array : arrays_) {
    const bool is_written =
        std::find(written.begin(), written.end(), array.data) != written.end();
    if (written.size() != 0 && !is_written) continue;
    array.before.assign(array.data, array.end());
  }
}

bool SeededCall::is_untouched() const {
  return std::all_of(arrays_.begin(), arrays_.end(), [](const Array& array) {
    const auto& before = array.before.empty() ? array.first : array.before;
    return is_same(array.data, before);
  });
}

template <class Fill>
std::byte* SeededCall::take(std::size_t count, std::size_t element_bytes,
                            Fill fill) {
  if (next_ == arrays_.size()) {
    Array& made = arrays_.emplace_back(count, element_bytes, next_);
    fill(made);
    made.first.assign(made.data, made.end());
  }
  return arrays_[next_++].data;
}

cli::Tensors SeededCall::array(std::optional<ScalarType> type) {
  cli::Tensors tensors;
  static const std::vector<std::size_t> edges = make_edge_counts();
  for (const std::size_t count : one_.is_edge ? edges : kCounts) {
    const std::size_t turn = dtype + tensors.size();
    const ScalarType own =
        type.value_or(one_.takes_mixed_lists()
                          ? kAllFormats[turn % std::size(kAllFormats)]->type
                          : dtype);
    tensors.push_back({next(count * format_of(own).bytes, own), count, own});
  }
  return tensors;
}

void* SeededCall::next(std::size_t bytes, std::optional<ScalarType> type) {
  const std::size_t element = type ? format_of(*type).bytes : 1;
  return take(bytes / element, element, [&](Array& made) {
    made.type = type;
    const std::size_t count = bytes / element;
    Random random(next_ + 1);
    if (!type) {
      std::generate(made.data, made.end(),
                    [&] { return static_cast<std::byte>(random.next()); });
      return;
    }
    const Format& format = format_of(*type);
    if (one_.is_list() && one_.is_edge) {
      return fill_edge(format, made.data, count, one_.numbers, random);
    }
    const auto set = [&](std::size_t i, float value) {
      if (i < count) store_bits(format, made.data, i, bits_of(format, value));
    };
    constexpr float kInf = std::numeric_limits<float>::infinity();
    if (one_.has_heads()) {  // products of a few, so that no key is alone
      for (std::size_t i = 0; i < count; ++i) {
        set(i, static_cast<float>(random.below(4001)) / 1000 - 2);
      }
      // Some rows are large, or have one special number.
      const float specials[] = {kInf, -kInf, std::nanf(""), 8000, 0};
      const std::size_t columns = size(cli::kSizeColumns);
      for (std::size_t i = 0; i + columns <= count; i += columns) {
        if (random.below(16) != 0) continue;
        if (one_.numbers == Numbers::any_bits) {
          set(i + random.below(columns), specials[random.below(5)]);
        } else if (one_.numbers == Numbers::special_rows) {
          for (std::size_t k = i; k < i + columns; ++k) {
            set(k, static_cast<float>(random.below(4001)) / 50 - 40);
          }
        }
      }
      return;
    }
    if (one_.numbers == Numbers::any_bits) {
      return fill_any(format, made.data, count, random);
    }
    fill_ordinary(format, made.data, count, random);
    if (one_.numbers == Numbers::ordinary) return;
    const bool has_inf = one_.is_list() && dtype == kBFloat16 && count > 50;
    if (has_inf) store_bits(format, made.data, 42, format.infinity());
    if (sizes.of[cli::kSizeRows].value_or(300) >= 300) return;
    // Rows with -inf, nan or inf, equal ones and wide ones.
    const std::size_t columns = size(cli::kSizeColumns);
    if (!one_.has_special_rows() || count % columns != 0) return;
    const std::size_t at = columns * 5 / 7;
    for (std::size_t j = 0; j < columns; ++j) {
      if (j < (columns + 1) / 2) set(columns + j, -kInf);
      set(5 * columns + j, -kInf);
      set(6 * columns + j, -1.5f);
    }
    set(2 * columns + at, 80);
    set(3 * columns + at, std::nanf(""));
    set(4 * columns + at, kInf);
  });
}

void* SeededCall::memory(std::size_t bytes) {
  // Of 8-byte elements, because the master writes them.
  return take((bytes + 7) / 8, 8, [](Array& made) {
    made.type = kFloat64;  // whose nan are alike
    std::fill(made.data, made.end(), std::byte{});
  });
}

float* SeededCall::numbers(std::size_t count) {
  return reinterpret_cast<float*>(take(count, 4, [&](Array& made) {
    made.type = kFloat32;
    Random random(next_ + 1);
    for (std::size_t i = 0; i < count; ++i) {
      const float value = 4 + static_cast<float>(random.below(4096)) / 1024;
      std::memcpy(made.data + i * 4, &value, sizeof value);
    }
  }));
}

Matrix SeededCall::over(const Matrix& x) {
  const Matrix out = Call::over(x);
  has_over_ = true;
  if (!in_place_) return out;
  for (const Array& array : arrays_) {
    if (array.data == x.data) arrays_[next_ - 1].replaced_by = &array;
  }
  return x;
}

ExpertChoices SeededCall::experts() {
  ExpertChoices all = Call::experts();
  // The lower experts are chosen more often.
  Random random(5);
  auto* const numbers = static_cast<std::int32_t*>(const_cast<void*>(all.data));
  for (std::size_t i = 0; i < all.count; ++i) {
    const std::uint64_t one =
        std::min(random.below(all.experts), random.below(all.experts));
    numbers[i] = i % 11 == 3 ? -1 : static_cast<std::int32_t>(one);
  }
  is_made(numbers);
  return all;
}

void SeededCall::is_made(void* data) {
  for (Array& array : arrays_) {
    if (array.data == data) array.first.assign(array.data, array.end());
  }
}

const std::uint8_t* SeededCall::random(std::size_t count) {
  return made<std::uint8_t>(count, [](std::size_t i) { return i * 167 % 256; });
}

std::uint8_t* SeededCall::bytes(std::size_t count, std::uint64_t of) {
  Random random(next_ + 1);
  return made<std::uint8_t>(count, [&](std::size_t i) {
    return random.below(of) != 0 ? 1 + i % 255 : 0;
  });
}

}  // namespace swamp::test
