// The kernel of products of codes with scales: the exact sums of blocks of
// terms, in double, are rounded once and multiplied by their scales. Compiled
// once per target by Highway.
#include "slave/kernel_table.h"
#include "slave/product_args.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "slave/scaled_product.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "slave/batch-inl.h"
#include "slave/formats-inl.h"
#include "slave/product_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace swamp::slave::HWY_NAMESPACE {
namespace {

using DD = hn::ScalableTag<double>;
using DH = hn::Rebind<float, DD>;
using VD = hn::Vec<DD>;
using VH = hn::Vec<DH>;
constexpr std::size_t kLanes = hn::MaxLanes(DD());

// A tile has kRows rows and kVectors vectors of sums in registers.
constexpr std::size_t kVectors = 2;
constexpr std::size_t kRows = kTileRows;
static_assert(kRows <= kMaxProductRows);

// Whole adds products, which are exact, to an exact sum; Above their multiples
// of kProductUnit, and Below what is left of them.
struct Whole {
  using D = DD;
  using V = VD;

  static HWY_INLINE V load(const float* right) {
    return hn::PromoteTo(DD(), hn::LoadU(DH(), right));
  }
  static HWY_INLINE V set(double left) { return hn::Set(DD(), left); }
  static HWY_INLINE V add(V a, V b, V sum) { return hn::MulAdd(a, b, sum); }

  // above() is |product| < 2^46 rounded to a multiple of kProductUnit.
  static HWY_INLINE V above(V product) {
    const V large = hn::Set(DD(), 0x1.8p52 * kProductUnit);
    return hn::Sub(hn::Add(product, large), large);
  }
};
struct Above : Whole {
  static HWY_INLINE V add(V a, V b, V sum) {
    return hn::Add(sum, above(hn::Mul(a, b)));
  }
};
struct Below : Whole {
  static HWY_INLINE V add(V a, V b, V sum) {
    const V product = hn::Mul(a, b);
    const V below = hn::Sub(product, above(product));
    // inf - inf: the sum above is inf or nan.
    return hn::Add(sum, hn::IfThenZeroElse(hn::IsNaN(below), below));
  }
};

// add_tile() adds `terms` terms to kHeight rows of sums.
template <class Way, std::size_t kHeight>
HWY_NOINLINE void add_tile(const double* a, const float* b, std::size_t terms,
                           double* sums) {
  const DD dd;
  for (std::size_t i = 0; i < kProductLanes; i += kVectors * kLanes) {
    const auto at = [&](std::size_t row, std::size_t v) {
      return sums + row * kProductLanes + i + v * kLanes;
    };
    product_tile<Way>([&](auto row, std::size_t t)
                          HWY_ATTR { return a[row * kScaledTerms + t]; },
                      b + i, kProductLanes, terms,
                      [&](auto row, auto v)
                          HWY_ATTR { return hn::LoadU(dd, at(row, v)); },
                      [&](auto row, auto v, VD sum)
                          HWY_ATTR { hn::StoreU(sum, dd, at(row, v)); },
                      std::make_index_sequence<kHeight>(),
                      std::make_index_sequence<kVectors>());
  }
}

template <class Way>
HWY_INLINE void add_terms(std::size_t height, const double* a, const float* b,
                          std::size_t terms, double* sums) {
  if (height == kRows) return add_tile<Way, kRows>(a, b, terms, sums);
  for (std::size_t r = 0; r < height; ++r) {
    add_tile<Way, 1>(a + r * kScaledTerms, b, terms, sums + r * kProductLanes);
  }
}

// rounded() is f32(sum); on these targets Highway's DemoteTo turns inf into the
// largest finite float.
HWY_INLINE VH rounded(VD sum) {
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
  double from[kLanes];
  float to[kLanes];
  hn::StoreU(sum, DD(), from);
  for (std::size_t i = 0; i < kLanes; ++i) to[i] = static_cast<float>(from[i]);
  return hn::LoadU(DH(), to);
#else
  return hn::DemoteTo(DH(), sum);
#endif
}

// rounded_sum() is f32(above + below): the sum of both is rounded to an odd
// double first, if it is not one, so that it is not rounded twice to nearest.
HWY_INLINE VH rounded_sum(VD above, VD below) {
  const DD dd;
  const hn::RebindToUnsigned<DD> du;
  const VD sum = hn::Add(above, below);
  const VD part = hn::Sub(sum, above);
  const VD error =
      hn::Add(hn::Sub(above, hn::Sub(sum, part)), hn::Sub(below, part));
  const auto bits = hn::BitCast(du, sum);
  const auto one = hn::Set(du, std::uint64_t{1});
  // Towards the error.
  const auto other_sign =
      hn::ShiftRight<63>(hn::Xor(bits, hn::BitCast(du, error)));
  const auto odd = hn::Sub(hn::Add(bits, one), hn::Add(other_sign, other_sign));
  const auto is_exact = hn::Not(hn::Gt(hn::Abs(error), hn::Zero(dd)));
  const auto is_odd = hn::RebindMask(dd, hn::Eq(hn::And(bits, one), one));
  return rounded(
      hn::IfThenElse(hn::Or(is_exact, is_odd), sum, hn::BitCast(dd, odd)));
}

template <class Format>
struct ScaledProduct {
  using Element = typename Format::Element;
  using At = ScaledProductOperand;

  const ScaledProductArgs& args;
  const float* b;
  const float* b_scales;
  double* terms;  // of rows of a, each kScaledTerms
  double* above;  // sums of kProductLanes
  double* below;
  float* y;
  std::size_t a_row, scale_row, out_row;  // elements from row to row

  ScaledProduct(const ScaledProductArgs& arguments, const Tile& tile)
      : args(arguments),
        b(reinterpret_cast<const float*>(operand<const std::byte>(tile, At::b) +
                                         sizeof(ProductPanel))),
        b_scales(operand<const float>(tile, At::b_scales)),
        terms(static_cast<double*>(tile.scratch)),
        above(terms + kMaxProductRows * kScaledTerms),
        below(above + kMaxProductRows * kProductLanes),
        y(reinterpret_cast<float*>(below + kMaxProductRows * kProductLanes)),
        a_row(tile.layout[At::a].unit_step / sizeof(std::uint16_t)),
        scale_row(tile.layout[At::a_scales].unit_step / sizeof(float)),
        out_row(tile.layout[At::out].unit_step / sizeof(Element)) {}

  // Which elements of a are converted: |x| from kSplit on, the others, or all.
  // A nan is not large, an inf is.
  enum class Part { all, large, small };

  // Converts terms of a to double in panel order; terms that belong to the
  // other part become 0.
  HWY_INLINE void convert(const std::uint16_t* a, std::size_t height,
                          std::size_t first, std::size_t count,
                          Part part) const {
#if HWY_TARGET != HWY_SCALAR
    const DH dh;
    const auto kept = [&](VH x) HWY_ATTR {
      if (part == Part::all) return x;
      const auto is_large = hn::Ge(hn::Abs(x), hn::Set(dh, kSplit));
      return part == Part::large ? hn::IfThenElseZero(is_large, x)
                                 : hn::IfThenZeroElse(is_large, x);
    };
#endif
    for (std::size_t r = 0; r < height; ++r) {
      const std::uint16_t* const row = a + r * a_row + first;
      double* const to = terms + r * kScaledTerms;
      std::size_t t = 0;
#if HWY_TARGET != HWY_SCALAR
      for (; t + kLanes <= count; t += kLanes) {
        const VD x = hn::PromoteTo(DD(), kept(BFloat16::load(dh, row + t)));
        hn::StoreU(hn::Shuffle01(x), DD(), to + t);
      }
#endif
      for (; t < count; ++t) {
        const float x = BFloat16::widen(row[t]);
        const bool is_large = x >= kSplit || x <= -kSplit;
        const bool keeps =
            part == Part::all || is_large == (part == Part::large);
        to[(t ^ 1) < count ? t ^ 1 : t] = keeps ? static_cast<double>(x) : 0.0;
      }
    }
  }

  // add_part() adds `count` terms from `first` on to the sums.
  HWY_INLINE void add_part(const std::uint16_t* a, std::size_t height,
                           std::size_t first, std::size_t count) const {
    const float* const panel = b + first * kProductLanes;
    switch (args.wide) {
      case 0:
        convert(a, height, first, count, Part::all);
        add_terms<Whole>(height, terms, panel, count, above);
        break;
      case 1:
        convert(a, height, first, count, Part::large);
        add_terms<Whole>(height, terms, panel, count, above);
        convert(a, height, first, count, Part::small);
        add_terms<Whole>(height, terms, panel, count, below);
        break;
      default:
        convert(a, height, first, count, Part::all);
        add_terms<Above>(height, terms, panel, count, above);
        add_terms<Below>(height, terms, panel, count, below);
    }
  }

  HWY_INLINE void clear_sums(std::size_t height) const {
    std::fill(above, above + height * kProductLanes, 0.0);
    std::fill(below, below + height * kProductLanes, 0.0);
  }

  // end_block() rounds the sums of a block, and multiplies by its scales.
  HWY_INLINE void end_block(const float* a_scales, std::size_t height,
                            std::size_t block) const {
    const DD dd;
    const DH dh;
    for (std::size_t r = 0; r < height; ++r) {
      const VH a_scale = hn::Set(dh, a_scales[r * scale_row + block]);
      for (std::size_t i = 0; i < kProductLanes; i += kLanes) {
        const std::size_t at = r * kProductLanes + i;
        const VD sum = hn::LoadU(dd, above + at);
        const VH inner = args.wide != 0
                             ? rounded_sum(sum, hn::LoadU(dd, below + at))
                             : rounded(sum);
        const VH scale = hn::Mul(
            a_scale, hn::LoadU(dh, b_scales + block * kProductLanes + i));
        VH value = hn::Mul(scale, inner);
        if (args.block != 0) value = hn::Add(hn::LoadU(dh, y + at), value);
        hn::StoreU(value, dh, y + at);
      }
    }
  }

  // kept() is where the state of a row is between launches: y, or the sums.
  HWY_INLINE std::size_t kept_bytes() const {
    return kProductLanes * (args.block != 0  ? sizeof(float)
                            : args.wide != 0 ? 2 * sizeof(double)
                                             : sizeof(double));
  }
  template <class Move>
  HWY_INLINE void for_kept(std::size_t height, std::byte* sums,
                           const Move& move) const {
    for (std::size_t r = 0; r < height; ++r, sums += kept_bytes()) {
      const std::size_t at = r * kProductLanes;
      if (args.block != 0) {
        move(sums, y + at, kProductLanes * sizeof(float));
        continue;
      }
      constexpr std::size_t kBytes = kProductLanes * sizeof(double);
      move(sums, above + at, kBytes);
      if (args.wide != 0) move(sums + kBytes, below + at, kBytes);
    }
  }

  // rows() computes up to kRows rows.
  HWY_INLINE void rows(const std::uint16_t* a, std::size_t height,
                       std::byte* sums, const float* a_scales,
                       Element* out) const {
    clear_sums(height);
    std::fill(y, y + height * kProductLanes, 0.0f);
    if (args.first == 0) {
      for_kept(height, sums,
               [](const std::byte* from, void* to, std::size_t bytes) {
                 std::memcpy(to, from, bytes);
               });
    }
    std::size_t block = 0;
    for (std::size_t t = 0; t < args.terms;) {
      const std::size_t end =
          args.block == 0
              ? args.terms
              : std::min<std::size_t>(args.terms, (block + 1) * args.block);
      for (; t < end;) {
        const std::size_t count = std::min(kScaledTerms, end - t);
        add_part(a, height, t, count);
        t += count;
      }
      if (args.block == 0) break;
      end_block(a_scales, height, block);
      clear_sums(height);
      ++block;
    }
    if (args.last == 0) {
      for_kept(height, sums,
               [](std::byte* to, const void* from, std::size_t bytes) {
                 std::memcpy(to, from, bytes);
               });
      return;
    }
    if (args.block == 0) end_block(a_scales, height, 0);
    for (std::size_t r = 0; r < height; ++r, out += out_row) {
      store(y + r * kProductLanes, out);
    }
  }

  HWY_INLINE void store(const float* values, Element* out) const {
    const hn::ScalableTag<float> df;
    const hn::Rebind<Element, decltype(df)> d;
    const auto nan = hn::BitCast(
        df, hn::Set(hn::RebindToUnsigned<decltype(df)>(), 0x7fc00000u));
    Element row[kProductLanes];
    for (std::size_t i = 0; i < kProductLanes; i += hn::MaxLanes(df)) {
      const auto value =
          hn::Mul(hn::Set(df, args.factor), hn::LoadU(df, values + i));
      hn::StoreU(Format::narrow_number(
                     df, hn::IfThenElse(hn::IsNaN(value), nan, value)),
                 d, row + i);
    }
    std::memcpy(out, row, args.columns * sizeof(Element));
  }
};

template <class Format>
HWY_INLINE void scaled_product(const void* arguments, const Tile& tile,
                               Result&) {
  using At = ScaledProductOperand;
  const auto& args = *static_cast<const ScaledProductArgs*>(arguments);
  const ScaledProduct<Format> product(args, tile);
  const auto* a = operand<const std::uint16_t>(tile, At::a);
  auto* sums = operand<std::byte>(tile, At::sums);
  const auto* a_scales = operand<const float>(tile, At::a_scales);
  auto* out = operand<typename Format::Element>(tile, At::out);
  for (std::size_t r = 0; r < tile.count; r += kRows) {
    const std::size_t height = std::min(kRows, tile.count - r);
    product.rows(a + r * product.a_row, height,
                 sums == nullptr ? nullptr : sums + r * product.kept_bytes(),
                 a_scales + r * product.scale_row, out + r * product.out_row);
  }
}

}  // namespace

SWAMP_KERNELS(scaled_product, kUpTo32, scaled_product<A>)

}  // namespace swamp::slave::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
