// The products of the model, compiled once per target by Highway. The lanes of
// a vector are columns of the result, so its width changes no bit.
#include "master/cli/train/product.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "master/cli/train/product.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace swamp::cli::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// kRows x kGroup vectors of sums stay in registers, and kGroup + 2 more are
// needed.
constexpr std::size_t kRows = 4;
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_NEON
constexpr std::size_t kGroup = 4;
#else
constexpr std::size_t kGroup = 2;
#endif

// tile() computes sizeof...(r) rows and sizeof...(g) vectors of a product, or
// with `add` adds them to the result. The columns of `right` are consecutive.
template <class D, std::size_t... r, std::size_t... g>
HWY_INLINE void tile(D d, const Factor& left, const Factor& right,
                     const Place& out, bool add, std::index_sequence<r...>,
                     std::index_sequence<g...>) {
  constexpr std::size_t kLanes = hn::MaxLanes(D());
  constexpr std::size_t kWidth = sizeof...(g);
  hn::Vec<D> sum[sizeof...(r) * kWidth];
  for (hn::Vec<D>& one : sum) one = hn::Zero(d);
  const float* const row[] = {(left.data + r * left.row_step)...};
  const float* from = right.data;
  std::size_t offset = 0;
  for (std::size_t k = 0; k < right.rows; ++k) {
    const hn::Vec<D> b[] = {hn::LoadU(d, from + g * kLanes)...};
    const auto add_row = [&](auto i) HWY_ATTR {
      const hn::Vec<D> a = hn::Set(d, row[i][offset]);
      ((sum[i * kWidth + g] = hn::Add(sum[i * kWidth + g], hn::Mul(a, b[g]))),
       ...);
    };
    (add_row(std::integral_constant<std::size_t, r>()), ...);
    offset += left.column_step;
    from += right.row_step;
  }
  const auto store_row = [&](auto i) HWY_ATTR {
    float* const to = out.data + i * out.row_step;
    if (add) {
      ((sum[i * kWidth + g] =
            hn::Add(hn::LoadU(d, to + g * kLanes), sum[i * kWidth + g])),
       ...);
    }
    (hn::StoreU(sum[i * kWidth + g], d, to + g * kLanes), ...);
  };
  (store_row(std::integral_constant<std::size_t, r>()), ...);
}

// columns() computes as many groups of kVectors vectors as fit between column
// `at` and the last one, and moves `at` to their end.
template <std::size_t kVectors, class D>
HWY_INLINE void columns(D d, const Factor& left, const Factor& right,
                        const Place& out, bool add, std::size_t& at) {
  constexpr std::size_t kStep = kVectors * hn::MaxLanes(D());
  const auto group = std::make_index_sequence<kVectors>();
  for (; at + kStep <= out.columns; at += kStep) {
    Factor a = left;
    Factor b = right;
    Place to = out;
    b.data += at;
    to.data += at;
    std::size_t i = 0;
    for (; i + kRows <= out.rows; i += kRows) {
      tile(d, a, b, to, add, std::make_index_sequence<kRows>(), group);
      a.data += kRows * a.row_step;
      to.data += kRows * to.row_step;
    }
    for (; i < out.rows; ++i) {
      tile(d, a, b, to, add, std::make_index_sequence<1>(), group);
      a.data += a.row_step;
      to.data += to.row_step;
    }
  }
}

}  // namespace

void multiply(const Factor& left, const Factor& right, const Place& out,
              bool add) {
  const hn::ScalableTag<float> d;
  std::size_t at = 0;
  columns<kGroup>(d, left, right, out, add, at);
  columns<2>(d, left, right, out, add, at);
  columns<1>(d, left, right, out, add, at);
  columns<1>(hn::CappedTag<float, 8>(), left, right, out, add, at);
  columns<1>(hn::CappedTag<float, 4>(), left, right, out, add, at);
  columns<1>(hn::CappedTag<float, 1>(), left, right, out, add, at);
}

}  // namespace swamp::cli::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace swamp::cli {
namespace {

// What Eigen 3.4 chose on x86 for an L1 cache of 32 KiB.
constexpr std::size_t kBlock = 680;

// block_terms() is how many of `terms` terms are added before their sum is
// added to the result. The last block may be shorter.
std::size_t block_terms(std::size_t terms) {
  if (terms <= kBlock) return terms;
  const std::size_t last = terms % kBlock;
  if (last == 0) return kBlock;
  const std::size_t blocks = terms / kBlock + 1;
  return kBlock - (kBlock - 1 - last) / (8 * blocks) * 8;
}

// copy() is for a matrix whose rows are consecutive, and not its columns.
void copy(const Factor& from, const Place& to) {
  // So many columns of a row at once: they fill a cache line.
  constexpr std::size_t kTogether = 16;
  for (std::size_t first = 0; first < from.columns; first += kTogether) {
    const std::size_t end = std::min(first + kTogether, from.columns);
    for (std::size_t r = 0; r < from.rows; ++r) {
      float* const row = to.data + r * to.row_step;
      for (std::size_t c = first; c < end; ++c) {
        row[c] = from.data[r * from.row_step + c * from.column_step];
      }
    }
  }
}

// Copy is a copy of a matrix with consecutive columns.
struct Copy {
  explicit Copy(const Factor& from)
      : memory(from.rows * from.columns),
        place{memory.data(), from.rows, from.columns, from.columns} {
    copy(from, place);
  }

  std::vector<float> memory;
  Place place;
};

// tree() adds term(first), term(first + 1), ...: first neighbours.
template <std::size_t first, std::size_t count, class Term>
HWY_INLINE float tree(const Term& term) {
  if constexpr (count == 1) {
    return term(first);
  } else {
    return tree<first, count / 2>(term) +
           tree<first + count / 2, count / 2>(term);
  }
}

template <std::size_t kTerms>
void tree_rows(const std::size_t (&order)[kTerms], const Factor& left,
               const Factor& right, const Place& out) {
  for (std::size_t i = 0; i < out.rows; ++i) {
    float a[kTerms];
    for (std::size_t k = 0; k < kTerms; ++k) {
      a[k] = left.data[i * left.row_step + order[k] * left.column_step];
    }
    float* const to = out.data + i * out.row_step;
    for (std::size_t j = 0; j < out.columns; ++j) {
      to[j] = tree<0, kTerms>([&](std::size_t k) {
        return a[k] * right.data[order[k] * right.row_step + j];
      });
    }
  }
}

}  // namespace

Product::Product(const std::string& isa)
    : multiply_(HWY_STATIC_DISPATCH(multiply)) {  // what every CPU can run
  // The names are those of slave/dispatch.cpp.
#if HWY_TARGETS & HWY_AVX3
  if (isa == "avx512") multiply_ = N_AVX3::multiply;
#endif
#if HWY_TARGETS & HWY_AVX2
  if (isa == "avx2") multiply_ = N_AVX2::multiply;
#endif
#if HWY_TARGETS & HWY_SSE4
  if (isa == "sse4") multiply_ = N_SSE4::multiply;
#endif
#if HWY_TARGETS & HWY_SSSE3
  if (isa == "ssse3") multiply_ = N_SSSE3::multiply;
#endif
#if HWY_TARGETS & HWY_NEON
  if (isa == "neon") multiply_ = N_NEON::multiply;
#endif
#if HWY_TARGETS & HWY_EMU128
  if (isa == "scalar") multiply_ = N_EMU128::multiply;
#elif HWY_TARGETS & HWY_SCALAR
  if (isa == "scalar") multiply_ = N_SCALAR::multiply;
#endif
}

void Product::operator()(const Factor& left, const Factor& right,
                         const Place& out) const {
  if (right.column_step != 1) {
    // The transpose of the result is the product of the transposed factors.
    // Copying the left factor and the result may be less work.
    if (left.rows * (left.columns + right.columns) <
        right.rows * right.columns) {
      const Copy rows(transposed(left));
      std::vector<float> memory(out.columns * out.rows);
      const Place result{memory.data(), out.columns, out.rows, out.rows};
      (*this)(transposed(right), rows.place, result);
      return copy(transposed(result), out);
    }
    return (*this)(left, Copy(right).place, out);
  }
  Factor a = left;
  Factor b = right;
  const std::size_t block = block_terms(right.rows);
  for (std::size_t k = 0; k < right.rows; k += block) {
    b.rows = std::min(block, right.rows - k);
    multiply_(a, b, out, k > 0);
    a.data += block * a.column_step;
    b.data += block * b.row_step;
  }
}

void product_of_8(const Factor& left, const Factor& right, const Place& out) {
  tree_rows({0, 4, 2, 6, 1, 5, 3, 7}, left, Copy(right).place, out);
}

void product_of_16(const Factor& left, const Factor& right, const Place& out) {
  tree_rows({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, left, right,
            out);
}

}  // namespace swamp::cli
#endif  // HWY_ONCE
