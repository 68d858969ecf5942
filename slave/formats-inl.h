// The formats as vectors, per target: conversions to and from float that are
// exact on every target. Included once per target, like Highway's own -inl.h.
#if defined(SWAMP_SLAVE_FORMATS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SWAMP_SLAVE_FORMATS_INL_H_
#undef SWAMP_SLAVE_FORMATS_INL_H_
#else
#define SWAMP_SLAVE_FORMATS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "slave/formats.h"

HWY_BEFORE_NAMESPACE();
namespace swamp::slave::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Whether the CPU converts float16. Below AVX2, Highway 1.0.3 emulates it, and
// converts inf to 65536 and truncates.
#undef SWAMP_CONVERTS_FLOAT16
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || \
    (HWY_TARGET == HWY_NEON && HWY_ARCH_ARM_A64)
#define SWAMP_CONVERTS_FLOAT16 1
#else
#define SWAMP_CONVERTS_FLOAT16 0
#endif

// SWAMP_VECTOR_INLINE is HWY_INLINE if vectors have several elements. Without
// vectors a loop is unrolled for each element, and compiles slowly if it
// inlines conversions.
#undef SWAMP_VECTOR_INLINE
#if HWY_TARGET == HWY_SCALAR
#define SWAMP_VECTOR_INLINE HWY_NOINLINE
#else
#define SWAMP_VECTOR_INLINE HWY_INLINE
#endif

// Narrow is the numbers of a format of Specials::ieee or nan, with fewer than 8
// exponent bits, that its conversions need.
template <ScalarType kType>
struct Narrow {
  static constexpr FloatFormat kFormat = kFloatFormats[kType];
  static constexpr int kCut = 23 - static_cast<int>(kFormat.mantissa_bits);
  static constexpr int kRebias = (127 - kFormat.bias()) << 23;
  static constexpr int kMagnitude = static_cast<int>(kFormat.sign()) - 1;
  static constexpr int kMantissa = static_cast<int>(kFormat.mantissa());
  static constexpr int kLargest = static_cast<int>(kFormat.largest());
  static constexpr int kOverflow = kLargest + (kFormat.has_infinity() ? 1 : 0);
  // Added to a normal number's bits, it makes inf or nan of them.
  static constexpr int kSpecial =
      (((kLargest + 1) << kCut) + kRebias) ^
      (kFormat.has_infinity() ? 0x7f800000 : 0x7fc00000);
  // The float whose bits are these is the last place of subnormal numbers, and
  // its inverse.
  static constexpr int kPlace = (128 - kFormat.bias() - 23 + kCut) << 23;
  static constexpr int kInversePlace = (254 << 23) - kPlace;
  // NaN: float16 keeps its payload; 8-bit formats get PyTorch's pattern.
  static constexpr int kNan =
      kFormat.width == 8 ? kMagnitude : static_cast<int>(kFormat.quiet_nan());
};

// widen_bits() widens numbers of a format, as element::Float8 does; in one with
// inf, a nan keeps its payload.
template <ScalarType kType, class DF>
SWAMP_VECTOR_INLINE hn::Vec<DF> widen_bits(DF df,
                                  hn::Vec<hn::RebindToUnsigned<DF>> numbers) {
  using N = Narrow<kType>;
  const hn::RebindToSigned<DF> di;
  const auto bits = hn::BitCast(di, numbers);
  const auto magnitude = hn::And(bits, hn::Set(di, N::kMagnitude));
  const auto sign =
      hn::ShiftLeft<32 - N::kFormat.width>(hn::Xor(bits, magnitude));
  // Parts that are 0 in other lanes: below AVX a blend costs three operations.
  const auto is_normal =
      hn::VecFromMask(di, hn::Gt(magnitude, hn::Set(di, N::kMantissa)));
  const auto normal = hn::And(
      is_normal,
      hn::Add(hn::ShiftLeft<N::kCut>(magnitude), hn::Set(di, N::kRebias)));
  const auto special =
      hn::And(hn::VecFromMask(di, hn::Gt(magnitude, hn::Set(di, N::kLargest))),
              hn::Set(di, N::kSpecial));
  // A conversion from int to float: denormals-are-zero would flush a subnormal
  // float.
  const auto tiny = hn::ConvertTo(df, hn::AndNot(is_normal, magnitude));
  const auto place = hn::BitCast(df, hn::Set(di, N::kPlace));
  const auto subnormal = hn::BitCast(di, hn::Mul(tiny, place));
  return hn::BitCast(df,
                     hn::Or(hn::Xor(normal, special), hn::Or(subnormal, sign)));
}

// widen_float16() widens as many float16 as `df` has lanes.
template <class DF>
HWY_INLINE hn::Vec<DF> widen_float16(
    DF df, hn::Vec<hn::Rebind<std::uint16_t, DF>> half) {
#if SWAMP_CONVERTS_FLOAT16
  const hn::Rebind<hwy::float16_t, DF> dh;
  return hn::PromoteTo(df, hn::BitCast(dh, half));
#else
  return widen_bits<kFloat16>(df,
                              hn::PromoteTo(hn::RebindToUnsigned<DF>(), half));
#endif
}

// truncate() converts floats in the range of an int32.
template <class DI, class VF>
HWY_INLINE hn::Vec<DI> truncate(DI di, VF value) {
#if HWY_TARGET == HWY_SSE4
  // Highway's also handles other values, with four more operations.
  (void)di;
  return hn::Vec<DI>{_mm_cvttps_epi32(value.raw)};
#else
  return hn::ConvertTo(di, value);
#endif
}

// round_bits() rounds to nearest, ties to even, in integer arithmetic, to the
// bits of a format.
template <ScalarType kType, class DF>
SWAMP_VECTOR_INLINE hn::Vec<hn::RebindToUnsigned<DF>> round_bits(
    DF df, hn::Vec<DF> value) {
  using N = Narrow<kType>;
  const hn::RebindToUnsigned<DF> du;
  const hn::RebindToSigned<DF> di;
  const auto bits = hn::BitCast(di, value);
  const auto magnitude = hn::And(bits, hn::Set(di, 0x7fffffff));
  const auto sign = hn::ShiftRight<32 - N::kFormat.width>(
      hn::BitCast(du, hn::Xor(bits, magnitude)));
  const auto one = hn::Set(di, 1);

  // Normal results: rebias and round off kCut bits. A carry out gives inf; the
  // minimum limits larger ones.
  const auto is_normal = hn::VecFromMask(
      di, hn::Gt(magnitude, hn::Set(di, N::kRebias + (1 << 23) - 1)));
  const auto odd = hn::And(hn::ShiftRight<N::kCut>(magnitude), one);
  const auto rebiased =
      hn::Add(magnitude, hn::Set(di, (1 << (N::kCut - 1)) - 1 - N::kRebias));
  const auto normal = hn::And(
      is_normal, hn::Min(hn::ShiftRight<N::kCut>(hn::Add(rebiased, odd)),
                         hn::Set(di, N::kOverflow)));

  // Subnormal results: |x| in units of the last place, its truncation and its
  // fraction are exact in every rounding mode. Other lanes are 0.
  const auto tiny = hn::AndNot(is_normal, magnitude);
  const auto scaled = hn::Mul(hn::BitCast(df, tiny),
                              hn::BitCast(df, hn::Set(di, N::kInversePlace)));
  const auto truncated = truncate(di, scaled);
  const auto fraction = hn::Sub(scaled, hn::ConvertTo(df, truncated));
  // Up above 0.5, and at 0.5 if that is odd: bits of positive floats compare as
  // integers.
  const auto up =
      hn::Gt(hn::Add(hn::BitCast(di, fraction), hn::And(truncated, one)),
             hn::Set(di, 0x3f000000));
  const auto subnormal = hn::Sub(truncated, hn::VecFromMask(di, up));

  // A nan has one pattern: its payload is not kept.
  const auto nan =
      hn::And(hn::VecFromMask(di, hn::Gt(magnitude, hn::Set(di, 0x7f800000))),
              hn::Set(di, N::kNan));
  const auto result = hn::Or(hn::Or(normal, subnormal), nan);
  return hn::Or(hn::BitCast(du, result), sign);
}

template <class DF>
HWY_INLINE hn::Vec<hn::Rebind<std::uint16_t, DF>> round_float16(
    DF df, hn::Vec<DF> value) {
  return hn::TruncateTo(hn::Rebind<std::uint16_t, DF>(),
                        round_bits<kFloat16>(df, value));
}

// narrow_float16() rounds to nearest, ties to even, in every rounding mode.
template <class DF>
HWY_INLINE hn::Vec<hn::Rebind<std::uint16_t, DF>> narrow_float16(
    DF df, hn::Vec<DF> value) {
#if SWAMP_CONVERTS_FLOAT16
#if HWY_ARCH_ARM
  // Its conversion obeys the rounding mode. Not volatile, because no kernel
  // changes it: the compiler may read it once for a whole loop.
  std::uint64_t fpcr;
  asm("mrs %0, fpcr" : "=r"(fpcr));
  if (HWY_UNLIKELY((fpcr & 0xc00000) != 0)) return round_float16(df, value);
#endif
  const hn::Rebind<hwy::float16_t, DF> dh;
  (void)df;
  return hn::BitCast(hn::Rebind<std::uint16_t, DF>(), hn::DemoteTo(dh, value));
#else
  return round_float16(df, value);
#endif
}

// even_bfloat16() and odd_bfloat16() widen every other bfloat16 of a vector, as
// pairs in 32 bits: the odd ones are the upper halves of floats, and a shift
// makes the even ones so. No element changes its place.
template <class DF>
HWY_INLINE hn::Vec<DF> even_bfloat16(DF df,
                                     hn::Vec<hn::RebindToUnsigned<DF>> pairs) {
  return hn::BitCast(df, hn::ShiftLeft<16>(pairs));
}
template <class DF>
HWY_INLINE hn::Vec<DF> odd_bfloat16(DF df,
                                    hn::Vec<hn::RebindToUnsigned<DF>> pairs) {
  const hn::RebindToUnsigned<DF> du;
  return hn::BitCast(df, hn::And(pairs, hn::Set(du, 0xffff0000u)));
}

// round_bfloat16_number() is round_bfloat16() for numbers and the quiet nan
// without payload.
template <class DF>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<DF>> round_bfloat16_number(
    DF df, hn::Vec<DF> value) {
  (void)df;
  const hn::RebindToUnsigned<DF> du;
  const auto bits = hn::BitCast(du, value);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
  return hn::Add(hn::Add(bits, hn::Set(du, 0x7fffu)), odd);
}

// round_bfloat16() rounds to nearest, ties to even, and leaves the bfloat16 in
// the upper half of each float's bits; the lower half is undefined. The CPU's
// vcvtneps2bf16 is no alternative, because it flushes subnormals.
template <class DF>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<DF>> round_bfloat16(DF df,
                                                            hn::Vec<DF> value) {
  const hn::RebindToUnsigned<DF> du;
  const auto rounded = round_bfloat16_number(df, value);
  const auto nan = hn::Or(hn::BitCast(du, value), hn::Set(du, 0x400000u));
  return hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(value)), nan, rounded);
}

// A format loads and narrows as many elements as `df` has lanes; round() rounds
// floats to the precision of the format. narrow_number() is narrow() for inputs
// that are numbers or the quiet nan without payload.
struct Float16 : element::Float16 {
  using element::Float16::widen;
  template <class DF>
  static HWY_INLINE hn::Vec<DF> widen(DF df,
                                      hn::Vec<hn::Rebind<Element, DF>> x) {
    return widen_float16(df, x);
  }
  template <class DF>
  static HWY_INLINE hn::Vec<DF> load(DF df, const Element* at) {
    return widen(df, hn::LoadU(hn::Rebind<Element, DF>(), at));
  }
  template <class DF>
  static HWY_INLINE hn::Vec<hn::Rebind<Element, DF>> narrow(DF df,
                                                            hn::Vec<DF> value) {
    return narrow_float16(df, value);
  }
  template <class DF>
  static HWY_INLINE hn::Vec<hn::Rebind<Element, DF>> narrow_number(
      DF df, hn::Vec<DF> value) {
    return narrow(df, value);
  }
  template <class DF>
  static HWY_INLINE hn::Vec<DF> round(DF df, hn::Vec<DF> value) {
    return widen_float16(df, narrow_float16(df, value));
  }
};

struct BFloat16 : element::BFloat16 {
  template <class DF>
  static HWY_INLINE hn::Vec<DF> load(DF df, const Element* at) {
    const hn::RebindToUnsigned<DF> du;
    const auto bits = hn::LoadU(hn::Rebind<Element, DF>(), at);
    return hn::BitCast(df, hn::ShiftLeft<16>(hn::PromoteTo(du, bits)));
  }
  template <class DF>
  static HWY_INLINE hn::Vec<hn::Rebind<Element, DF>> narrow(DF df,
                                                            hn::Vec<DF> value) {
    const auto upper = hn::ShiftRight<16>(round_bfloat16(df, value));
    return hn::TruncateTo(hn::Rebind<Element, DF>(), upper);
  }
  template <class DF>
  static HWY_INLINE hn::Vec<hn::Rebind<Element, DF>> narrow_number(
      DF df, hn::Vec<DF> value) {
    const auto upper = hn::ShiftRight<16>(round_bfloat16_number(df, value));
    return hn::TruncateTo(hn::Rebind<Element, DF>(), upper);
  }
  template <class DF>
  static HWY_INLINE hn::Vec<DF> round(DF df, hn::Vec<DF> value) {
    const hn::RebindToUnsigned<DF> du;
    return hn::BitCast(
        df, hn::And(round_bfloat16(df, value), hn::Set(du, 0xffff0000u)));
  }
};

struct Float32 : element::Float32 {
  template <class DF>
  static HWY_INLINE hn::Vec<DF> load(DF df, const Element* at) {
    return hn::LoadU(df, at);
  }
  template <class DF>
  static HWY_INLINE hn::Vec<DF> narrow(DF, hn::Vec<DF> value) {
    return value;
  }
  template <class DF>
  static HWY_INLINE hn::Vec<DF> narrow_number(DF, hn::Vec<DF> value) {
    return value;
  }
  template <class DF>
  static HWY_INLINE hn::Vec<DF> round(DF, hn::Vec<DF> value) {
    return value;
  }
};

template <ScalarType kType>
struct Float8 : element::Float8<kType> {
  using Element = std::uint8_t;
  using element::Float8<kType>::widen;
  template <class DF>
  static HWY_INLINE hn::Vec<DF> widen(DF df,
                                      hn::Vec<hn::Rebind<Element, DF>> x) {
    return widen_bits<kType>(df, hn::PromoteTo(hn::RebindToUnsigned<DF>(), x));
  }
  template <class DF>
  static HWY_INLINE hn::Vec<DF> load(DF df, const Element* at) {
    return widen(df, hn::LoadU(hn::Rebind<Element, DF>(), at));
  }
  template <class DF>
  static HWY_INLINE hn::Vec<hn::Rebind<Element, DF>> narrow(DF df,
                                                            hn::Vec<DF> value) {
    return hn::TruncateTo(hn::Rebind<Element, DF>(),
                          round_bits<kType>(df, value));
  }
};
using Float8E4M3FN = Float8<kFloat8E4M3FN>;
using Float8E5M2 = Float8<kFloat8E5M2>;

// Only its bits are loaded.
using Float64 = element::Float64;

template <std::uint8_t kType>
using FormatOf = element::NamedFormat<kType, Float16, BFloat16, Float32,
                                      Float8E4M3FN, Float8E5M2>;

}  // namespace swamp::slave::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // SWAMP_SLAVE_FORMATS_INL_H_
