// The codes or values of blocks along columns. A lane is a column, and a loop
// over the rows computes a vector of them; codes are transposed at the end.
// block_rows-inl.h has the other direction, which is another algorithm.
// Included once per target, like Highway's own -inl.h.
#if defined(SWAMP_SLAVE_BLOCK_COLUMNS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SWAMP_SLAVE_BLOCK_COLUMNS_INL_H_
#undef SWAMP_SLAVE_BLOCK_COLUMNS_INL_H_
#else
#define SWAMP_SLAVE_BLOCK_COLUMNS_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "slave/batch-inl.h"
#include "slave/block_rows-inl.h"
#include "slave/formats-inl.h"
#include "slave/quantize-inl.h"
#include "slave/quantize_args.h"

HWY_BEFORE_NAMESPACE();
namespace swamp::slave::HWY_NAMESPACE {

namespace quantizing {

// narrowed() is f32(x); on these targets Highway's DemoteTo turns inf into the
// largest finite float.
template <class DH, class V>
HWY_INLINE hn::Vec<DH> narrowed(DH dh, V x) {
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
  const hn::Rebind<double, DH> dd;
  double from[hn::MaxLanes(dd)];
  float to[hn::MaxLanes(dh)];
  hn::StoreU(x, dd, from);
  for (std::size_t i = 0; i < hn::MaxLanes(dh); ++i) {
    to[i] = static_cast<float>(from[i]);
  }
  return hn::LoadU(dh, to);
#else
  return hn::DemoteTo(dh, x);
#endif
}

inline constexpr std::size_t kLine = 64;  // bytes of a cache line

#if HWY_TARGET != HWY_SCALAR
using D8 = hn::FixedTag<std::uint8_t, 16>;
// interleave() makes vectors 2i and 2i + 1 of the alternating bytes of i and i
// + 8.
HWY_INLINE void interleave(hn::Vec<D8>* v) {
  const D8 d;
  hn::Vec<D8> next[16];
  for (std::size_t i = 0; i < 8; ++i) {
    next[2 * i] = hn::InterleaveLower(d, v[i], v[i + 8]);
    next[2 * i + 1] = hn::InterleaveUpper(d, v[i], v[i + 8]);
  }
  for (std::size_t i = 0; i < 16; ++i) v[i] = next[i];
}
#endif

// transpose() writes `rows` bytes of each of `columns` columns; the rows are
// kBlockWidth apart, the outputs out_step. Whole cache lines are stored at
// once, because the outputs may lie so that they evict each other.
HWY_NOINLINE inline void transpose(const std::uint8_t* from, std::size_t rows,
                                   std::size_t columns, bool non_temporal,
                                   std::uint8_t* out, std::size_t out_step) {
  (void)non_temporal;  // of scalar targets
  for (std::size_t c = 0; c < columns; c += 16) {
    for (std::size_t r = 0; r < rows; r += kLine) {
#if HWY_TARGET != HWY_SCALAR
      const std::size_t height = std::min(kLine, rows - r);
      if (HWY_LIKELY(c + 16 <= columns && height % 16 == 0)) {
        const D8 d;
        const bool stream =
            non_temporal && streams(out) && out_step % kLine == 0;
        HWY_ALIGN std::uint8_t lines[16 * kLine];
        for (std::size_t q = 0; q < height; q += 16) {
          hn::Vec<D8> v[16];
          for (std::size_t i = 0; i < 16; ++i) {
            v[i] = hn::LoadU(d, from + (r + q + i) * kBlockWidth + c);
          }
          for (int k = 0; k < 4; ++k) interleave(v);
          for (std::size_t i = 0; i < 16; ++i) {
            hn::StoreU(v[i], d, lines + i * kLine + q);
          }
        }
        for (std::size_t i = 0; i < 16; ++i) {
          std::uint8_t* const to = out + (c + i) * out_step + r;
          for (std::size_t q = 0; q < height; q += 16) {
            const auto bytes = hn::Load(d, lines + i * kLine + q);
            if (kHasNonTemporalStores && stream) {
              hn::Stream(bytes, d, to + q);
            } else {
              hn::StoreU(bytes, d, to + q);
            }
          }
        }
        continue;
      }
#endif
      for (std::size_t j = c; j < std::min(c + 16, columns); ++j) {
        for (std::size_t i = r; i < std::min(r + kLine, rows); ++i) {
          out[j * out_step + i] = from[i * kBlockWidth + j];
        }
      }
    }
  }
}

// butterfly() is a step of hadamard_transform(). Unrolled, because the
// compiler would keep the values in memory.
template <std::size_t kStep, class V, std::size_t... kPairs>
HWY_INLINE void butterfly(V* v, std::index_sequence<kPairs...>) {
  const auto pair = [&](std::size_t a) HWY_ATTR {
    const V sum = hn::Add(v[a], v[a + kStep]);
    v[a + kStep] = hn::Sub(v[a], v[a + kStep]);
    v[a] = sum;
  };
  (pair(kPairs / kStep * (2 * kStep) + kPairs % kStep), ...);
}

// transform() is the Hadamard transform of kHadamard rows of kWidth, with the
// bits of hadamard_transform(): that the terms are multiplied by 1/4, instead
// of the sums, changes none.
template <class Format>
HWY_NOINLINE void transform(typename Format::Element* x) {
  const hn::ScalableTag<double> dd;
  const hn::Rebind<float, decltype(dd)> dh;
  HWY_ALIGN float sums[kHadamard * kWidth];
  for (std::size_t c = 0; c < kWidth; c += hn::MaxLanes(dd)) {
    hn::Vec<decltype(dd)> v[kHadamard];
    for (std::size_t i = 0; i < kHadamard; ++i) {
      const bool minus = (kHadamardMinus >> i & 1) != 0;
      v[i] = hn::Mul(hn::PromoteTo(dd, Format::load(dh, x + i * kWidth + c)),
                     hn::Set(dd, minus ? -0.25 : 0.25));
    }
    constexpr std::make_index_sequence<kHadamard / 2> kPairs;
    butterfly<1>(v, kPairs);
    butterfly<2>(v, kPairs);
    butterfly<4>(v, kPairs);
    butterfly<8>(v, kPairs);
    const auto infinity = hn::Set(dd, std::numeric_limits<double>::infinity());
    if (HWY_UNLIKELY(!hn::AllTrue(dd, hn::Lt(hn::Abs(v[0]), infinity)))) {
      const auto nan = hn::Set(dd, std::numeric_limits<double>::quiet_NaN());
      for (auto& one : v) one = hn::IfThenElse(hn::IsNaN(one), nan, one);
    }
    for (std::size_t i = 0; i < kHadamard; ++i) {
      hn::StoreU(narrowed(dh, v[i]), dh, sums + i * kWidth + c);
    }
  }
  const DF df;
  const hn::Rebind<typename Format::Element, DF> d;
  for (std::size_t i = 0; i < kHadamard * kWidth; i += kLanes) {
    hn::StoreU(Format::narrow_number(df, hn::Load(df, sums + i)), d, x + i);
  }
}

template <class Format>
class BlockColumns : public BlockRows<Format> {
  using Base = BlockRows<Format>;

 public:
  using typename Base::At;
  using typename Base::Element;

  HWY_INLINE explicit BlockColumns(const BlockArgs& args) : Base(args) {}

 protected:
  using Base::args_;
  using Base::clamps_;
  using Base::column_amax_;
  using Base::column_words_;
  using Base::has_nan_;
  using Base::is_given_;
  using Base::largest_bits_;
  using Base::packed_;
  using Base::raised_bits_;
  using Base::seen_;
  using Base::set_given_values;
  using Base::steps_;
  using Base::with_encoder;
  using Base::x_step_;
  using typename Base::Seen;

  // column_block() converts a block of each of kWidth columns (`count` of them
  // exist) to rows of codes, of packed codes, or of values, `step` bytes apart.
  HWY_NOINLINE void column_block(const Element* x, std::size_t rows,
                                 std::size_t count, const std::uint8_t* random,
                                 std::size_t index, std::uint8_t* scales,
                                 std::uint8_t* codes, std::size_t step) {
    const DU du;
    // A copy, because the rows may lie so that they evict each other.
    HWY_ALIGN Element part[kMaxBlock * kWidth];
    if (HWY_LIKELY(count == kWidth)) {
      for (std::size_t r = 0; r < rows; ++r) {
        const Element* const at = x + r * x_step_;
        hwy::Prefetch(at + kWidth);
        std::memcpy(part + r * kWidth, at, kWidth * sizeof *at);
      }
    } else {
      std::memset(part, 0, rows * kWidth * sizeof part[0]);
      for (std::size_t r = 0; r < rows; ++r) {
        std::memcpy(part + r * kWidth, x + r * x_step_, count * sizeof *x);
      }
    }
    for (std::size_t r = 0; args_.hadamard != 0 && r < rows; r += kHadamard) {
      transform<Format>(part + r * kWidth);
    }
    std::uint32_t bits[kWidth];
    float factors[kWidth] = {}, values[kWidth];
    bool finite = false;
    if (is_given_) {
      std::memcpy(factors, scales, count * sizeof(float));
      set_given_values(factors, kWidth, values);
    } else {
      const auto exceeds = [&](VU magnitudes, std::uint32_t limit) HWY_ATTR {
        return !hn::AllFalse(du, hn::Gt(magnitudes, hn::Set(du, limit)));
      };
      VU amax[kVectors];
      column_amax<false>(part, rows, amax);
      bool has_nan = false;
      for (const VU& one : amax) has_nan = has_nan || exceeds(one, kInfinity);
      has_nan_ = has_nan_ || has_nan;
      if (args_.skips_nan != 0 && HWY_UNLIKELY(has_nan)) {
        column_amax<true>(part, rows, amax);
      }
      finite = clamps_ && !has_nan;
      VU most = hn::Zero(du);
      for (std::size_t v = 0; v < kVectors; ++v) {
        const Scales chosen =
            scales_of(args_, args_.column_tensor_scale, amax[v]);
        most = hn::Max(most, amax[v]);
        finite = finite && !exceeds(amax[v], kInfinity - 1) &&
                 !exceeds(magnitude(chosen.factors), kInfinity - 1);
        hn::StoreU(chosen.bits, du, bits + v * kLanes);
        hn::StoreU(chosen.factors, DF(), factors + v * kLanes);
        hn::StoreU(chosen.values, DF(), values + v * kLanes);
      }
      column_amax_ =
          std::max(column_amax_, hn::GetLane(hn::MaxOfLanes(du, most)));
      for (std::size_t j = 0; scales != nullptr && j < count; ++j) {
        store_scale(args_, scales + j * steps_[At::column_scales], 0, bits[j]);
      }
    }
    if (codes == nullptr) return;
    with_encoder([&](const auto& encoder) HWY_ATTR {
      using Codes = std::decay_t<decltype(encoder)>;
      if (HWY_LIKELY(finite)) {
        cast_columns<true, Codes>(part, rows, count, random, index, factors,
                                  values, codes, step);
      } else {
        cast_columns<false, Codes>(part, rows, count, random, index, factors,
                                   values, codes, step);
      }
    });
  }

  template <bool kSkipNan>
  static HWY_INLINE void column_amax(const Element* x, std::size_t rows,
                                     VU* amax) {
    // One after the other: of several maxima of single lanes in a loop, g++ 12
    // for 64-bit Arm loses some.
    for (std::size_t v = 0; v < kVectors; ++v) {
      VU found = hn::Zero(DU());
      for (std::size_t r = 0; r < rows; ++r) {
        const VF one = Format::load(DF(), x + r * kWidth + v * kLanes);
        found = hn::Max(found, counted<kSkipNan>(magnitude(one)));
      }
      amax[v] = found;
    }
  }

  // The factors and the values of the scales belong to columns.
  template <bool kFinite, class Codes>
  HWY_NOINLINE void cast_columns(const Element* x, std::size_t rows,
                                 std::size_t count, const std::uint8_t* random,
                                 std::size_t index, const float* factors,
                                 const float* values_of_scales,
                                 std::uint8_t* out, std::size_t step) {
    const DF df;
    const Codes encoder{args_.code};
    const VU limit = hn::Set(DU(), kFinite ? largest_bits_ : raised_bits_);
    VF factor[kVectors], scale[kVectors];
    for (std::size_t v = 0; v < kVectors; ++v) {
      factor[v] = hn::LoadU(df, factors + v * kLanes);
      scale[v] = hn::LoadU(df, values_of_scales + v * kLanes);
    }
    const auto element = [&](std::size_t r, std::size_t v) HWY_ATTR {
      return Format::load(df, x + r * kWidth + v * kLanes);
    };
    const auto bits = [&](std::size_t r, std::size_t v) HWY_ATTR {
      return Base::template random_of<Codes>(
          column_words_,
          random == nullptr ? nullptr : random + r * steps_[At::random],
          v * kLanes, index + r * args_.index_step,
          count - std::min(count, v * kLanes));
    };
    if (args_.code.form != CodeForm::code) {
      const bool wide = args_.code.form == CodeForm::float32;
      Seen seen;
      for (std::size_t r = 0; r < rows; ++r) {
        VF values[kVectors];
        for (std::size_t v = 0; v < kVectors; ++v) {
          values[v] = Base::template value_of<kFinite>(
              encoder, limit, element(r, v), factor[v], scale[v], bits(r, v),
              seen);
        }
        if (HWY_LIKELY(count == kWidth)) {
          store_values(values, wide, out + r * step);
        } else {
          HWY_ALIGN std::uint8_t some[kWidth * sizeof(float)];
          store_values(values, wide, some);
          std::memcpy(out + r * step, some, form_bytes(args_.code, count));
        }
      }
      seen_.join(seen);
      return;
    }
    const auto codes = [&](std::size_t r, std::size_t v) HWY_ATTR {
      return Base::template codes_of<kFinite>(encoder, limit, element(r, v),
                                              factor[v], bits(r, v));
    };
    const std::size_t elements = packed_ ? 2 : 1;
    for (std::size_t r = 0; r < rows; r += elements) {
      VU bytes[kVectors];
      for (std::size_t v = 0; v < kVectors; ++v) {
        bytes[v] = codes(r, v);
        if (elements == 2) {
          bytes[v] = hn::Or(bytes[v], hn::ShiftLeft<4>(codes(r + 1, v)));
        }
      }
      store_codes<Codes::kIsTapered>(bytes, false, false,
                                     out + r / elements * step);
    }
  }
};

}  // namespace quantizing

}  // namespace swamp::slave::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // SWAMP_SLAVE_BLOCK_COLUMNS_INL_H_
