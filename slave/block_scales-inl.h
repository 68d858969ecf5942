// The largest magnitudes of blocks, and the scales that rules choose from them,
// as vectors of as many blocks as there are lanes. Included once per target,
// like Highway's own -inl.h.
#if defined(SWAMP_SLAVE_BLOCK_SCALES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SWAMP_SLAVE_BLOCK_SCALES_INL_H_
#undef SWAMP_SLAVE_BLOCK_SCALES_INL_H_
#else
#define SWAMP_SLAVE_BLOCK_SCALES_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "slave/quantize-inl.h"
#include "slave/quantize_args.h"

HWY_BEFORE_NAMESPACE();
namespace swamp::slave::HWY_NAMESPACE {

namespace quantizing {

// ---- The bits of largest magnitudes

HWY_INLINE VU magnitude(VF x) {
  return hn::And(hn::BitCast(DU(), x), hn::Set(DU(), kMagnitude));
}
// A nan is the largest, if it is not skipped.
template <bool kSkipNan>
HWY_INLINE VU counted(VU bits) {
  if (!kSkipNan) return bits;
  return hn::IfThenZeroElse(hn::Gt(bits, hn::Set(DU(), kInfinity)), bits);
}

// load_some() loads `count` elements, and zeros in the other lanes.
template <class Format>
HWY_INLINE VF load_some(const typename Format::Element* x, std::size_t count) {
  if (HWY_LIKELY(count >= kLanes)) return Format::load(DF(), x);
  typename Format::Element copy[kLanes] = {};
  std::memcpy(copy, x, count * sizeof copy[0]);
  return Format::load(DF(), copy);
}

template <class Format, bool kSkipNan>
HWY_INLINE std::uint32_t amax_of(const typename Format::Element* x,
                                 std::size_t count) {
  const DU du;
  VU a = hn::Zero(du), b = a;
  std::size_t i = 0;
  const auto one = [&](std::size_t at) HWY_ATTR {
    return counted<kSkipNan>(magnitude(Format::load(DF(), x + at)));
  };
  // Not of single lanes: g++ 12 for 64-bit Arm, which vectorizes that loop,
  // then loses one of the two.
  for (; kLanes > 1 && i + 2 * kLanes <= count; i += 2 * kLanes) {
    a = hn::Max(a, one(i));
    b = hn::Max(b, one(i + kLanes));
  }
  for (; i < count; i += kLanes) {
    a = hn::Max(
        a, counted<kSkipNan>(magnitude(load_some<Format>(x + i, count - i))));
  }
  return hn::GetLane(hn::MaxOfLanes(du, hn::Max(a, b)));
}
// Returns the largest magnitudes of kCount blocks of `block` elements, a
// multiple of kLanes, in as many neighbouring lanes; 0 of all but the first
// `count` ones. Together, because a reduction of one vector leaves most lanes
// idle.
template <class Format, std::size_t kCount>
HWY_INLINE VU amax_of_blocks(const typename Format::Element* x,
                             std::size_t block, std::size_t count) {
  const DU du;
  if constexpr (kCount == 1 || kLanes == 1) {
    VU most = hn::Zero(du);
    for (std::size_t i = 0; count != 0 && i < block; i += kLanes) {
      most = hn::Max(most, magnitude(Format::load(DF(), x + i)));
    }
    return most;
  }
#if HWY_TARGET != HWY_SCALAR
  else {
    constexpr std::size_t kHalf = kCount / 2;
    const VU a = amax_of_blocks<Format, kHalf>(x, block, count);
    const VU b = amax_of_blocks<Format, kHalf>(x + kHalf * block, block,
                                               count - std::min(count, kHalf));
    return hn::Max(hn::ConcatEven(du, b, a), hn::ConcatOdd(du, b, a));
  }
#endif
}
template <class Format>
HWY_NOINLINE std::uint32_t amax_without_nan(const typename Format::Element* x,
                                            std::size_t count) {
  return amax_of<Format, true>(x, count);
}

// ---- Scales

struct Scales {
  VU bits;  // as they are stored
  VF factors;
  VF values;  // of the bits
};

HWY_INLINE VF e8m0_factors(VU codes) {
  const DU du;
  VU bits = hn::ShiftLeft<23>(hn::Sub(hn::Set(du, 254u), codes));
  bits = hn::IfThenElse(hn::Eq(codes, hn::Set(du, 254u)),
                        hn::Set(du, 0x400000u), bits);
  bits = hn::IfThenElse(hn::Eq(codes, hn::Set(du, kE8M0Nan)),
                        hn::Set(du, 0x7fc00000u), bits);
  return hn::BitCast(DF(), bits);
}

HWY_INLINE VF e8m0_values(VU codes) {
  const DU du;
  VU bits = hn::ShiftLeft<23>(codes);
  bits =
      hn::IfThenElse(hn::Eq(codes, hn::Zero(du)), hn::Set(du, 0x400000u), bits);
  bits = hn::IfThenElse(hn::Eq(codes, hn::Set(du, kE8M0Nan)),
                        hn::Set(du, 0x7fc00000u), bits);
  return hn::BitCast(DF(), bits);
}

HWY_INLINE VU mx_codes(const BlockArgs& args, VU amax) {
  const DF df;
  const DU du;
  const VU zero = hn::Zero(du), one = hn::Set(du, 1u);
  const VU mantissa_mask = hn::Set(du, 0x7fffffu), all = hn::Set(du, kE8M0Nan);
  if (args.rule == BlockRule::te_mx || args.rule == BlockRule::rceil) {
    const VU bits = hn::BitCast(
        du, hn::Mul(hn::BitCast(df, amax), hn::Set(df, 1 / args.largest)));
    const VU exponent = hn::ShiftRight<23>(bits);
    const VU mantissa = hn::And(bits, mantissa_mask);
    const VU least =
        hn::IfThenElseZero(hn::Eq(exponent, zero), hn::Set(du, 0x400000u));
    const auto up =
        hn::And(hn::Gt(mantissa, least), hn::Ne(exponent, hn::Set(du, 0xfeu)));
    const VU code = hn::Add(exponent, hn::IfThenElseZero(up, one));
    const VU infinity =
        hn::Set(du, args.rule == BlockRule::te_mx ? 0xfeu : kE8M0Nan);
    const VU special = hn::IfThenElse(hn::Eq(mantissa, zero), infinity, all);
    return hn::IfThenElse(hn::Eq(exponent, all), special, code);
  }
  VU bits = amax;
  if (args.rule == BlockRule::even) {
    bits = hn::Add(bits, hn::Set(du, 1u << (22 - args.code.mantissa_bits)));
  }
  VU exponent = hn::ShiftRight<23>(bits);
  const auto special =
      hn::Or(hn::Gt(amax, hn::Set(du, kInfinity - 1)), hn::Eq(exponent, all));
  if (args.rule == BlockRule::ceil) {
    const auto up = hn::Ne(hn::And(bits, mantissa_mask), zero);
    exponent = hn::Add(exponent, hn::IfThenElseZero(up, one));
  }
  const VU most =
      hn::Set(du, static_cast<std::uint32_t>(floor_exponent(args.largest)));
  return hn::IfThenElse(special, all, hn::Sub(hn::Max(exponent, most), most));
}

HWY_INLINE Scales nvfp4_scales(const BlockArgs& args, float tensor_scale,
                               VF amax) {
  const DF df;
  const DU du;
  const bool te = args.rule == BlockRule::te_nvfp4;
  const VF one = hn::Set(df, 1.0f), most = hn::Set(df, kFloatMax);
  VF scale;
  if (te) {
    scale = hn::Mul(amax, hn::Set(df, tensor_scale * (1.0f / 6.0f)));
  } else {
    scale =
        hn::Div(hn::Div(amax, hn::Set(df, 6.0f)), hn::Set(df, tensor_scale));
    scale = hn::IfThenElse(hn::Lt(scale, hn::Set(df, 0x1p-6f)),
                           hn::Set(df, 0x1p-6f), scale);
  }
  const VU nan = hn::Set(du, 0x7fu);
  const VU limited =
      hn::Min(hn::BitCast(du, scale), hn::Set(du, float_to_bits(448.0f)));
  const VU code =
      hn::IfThenElse(hn::Gt(hn::BitCast(du, scale), hn::Set(du, kInfinity)),
                     nan, nearest_even_code(limited, 3, 121));
  const VF value = code_value(df, code, 3, 121);
  const VF stored =
      hn::IfThenElse(hn::RebindMask(df, hn::Eq(code, nan)),
                     hn::BitCast(df, hn::Set(du, 0x7fc00000u)), value);
  if (te) {
    const VF factor =
        hn::Div(one, hn::Mul(value, hn::Set(df, 1 / tensor_scale)));
    // Not Min(), whose result for nan depends on the target.
    return {code, hn::IfThenElse(hn::Lt(factor, most), factor, most), stored};
  }
  return {code, hn::Div(hn::Set(df, 1 / tensor_scale), stored), stored};
}

// scales_of() chooses the scales of as many blocks as there are lanes, from the
// bits of their largest magnitudes. Out of line, because every instance of
// Blocks would have copies.
HWY_NOINLINE inline Scales scales_of(const BlockArgs& args, float tensor_scale,
                                     VU amax) {
  const DF df;
  const DU du;
  if (args.rule < BlockRule::microxcaling) {
    const VU codes = mx_codes(args, amax);
    return {codes, e8m0_factors(codes), e8m0_values(codes)};
  }
  if (args.rule == BlockRule::te_nvfp4 ||
      args.rule == BlockRule::torchao_nvfp4) {
    return nvfp4_scales(args, tensor_scale, hn::BitCast(df, amax));
  }
  std::uint32_t bits[kLanes];
  float factors[kLanes];
  hn::StoreU(amax, du, bits);
  for (std::size_t i = 0; i < kLanes; ++i) {
    const BlockScale scale =
        block_scale(args, tensor_scale, float_from_bits(bits[i]));
    bits[i] = scale.bits;
    factors[i] = scale.factor;
  }
  const VU stored = hn::LoadU(du, bits);
  return {stored, hn::LoadU(df, factors),
          args.rule == BlockRule::microxcaling ? e8m0_values(stored)
                                               : hn::BitCast(df, stored)};
}

// store_scale() stores scale i of an array.
HWY_INLINE void store_scale(const BlockArgs& args, std::uint8_t* scales,
                            std::size_t i, std::uint32_t bits) {
  if (args.scale_bytes == 1) {
    scales[i] = static_cast<std::uint8_t>(bits);
  } else {
    std::memcpy(scales + 4 * i, &bits, 4);
  }
}

}  // namespace quantizing

}  // namespace swamp::slave::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // SWAMP_SLAVE_BLOCK_SCALES_INL_H_
