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

// widen_float16() widens as many float16 as `df` has lanes.
template <class DF>
HWY_INLINE hn::Vec<DF> widen_float16(
    DF df, hn::Vec<hn::Rebind<std::uint16_t, DF>> half) {
#if SWAMP_CONVERTS_FLOAT16
  const hn::Rebind<hwy::float16_t, DF> dh;
  return hn::PromoteTo(df, hn::BitCast(dh, half));
#else
  const hn::RebindToSigned<DF> di;
  const auto bits =
      hn::BitCast(di, hn::PromoteTo(hn::RebindToUnsigned<DF>(), half));
  const auto magnitude = hn::And(bits, hn::Set(di, 0x7fff));
  const auto sign = hn::ShiftLeft<16>(hn::Xor(bits, magnitude));
  // Parts that are 0 in other lanes: below AVX a blend costs three operations.
  const auto is_normal =
      hn::VecFromMask(di, hn::Gt(magnitude, hn::Set(di, 0x03ff)));
  const auto normal = hn::And(
      is_normal, hn::Add(hn::ShiftLeft<13>(magnitude), hn::Set(di, 112 << 23)));
  const auto special =
      hn::And(hn::VecFromMask(di, hn::Gt(magnitude, hn::Set(di, 0x7bff))),
              hn::Set(di, 0x7f800000));
  // A conversion from int to float: denormals-are-zero would flush a subnormal
  // float.
  const auto tiny = hn::ConvertTo(df, hn::AndNot(is_normal, magnitude));
  const auto subnormal = hn::BitCast(di, hn::Mul(tiny, hn::Set(df, 0x1p-24f)));
  return hn::BitCast(df,
                     hn::Or(hn::Or(normal, special), hn::Or(subnormal, sign)));
#endif
}

// truncate() converts floats in the range of an int32.
template <class DI, class VF>
HWY_INLINE hn::Vec<DI> truncate(DI di, VF value) {
#if HWY_TARGET == HWY_SSE4 || HWY_TARGET == HWY_SSSE3
  // Highway's also handles other values, with four more operations.
  (void)di;
  return hn::Vec<DI>{_mm_cvttps_epi32(value.raw)};
#else
  return hn::ConvertTo(di, value);
#endif
}

// round_float16() rounds to nearest, ties to even, in integer arithmetic.
template <class DF>
HWY_INLINE hn::Vec<hn::Rebind<std::uint16_t, DF>> round_float16(
    DF df, hn::Vec<DF> value) {
  const hn::Rebind<std::uint16_t, DF> d16;
  const hn::RebindToUnsigned<DF> du;
  const hn::RebindToSigned<DF> di;
  const auto bits = hn::BitCast(di, value);
  const auto magnitude = hn::And(bits, hn::Set(di, 0x7fffffff));
  const auto sign =
      hn::ShiftRight<16>(hn::BitCast(du, hn::Xor(bits, magnitude)));
  const auto one = hn::Set(di, 1);

  // Normal results: rebias and round off 13 bits. A carry out gives inf; the
  // minimum, for what is larger.
  const auto is_normal =
      hn::VecFromMask(di, hn::Gt(magnitude, hn::Set(di, 0x387fffff)));
  const auto odd = hn::And(hn::ShiftRight<13>(magnitude), one);
  const auto rebiased = hn::Add(magnitude, hn::Set(di, 0xfff - (112 << 23)));
  const auto normal = hn::And(
      is_normal,
      hn::Min(hn::ShiftRight<13>(hn::Add(rebiased, odd)), hn::Set(di, 0x7c00)));

  // Subnormal results: |x| * 2^24, its truncation and its fraction are exact in
  // every rounding mode. Other lanes are 0.
  const auto tiny = hn::AndNot(is_normal, magnitude);
  const auto scaled = hn::Mul(hn::BitCast(df, tiny), hn::Set(df, 0x1p24f));
  const auto truncated = truncate(di, scaled);
  const auto fraction = hn::Sub(scaled, hn::ConvertTo(df, truncated));
  // Up above 0.5, and at 0.5 if that is odd: bits of positive floats compare as
  // integers.
  const auto up =
      hn::Gt(hn::Add(hn::BitCast(di, fraction), hn::And(truncated, one)),
             hn::Set(di, 0x3f000000));
  const auto subnormal = hn::Sub(truncated, hn::VecFromMask(di, up));

  // A nan becomes 0x7e00: its payload is not kept.
  const auto nan =
      hn::And(hn::VecFromMask(di, hn::Gt(magnitude, hn::Set(di, 0x7f800000))),
              hn::Set(di, 0x200));
  const auto result = hn::Or(hn::Or(normal, subnormal), nan);
  return hn::TruncateTo(d16, hn::Or(hn::BitCast(du, result), sign));
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
  template <class DF>
  static HWY_INLINE hn::Vec<DF> load(DF df, const Element* at) {
    return widen_float16(df, hn::LoadU(hn::Rebind<Element, DF>(), at));
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

// Only its bits are loaded.
using Float64 = element::Float64;

template <std::uint8_t kType>
using FormatOf = element::NamedFormat<kType, Float16, BFloat16, Float32>;

}  // namespace swamp::slave::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // SWAMP_SLAVE_FORMATS_INL_H_
