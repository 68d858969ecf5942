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

// widen_float16() widens as many float16 as `df` has lanes. With F16C the
// target's conversions are correct; below AVX2, Highway 1.0.3 emulates them,
// and converts inf to 65536 and truncates.
template <class DF>
HWY_INLINE hn::Vec<DF> widen_float16(
    DF df, hn::Vec<hn::Rebind<std::uint16_t, DF>> half) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  const hn::Rebind<hwy::float16_t, DF> dh;
  return hn::PromoteTo(df, hn::BitCast(dh, half));
#else
  const hn::RebindToSigned<DF> di;
  const auto bits =
      hn::BitCast(di, hn::PromoteTo(hn::RebindToUnsigned<DF>(), half));
  const auto magnitude = hn::And(bits, hn::Set(di, 0x7fff));
  const auto sign = hn::ShiftLeft<16>(hn::Xor(bits, magnitude));
  const auto shifted = hn::ShiftLeft<13>(magnitude);
  const auto normal = hn::Add(shifted, hn::Set(di, 112 << 23));
  const auto special = hn::Or(shifted, hn::Set(di, 0x7f800000));
  // A conversion from int to float: denormals-are-zero would flush a subnormal
  // float.
  const auto subnormal = hn::BitCast(
      di, hn::Mul(hn::ConvertTo(df, magnitude), hn::Set(df, 0x1p-24f)));
  const auto is_subnormal = hn::Lt(magnitude, hn::Set(di, 0x0400));
  const auto is_special = hn::Gt(magnitude, hn::Set(di, 0x7bff));
  const auto value = hn::IfThenElse(
      is_special, special, hn::IfThenElse(is_subnormal, subnormal, normal));
  return hn::BitCast(df, hn::Or(value, sign));
#endif
}

// narrow_float16() rounds to nearest, ties to even.
template <class DF>
HWY_INLINE hn::Vec<hn::Rebind<std::uint16_t, DF>> narrow_float16(
    DF df, hn::Vec<DF> value) {
  const hn::Rebind<std::uint16_t, DF> d16;
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  const hn::Rebind<hwy::float16_t, DF> dh;
  (void)df;
  return hn::BitCast(d16, hn::DemoteTo(dh, value));
#else
  const hn::RebindToSigned<DF> di;
  const auto bits = hn::BitCast(di, value);
  const auto magnitude = hn::And(bits, hn::Set(di, 0x7fffffff));
  const auto sign = hn::And(hn::ShiftRight<16>(bits), hn::Set(di, 0x8000));
  const auto one = hn::Set(di, 1);

  // Normal results: rebias and round off 13 bits. A carry out gives inf.
  const auto odd = hn::And(hn::ShiftRight<13>(magnitude), one);
  const auto rebiased = hn::Add(magnitude, hn::Set(di, 0xfff - (112 << 23)));
  const auto normal = hn::ShiftRight<13>(hn::Add(rebiased, odd));

  // Subnormal results: |x| * 2^24, its truncation and its fraction are exact in
  // every rounding mode. Other lanes are zeroed, because values that do not fit
  // into an int would raise the invalid flag.
  const auto is_tiny = hn::Lt(magnitude, hn::Set(di, 0x38800000));
  const auto tiny = hn::IfThenElseZero(is_tiny, magnitude);
  const auto scaled = hn::Mul(hn::BitCast(df, tiny), hn::Set(df, 0x1p24f));
  const auto truncated = hn::ConvertTo(di, scaled);
  const auto fraction = hn::Sub(scaled, hn::ConvertTo(df, truncated));
  const auto half = hn::Set(df, 0.5f);
  const auto is_odd = hn::Eq(hn::And(truncated, one), one);
  const auto up =
      hn::Or(hn::RebindMask(di, hn::Gt(fraction, half)),
             hn::And(hn::RebindMask(di, hn::Eq(fraction, half)), is_odd));
  const auto subnormal = hn::Sub(truncated, hn::VecFromMask(di, up));

  const auto nan =
      hn::Or(hn::Set(di, 0x7e00),
             hn::And(hn::ShiftRight<13>(magnitude), hn::Set(di, 0x3ff)));
  const auto is_nan = hn::Gt(magnitude, hn::Set(di, 0x7f800000));
  const auto is_huge = hn::Gt(magnitude, hn::Set(di, 0x477fffff));
  auto result = hn::IfThenElse(is_tiny, subnormal, normal);
  result = hn::IfThenElse(is_huge, hn::Set(di, 0x7c00), result);
  result = hn::IfThenElse(is_nan, nan, result);
  const hn::RebindToUnsigned<DF> du;
  return hn::TruncateTo(d16, hn::BitCast(du, hn::Or(result, sign)));
#endif
}

// round_bfloat16_number() is round_bfloat16() for inputs known not to be nan.
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
// floats to the precision of the format.
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
  static HWY_INLINE hn::Vec<DF> round(DF, hn::Vec<DF> value) {
    return value;
  }
};

// Only its bits are loaded.
using Float64 = element::Float64;

}  // namespace swamp::slave::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // SWAMP_SLAVE_FORMATS_INL_H_
