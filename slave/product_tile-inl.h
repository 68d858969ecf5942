// The innermost loop of matrix products and of attention, per target. Included
// once per target, like Highway's own -inl.h.
#if defined(SWAMP_SLAVE_PRODUCT_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SWAMP_SLAVE_PRODUCT_TILE_INL_H_
#undef SWAMP_SLAVE_PRODUCT_TILE_INL_H_
#else
#define SWAMP_SLAVE_PRODUCT_TILE_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <type_traits>
#include <utility>

#include "slave/exact_fma-inl.h"

HWY_BEFORE_NAMESPACE();
namespace swamp::slave::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Rows of a tile of a product: with two vectors of each, the sums leave
// registers for the factors.
#if HWY_TARGET == HWY_AVX3
inline constexpr std::size_t kTileRows = 12;
#elif HWY_TARGET == HWY_AVX2
inline constexpr std::size_t kTileRows = 6;
#elif HWY_TARGET == HWY_NEON
inline constexpr std::size_t kTileRows = 8;
#else
inline constexpr std::size_t kTileRows = 2;
#endif

// ByFma is the way of float32 products, also of CPUs without the instruction. A
// way is how words become vectors, and are multiplied and added.
struct ByFma {
  using D = hn::ScalableTag<float>;
  using V = hn::Vec<D>;

  static HWY_INLINE V load(const float* right) { return hn::LoadU(D(), right); }
  static HWY_INLINE V set(float left) { return hn::Set(D(), left); }
  static HWY_INLINE V add(V a, V b, V sum) { return exact_fma(D(), a, b, sum); }
};

// nan_to_quiet() makes all nan the same: which operand's payload a nan has
// depends on the CPU.
HWY_INLINE ByFma::V nan_to_quiet(ByFma::V value) {
  const ByFma::D df;
  const auto nan =
      hn::BitCast(df, hn::Set(hn::RebindToUnsigned<ByFma::D>(), 0x7fc00000u));
  return hn::IfThenElse(hn::IsNaN(value), nan, value);
}

// for_constants() calls visit() with each number of a sequence, as a constant
// of the compiler.
template <class Visit, std::size_t... k>
HWY_INLINE void for_constants(const Visit& visit, std::index_sequence<k...>) {
  (visit(std::integral_constant<std::size_t, k>()), ...);
}

// product_tile() keeps a tile of sums in registers, of sizeof...(r) rows and
// sizeof...(v) vectors, while `terms` terms of a product pass:
//   sum(row, vector) = begin(row, vector), then for each term t in order
//   Way::add(left(row, t), right[t * step + vector], sum), then end(row,
//   vector, sum).
// `row` and `vector` are constants of the compiler. If kAtOnce is more than 1,
// a row takes kAtOnce terms before the next row: left(row, t)(k) then returns
// its value of term t + k, and `terms` is a multiple of kAtOnce.
template <class Way, std::size_t kAtOnce = 1, class Left, class Begin,
          class End, std::size_t... r, std::size_t... v>
HWY_INLINE void product_tile(const Left& left, const float* right,
                             std::size_t step, std::size_t terms,
                             const Begin& begin, const End& end,
                             std::index_sequence<r...>,
                             std::index_sequence<v...>) {
  using V = typename Way::V;
  constexpr std::size_t kWidth = sizeof...(v);
  constexpr std::size_t kLanes = hn::MaxLanes(typename Way::D());
  V sum[sizeof...(r) * kWidth];
  const auto for_row = [&](auto row, const auto& visit) HWY_ATTR {
    (visit(row, std::integral_constant<std::size_t, v>()), ...);
  };
  (for_row(std::integral_constant<std::size_t, r>(),
           [&](auto row, auto vector)
               HWY_ATTR { sum[row * kWidth + vector] = begin(row, vector); }),
   ...);
  constexpr std::make_index_sequence<kAtOnce> kTerms;
  for (std::size_t t = 0; t < terms; t += kAtOnce) {
    V x[kAtOnce][kWidth];
    for_constants(
        [&](auto k) HWY_ATTR {
          ((x[k][v] = Way::load(right + k * step + v * kLanes)), ...);
        },
        kTerms);
    const auto add = [&](auto row, auto k, auto value) HWY_ATTR {
      const V y = Way::set(value);
      ((sum[row * kWidth + v] = Way::add(y, x[k][v], sum[row * kWidth + v])),
       ...);
    };
    const auto add_row = [&](auto row) HWY_ATTR {
      const auto value = left(row, t);
      for_constants(
          [&](auto k) HWY_ATTR {
            if constexpr (kAtOnce == 1) {
              add(row, k, value);
            } else {
              add(row, k, value(k));
            }
          },
          kTerms);
    };
    (add_row(std::integral_constant<std::size_t, r>()), ...);
    right += kAtOnce * step;
  }
  (for_row(std::integral_constant<std::size_t, r>(),
           [&](auto row, auto vector)
               HWY_ATTR { end(row, vector, sum[row * kWidth + vector]); }),
   ...);
}

}  // namespace swamp::slave::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // SWAMP_SLAVE_PRODUCT_TILE_INL_H_
