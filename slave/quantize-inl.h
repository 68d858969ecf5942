// Vectors of floats as codes of a format of at most 8 bits, per target.
// Included once per target, like Highway's own -inl.h.
#if defined(SWAMP_SLAVE_QUANTIZE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SWAMP_SLAVE_QUANTIZE_INL_H_
#undef SWAMP_SLAVE_QUANTIZE_INL_H_
#else
#define SWAMP_SLAVE_QUANTIZE_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "slave/batch-inl.h"
#include "slave/exact_fma-inl.h"
#include "slave/quantize_args.h"

HWY_BEFORE_NAMESPACE();
namespace swamp::slave::HWY_NAMESPACE {

namespace quantizing {

using DF = hn::ScalableTag<float>;
using DU = hn::RebindToUnsigned<DF>;
using VF = hn::Vec<DF>;
using VU = hn::Vec<DU>;
inline constexpr std::size_t kLanes = hn::MaxLanes(DF());

inline constexpr std::uint32_t kMagnitude = 0x7fffffff, kInfinity = 0x7f800000;

// EvenSum is |v|, given as float32 bits, plus a power of two whose ulp is the
// format's ulp, which rounds |v| to the format. A format has at most 5 exponent
// bits.
struct EvenSum {
  VU exponent, power, sum;

  HWY_INLINE EvenSum(VU bits, std::uint32_t mantissa_bits,
                     std::uint32_t least_exponent) {
    const DF df;
    const DU du;
    exponent = hn::Clamp(hn::And(bits, hn::Set(du, kInfinity)),
                         hn::Set(du, least_exponent << 23),
                         hn::Set(du, (least_exponent + 32) << 23));
    power = hn::Add(exponent, hn::Set(du, (23 - mantissa_bits) << 23));
    sum =
        hn::BitCast(du, hn::Add(hn::BitCast(df, bits), hn::BitCast(df, power)));
  }
};

// Returns the code of |v|, given as float32 bits, without an upper limit; for
// inf and nan some larger number.
HWY_INLINE VU nearest_even_code(VU bits, std::uint32_t mantissa_bits,
                                std::uint32_t least_exponent) {
  const DU du;
  const EvenSum v(bits, mantissa_bits, least_exponent);
  const VU above =
      hn::ShiftRightSame(v.exponent, static_cast<int>(23 - mantissa_bits));
  const VU least = hn::Set(du, least_exponent << mantissa_bits);
  return hn::Add(hn::Sub(v.sum, v.power), hn::Sub(above, least));
}

// Returns the bits of the value of that code.
HWY_INLINE VU nearest_even_bits(VU bits, std::uint32_t mantissa_bits,
                                std::uint32_t least_exponent) {
  const DF df;
  const EvenSum v(bits, mantissa_bits, least_exponent);
  return hn::BitCast(DU(),
                     hn::Sub(hn::BitCast(df, v.sum), hn::BitCast(df, v.power)));
}

// Returns the value of a code without sign; above the largest number, a larger
// one, or inf or nan.
HWY_INLINE VF code_value(DF df, VU code, std::uint32_t mantissa_bits,
                         std::uint32_t least_exponent) {
  const DU du;
  const VU before = hn::Set(du, (least_exponent - 1) << 23);
  const VU place = hn::Set(du, (least_exponent - mantissa_bits) << 23);
  const VU shifted =
      hn::ShiftLeftSame(code, static_cast<int>(23 - mantissa_bits));
  const VF subnormal =
      hn::Mul(hn::ConvertTo(df, hn::BitCast(hn::RebindToSigned<DF>(), code)),
              hn::BitCast(df, place));
  const auto is_subnormal = hn::Lt(code, hn::Set(du, 1u << mantissa_bits));
  return hn::IfThenElse(hn::RebindMask(df, is_subnormal), subnormal,
                        hn::BitCast(df, hn::Add(shifted, before)));
}

// Magnitude is the parts of |v| that rounding needs: |v| = mantissa * 2^k, and
// `cut` bits of the mantissa are below the format's.
struct Magnitude {
  VU exponent;  // at least the exponent of the smallest normal number
  VU mantissa;
  VU cut;

  HWY_INLINE Magnitude(const QuantizeArgs& args, VU bits) {
    const DU du;
    const VU own = hn::ShiftRight<23>(bits);
    exponent = hn::Max(own, hn::Set(du, args.least_exponent));
    // A subnormal float32 is below all formats, with and without this bit.
    mantissa =
        hn::Or(hn::And(bits, hn::Set(du, 0x7fffffu)), hn::Set(du, 0x800000u));
    cut = hn::Min(
        hn::Sub(exponent, hn::Sub(own, hn::Set(du, 23 - args.mantissa_bits))),
        hn::Set(du, 31u));
  }
  // Returns the code of the mantissa + add, cut off.
  HWY_INLINE VU code(const QuantizeArgs& args, VU add) const {
    const DU du;
    const VU kept = hn::Shr(hn::Add(mantissa, add), cut);
    const VU above = hn::Sub(exponent, hn::Set(du, args.least_exponent));
    return hn::Add(
        kept, hn::ShiftLeftSame(above, static_cast<int>(args.mantissa_bits)));
  }
};

// TaperedExponent is the exponent of a number as HiFloat8 stores it: the width
// of the mantissa, 3 - narrower bits, follows from the exponent's distance from
// 0.
struct TaperedExponent {
  VU value, distance;
  VU number;    // bits of the distance as a float32
  VU narrower;  // 0 up to 3, 1 up to 7, 2 up to 15; 3 or more above

  HWY_INLINE explicit TaperedExponent(VU bits) {
    const DU du;
    const hn::RebindToSigned<DF> di;
    value = hn::ShiftRight<23>(bits);
    const auto exponent =
        hn::Sub(hn::BitCast(di, value), hn::Set(di, std::int32_t{127}));
    const auto positive = hn::Abs(exponent);
    distance = hn::BitCast(du, positive);
    number = hn::BitCast(du, hn::ConvertTo(DF(), positive));
    narrower = hn::Sub(hn::Max(hn::ShiftRight<23>(number), hn::Set(du, 128u)),
                       hn::Set(du, 128u));
  }
};

// Returns the bits of |v| rounded to HiFloat8, ties away, at the width that the
// exponent of v has. From 2^-23 on a number below 2^-22 becomes that.
HWY_INLINE VU tapered_bits(VU bits) {
  const DU du;
  const TaperedExponent exponent(bits);
  const VU unit = hn::Shl(hn::Set(du, 1u << 20),
                          hn::Min(exponent.narrower, hn::Set(du, 3u)));
  const VU sum = hn::Add(bits, hn::ShiftRight<1>(unit));
  const VU rounded = hn::AndNot(hn::Sub(unit, hn::Set(du, 1u)), sum);
  const VU least = hn::Set(du, 105u << 23);
  return hn::IfThenZeroElse(hn::Lt(bits, hn::Set(du, 104u << 23)),
                            hn::Max(rounded, least));
}

// Returns the code of a number that tapered_bits() returns; kBeyond if it is
// above the largest.
HWY_INLINE VU tapered_code(VU bits) {
  const DU du;
  const TaperedExponent exponent(bits);
  const VU mantissa = hn::ShiftRight<29>(hn::ShiftLeft<9>(bits));
  const VU negative = hn::IfThenElseZero(hn::Lt(bits, hn::Set(du, 127u << 23)),
                                         hn::Set(du, 8u));
  // Distances 0 and 1.
  const VU near =
      hn::Add(hn::Add(hn::ShiftLeft<3>(exponent.distance), negative),
              hn::Add(mantissa, hn::Set(du, 8u)));
  // From 2 on: `narrower` + 1, the sign, the distance without its leading 1,
  // which the exponent and the upper mantissa bits of `number` have, and the
  // mantissa.
  const VU distance = hn::Add(hn::ShiftRight<19>(exponent.number),
                              hn::ShiftLeft<4>(exponent.narrower));
  const VU far =
      hn::Add(hn::Add(hn::Sub(distance, hn::Set(du, (128u << 4) - 32)),
                      hn::Add(negative, negative)),
              hn::Shr(mantissa, exponent.narrower));
  const VU subnormal =
      hn::Sub(hn::Max(exponent.value, hn::Set(du, 104u)), hn::Set(du, 104u));
  VU code =
      hn::IfThenElse(hn::Gt(exponent.distance, hn::Set(du, 1u)), far, near);
  code = hn::IfThenElse(hn::Lt(bits, hn::Set(du, 112u << 23)), subnormal, code);
  return hn::IfThenElse(hn::Gt(bits, hn::Set(du, 142u << 23)),
                        hn::Set(du, kBeyond), code);
}

// Encoder converts vectors. v is the number that is rounded, x has its sign. It
// has a copy of the arguments, because the compiler cannot know that bytes are
// not stored over the kernel's. For the same reason an Encoder should be a
// local variable whose address is not passed on. kPowerOfTwo is any rounding
// of Specials::exponent.
inline constexpr std::uint32_t kPowerOfTwo = ~0u;
template <std::uint32_t kRounding, bool kTapered>
struct Encoder {
  QuantizeArgs args;

  // Returns the code of |v|, given as float32 bits. If |v| overflows or is nan,
  // the code is above largest().
  HWY_INLINE VU magnitude_code(VU bits, VU random) const {
    const DF df;
    const DU du;
    if constexpr (kTapered) {
      (void)random;
      return tapered_code(tapered_bits(bits));
    }
    if constexpr (kRounding == kPowerOfTwo) return exponent_code(bits);
    if constexpr (kRounding == kNearestEven) {
      return nearest_even_code(bits, args.mantissa_bits, args.least_exponent);
    }
    const Magnitude v(args, bits);
    const VU one = hn::Set(du, 1u);
    if constexpr (kRounding == kNearestAway) {
      return v.code(args, hn::Shl(one, hn::Sub(v.cut, one)));
    }
    const VU step =
        hn::ShiftLeft<23>(hn::Sub(v.exponent, hn::Set(du, args.mantissa_bits)));
    const VF part = hn::Mul(
        hn::ConvertTo(df, hn::BitCast(hn::RebindToSigned<DF>(), random)),
        hn::Set(df, 1.0f / 256));
    const VF t =
        exact_fma(df, part, hn::BitCast(df, step), hn::BitCast(df, bits));
    return Magnitude(args, hn::BitCast(du, t)).code(args, hn::Zero(du));
  }

  // Returns the bits of the number that |v| becomes; as unsigned numbers they
  // are above args.largest_bits if |v| overflows or is nan.
  HWY_INLINE VU magnitude_bits(VU bits, VU random) const {
    const DF df;
    const DU du;
    if constexpr (kTapered) {
      (void)random;
      return tapered_bits(bits);
    }
    if constexpr (kRounding == kNearestEven) {
      return nearest_even_bits(bits, args.mantissa_bits, args.least_exponent);
    }
    return hn::BitCast(du, code_value(df, magnitude_code(bits, random),
                                      args.mantissa_bits, args.least_exponent));
  }

  // Returns numbers that magnitude_bits() returns with the sign of x.
  HWY_INLINE VF signed_value(VU bits, VU x_bits) const {
    const DU du;
    VU sign = hn::AndNot(hn::Set(du, kMagnitude), x_bits);
    if (args.negative_zero == 0) {
      sign = hn::IfThenZeroElse(hn::Eq(bits, hn::Zero(du)), sign);
    }
    return hn::BitCast(DF(), hn::Or(bits, sign));
  }

  // Returns the values of the codes that special_codes() returns: `rounded` are
  // magnitude_bits().
  static HWY_NOINLINE VF special_values(const Encoder encoder, VU x_bits,
                                        VU bits, VU rounded) {
    const DF df;
    const DU du;
    const QuantizeArgs& args = encoder.args;
    const VU infinity = hn::Set(du, kInfinity);
    const auto is_negative =
        hn::RebindMask(df, hn::Ne(hn::ShiftRight<31>(x_bits), hn::Zero(du)));
    const auto replace = [&](VF value, hn::Mask<DU> mask,
                             const float* by) HWY_ATTR {
      return hn::IfThenElse(
          hn::RebindMask(df, mask),
          hn::IfThenElse(is_negative, hn::Set(df, by[1]), hn::Set(df, by[0])),
          value);
    };
    VF value = encoder.signed_value(rounded, x_bits);
    value = replace(value, hn::Gt(rounded, hn::Set(du, args.largest_bits)),
                    args.overflow_values);
    value = replace(value, hn::Eq(bits, infinity), args.infinity_values);
    return replace(value, hn::Gt(bits, infinity), args.nan_values);
  }

  // exponent_code() rounds up if the mantissa is larger than a limit. The
  // number before 2^-126 is 2^-127.
  HWY_INLINE VU exponent_code(VU bits) const {
    const DU du;
    const VU exponent = hn::ShiftRight<23>(bits);
    const VU mantissa = hn::And(bits, hn::Set(du, 0x7fffffu));
    const std::uint32_t limit = args.rounding == kUp            ? 0
                                : args.rounding == kNearestAway ? 0x3fffff
                                                                : 0x7fffff;
    const VU limits = hn::IfThenElse(
        hn::Eq(exponent, hn::Zero(du)),
        hn::Set(du, args.rounding == kDown ? 0x7fffffu : 0x400000u),
        hn::Set(du, limit));
    return hn::Add(exponent, hn::IfThenElseZero(hn::Gt(mantissa, limits),
                                                hn::Set(du, 1u)));
  }

  // The codes of a tapered format are not in the order of their values.
  HWY_INLINE std::uint32_t largest() const {
    return kTapered ? kBeyond - 1 : args.largest;
  }

  // signed_code() adds the sign of x to a code.
  HWY_INLINE VU signed_code(VU code, VU x_bits) const {
    const DU du;
    VU sign = hn::ShiftRightSame(hn::AndNot(hn::Set(du, kMagnitude), x_bits),
                                 static_cast<int>(31 - args.sign));
    if (args.negative_zero == 0) {
      sign = hn::IfThenZeroElse(hn::Eq(code, hn::Zero(du)), sign);
      if (args.complement != 0) {
        return hn::IfThenElse(hn::Eq(sign, hn::Zero(du)), code,
                              hn::Sub(hn::Set(du, kBeyond), code));
      }
    }
    return hn::Or(code, sign);
  }

  // Returns the codes of a vector in which magnitude codes are `beyond` the
  // largest, because of overflow, inf or nan. Static, so that no address of an
  // Encoder gets here.
  static HWY_NOINLINE VU special_codes(const Encoder encoder, VU x_bits,
                                       VU bits, VU code, hn::Mask<DU> beyond) {
    const DU du;
    const QuantizeArgs& args = encoder.args;
    const VU infinity = hn::Set(du, kInfinity);
    code = hn::IfThenElse(beyond, hn::Set(du, args.overflow), code);
    code = hn::IfThenElse(hn::Eq(bits, infinity), hn::Set(du, args.infinity),
                          code);
    const auto is_negative = hn::Ne(hn::ShiftRight<31>(x_bits), hn::Zero(du));
    const VU nan_code = hn::IfThenElse(
        is_negative, hn::Set(du, args.negative_nan), hn::Set(du, args.nan));
    return hn::IfThenElse(hn::Gt(bits, infinity), nan_code,
                          encoder.signed_code(code, x_bits));
  }
};

// Vectors of codes that are stored at once, as bytes or, packed, as halves.
inline constexpr std::size_t kVectors = 4, kWidth = kVectors * kLanes;

// streams() returns whether all stores of whole vectors from `to` on can be
// non-temporal.
HWY_INLINE bool streams(const std::uint8_t* to) {
  return reinterpret_cast<std::uintptr_t>(to) % 64 == 0;
}

// store_codes() stores kWidth codes; two packed codes are a byte, the first
// in the low half. `to` is aligned to the stored bytes if `non_temporal`.
HWY_INLINE void store_codes(const VU* codes, bool pack, bool non_temporal,
                            std::uint8_t* to) {
#if HWY_TARGET == HWY_SCALAR
  (void)non_temporal;
  for (std::size_t i = 0; i < kWidth; ++i) {
    const std::uint32_t code = hn::GetLane(codes[i]);
    if (pack && i % 2 != 0) {
      to[i / 2] = static_cast<std::uint8_t>(to[i / 2] | code << 4);
    } else {
      to[pack ? i / 2 : i] = static_cast<std::uint8_t>(code);
    }
  }
#else
  const hn::Repartition<std::uint16_t, DF> d16;
  // The low halves of the lanes of two vectors.
  const auto low_halves = [](auto d, auto second, auto first) HWY_ATTR {
    const auto b = hn::BitCast(d, second), a = hn::BitCast(d, first);
    return __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? hn::ConcatEven(d, b, a)
                                                     : hn::ConcatOdd(d, b, a);
  };
  const auto low = low_halves(d16, codes[1], codes[0]);
  const auto high = low_halves(d16, codes[3], codes[2]);
  const auto store = [&](auto d, auto bytes) HWY_ATTR {
    if (kHasNonTemporalStores && non_temporal) {
      hn::Stream(bytes, d, to);
    } else {
      hn::StoreU(bytes, d, to);
    }
  };
  if (pack) {
    const hn::Rebind<std::uint8_t, decltype(d16)> d8;
    const auto pairs = hn::Or(hn::ConcatEven(d16, high, low),
                              hn::ShiftLeft<4>(hn::ConcatOdd(d16, high, low)));
    store(d8, hn::TruncateTo(d8, pairs));
  } else {
    const hn::Repartition<std::uint8_t, DF> d8;
    store(d8, low_halves(d8, high, low));
  }
#endif
}

// Stores kWidth values as bfloat16, which must have them, or as float32.
HWY_INLINE void store_values(const VF* values, bool wide, std::uint8_t* to) {
  const DF df;
  const DU du;
  const hn::Rebind<std::uint16_t, DF> d16;
  for (std::size_t v = 0; v < kVectors; ++v) {
    const std::size_t at = v * kLanes;
    if (wide) {
      hn::StoreU(values[v], df, reinterpret_cast<float*>(to) + at);
    } else {
      hn::StoreU(
          hn::TruncateTo(d16, hn::ShiftRight<16>(hn::BitCast(du, values[v]))),
          d16, reinterpret_cast<std::uint16_t*>(to) + at);
    }
  }
}

// The elements of a turn, a multiple of kWidth of any target.
inline constexpr std::size_t kTurn = 64;
static_assert(kTurn % kWidth == 0);

// pack_turn() packs kTurn codes of 4 bits, the first of two into the low half.
HWY_INLINE void pack_turn(const std::uint8_t* from, std::uint8_t* to) {
#if HWY_TARGET == HWY_SCALAR || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
  for (std::size_t i = 0; i < kTurn / 2; ++i) {
    to[i] = static_cast<std::uint8_t>(from[2 * i] | from[2 * i + 1] << 4);
  }
#else
  const hn::CappedTag<std::uint16_t, kTurn / 2> d;
  const hn::Rebind<std::uint8_t, decltype(d)> d8;
  for (std::size_t i = 0; i < kTurn / 2; i += hn::Lanes(d)) {
    std::uint16_t pairs[hn::MaxLanes(d)];
    std::memcpy(pairs, from + 2 * i, sizeof pairs);
    const auto two = hn::LoadU(d, pairs);
    const auto packed = hn::And(hn::Or(two, hn::ShiftRight<4>(two)),
                                hn::Set(d, std::uint16_t{0xff}));
    hn::StoreU(hn::TruncateTo(d8, packed), d8, to + i);
  }
#endif
}

// unpack_turn() is the inverse.
HWY_INLINE void unpack_turn(const std::uint8_t* from, std::uint8_t* to) {
#if HWY_TARGET == HWY_SCALAR || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
  for (std::size_t i = 0; i < kTurn / 2; ++i) {
    to[2 * i] = from[i] & 15;
    to[2 * i + 1] = from[i] >> 4;
  }
#else
  const hn::CappedTag<std::uint16_t, kTurn / 2> d;
  const hn::Rebind<std::uint8_t, decltype(d)> d8;
  for (std::size_t i = 0; i < kTurn / 2; i += hn::Lanes(d)) {
    const auto two = hn::PromoteTo(d, hn::LoadU(d8, from + i));
    const auto codes = hn::And(hn::Or(two, hn::ShiftLeft<4>(two)),
                               hn::Set(d, std::uint16_t{0x0f0f}));
    std::uint16_t pairs[hn::MaxLanes(d)];
    hn::StoreU(codes, d, pairs);
    std::memcpy(to + 2 * i, pairs, sizeof pairs);
  }
#endif
}

// Decoder computes the values of codes.
class Decoder {
 public:
  // `values` has the value of each code.
  HWY_INLINE Decoder(const DequantizeArgs& args, const float* values)
      : args_(args), values_(values) {}

  // scaled() returns scaled_value() of kLanes codes, one a byte.
  HWY_INLINE VF scaled(const std::uint8_t* at, VF scale) const {
    const DF df;
    const DU du;
    const hn::Rebind<std::uint8_t, DF> d8;
    const VU mantissa_and_exponent = hn::Set(du, (1u << args_.sign) - 1);
    const VU code = hn::PromoteTo(du, hn::LoadU(d8, at));
    VU magnitude = hn::And(code, mantissa_and_exponent);
    if (args_.complement != 0) {
      magnitude = hn::IfThenElse(hn::Eq(magnitude, code), code,
                                 hn::Sub(hn::Set(du, kBeyond), code));
    }
    auto special = hn::Gt(magnitude, hn::Set(du, args_.largest));
    if (args_.also != kBeyond) {
      special = hn::Or(special, hn::Eq(code, hn::Set(du, args_.also)));
    }
    if (HWY_UNLIKELY(!hn::AllFalse(du, special))) return looked_up(at, scale);
    const VF found =
        code_value(df, magnitude, args_.mantissa_bits, args_.least_exponent);
    const VU sign = hn::ShiftLeftSame(hn::AndNot(mantissa_and_exponent, code),
                                      static_cast<int>(31 - args_.sign));
    return hn::Mul(hn::BitCast(df, hn::Or(hn::BitCast(du, found), sign)),
                   scale);
  }

 private:
  HWY_NOINLINE VF looked_up(const std::uint8_t* at, VF scale) const {
    float found[kLanes], scales[kLanes];
    hn::StoreU(scale, DF(), scales);
    for (std::size_t j = 0; j < kLanes; ++j) {
      found[j] = scaled_value(values_[at[j]], scales[j]);
    }
    return hn::LoadU(DF(), found);
  }
  const DequantizeArgs& args_;
  const float* values_;
};

}  // namespace quantizing

}  // namespace swamp::slave::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // SWAMP_SLAVE_QUANTIZE_INL_H_
