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

// Returns the bits of |v| rounded to HiFloat8, ties away, at the width that the
// exponent of v has. From 2^-23 on a number below 2^-22 becomes that.
HWY_INLINE VU tapered_bits(VU bits) {
  const DU du;
  const hn::RebindToSigned<DF> di;
  const auto exponent = hn::BitCast(di, hn::ShiftRight<23>(bits));
  const auto distance = hn::Abs(hn::Sub(exponent, hn::Set(di, 127)));
  // By how much the mantissa is narrower than 3 bits: 0 up to a distance of 3,
  // 1 up to 7, 2 up to 15, and 3.
  const VU of_distance =
      hn::ShiftRight<23>(hn::BitCast(du, hn::ConvertTo(DF(), distance)));
  const VU narrower =
      hn::Sub(hn::Clamp(of_distance, hn::Set(du, 128u), hn::Set(du, 131u)),
              hn::Set(du, 128u));
  const VU sum = hn::Add(bits, hn::Shl(hn::Set(du, 1u << 19), narrower));
  const VU rounded = hn::And(sum, hn::Shl(hn::Set(du, ~0u << 20), narrower));
  const VU least = hn::Set(du, 105u << 23);
  return hn::IfThenZeroElse(hn::Lt(bits, hn::Set(du, 104u << 23)),
                            hn::Max(rounded, least));
}

// Returns the codes of HiFloat8's numbers, given as bfloat16, which has all of
// them. A code is a prefix, which tells the range of the exponent's distance
// from 0, the sign of the exponent, the rest of the distance, and the mantissa.
template <class D16>
HWY_INLINE hn::Vec<D16> tapered_codes(D16 d, hn::Vec<D16> numbers) {
  const hn::RebindToSigned<D16> di;
  const auto set = [&](int x) HWY_ATTR {
    return hn::Set(di, static_cast<std::int16_t>(x));
  };
  const auto x = hn::BitCast(di, numbers);
  const auto magnitude = hn::And(x, set(0x7fff));
  // 8 * exponent + mantissa of 3 bits, and the same with the distance.
  const auto place = hn::Sub(hn::ShiftRight<4>(magnitude), set(127 * 8));
  const auto distance =
      hn::Or(hn::Abs(hn::And(place, set(-8))), hn::And(place, set(7)));
  const auto step = hn::IfThenElse(hn::Gt(distance, set(15)), set(16), set(8));
  auto code = hn::Add(distance, step);
  code = hn::IfThenElse(hn::Gt(distance, set(31)),
                        hn::Add(hn::ShiftRight<1>(distance), set(48)), code);
  code = hn::IfThenElse(hn::Gt(distance, set(63)),
                        hn::Add(hn::ShiftRight<2>(distance), set(80)), code);
  code = hn::Add(code, hn::IfThenElseZero(hn::Lt(place, set(0)), step));
  // Subnormal numbers, and 0.
  code = hn::IfThenElse(
      hn::Gt(distance, set(127)),
      hn::Max(hn::Sub(set(23), hn::ShiftRight<3>(distance)), set(0)), code);
  code = hn::IfThenElse(hn::Gt(magnitude, set(0x7f7f)), set(0x6f), code);
  code = hn::Or(code, hn::And(hn::ShiftRight<8>(x), set(0x80)));
  code = hn::IfThenElse(hn::Gt(magnitude, set(0x7f80)), set(0x80), code);
  return hn::BitCast(d, code);
}

// Encoder converts vectors. v is the number that is rounded, x has its sign.
// The "codes" of a tapered format are bits of its numbers until store_codes().
// It has a copy of the arguments, because the compiler cannot know that bytes
// are not stored over the kernel's. For the same reason an Encoder should be a
// local variable whose address is not passed on. kPowerOfTwo is any rounding
// of Specials::exponent.
inline constexpr std::uint32_t kPowerOfTwo = ~0u;
template <std::uint32_t kRounding, bool kTapered>
struct Encoder {
  static constexpr bool kIsStochastic = kRounding == kStochastic,
                        kIsTapered = kTapered;
  QuantizeArgs args;

  // Returns the code of |v|, given as float32 bits. If |v| overflows or is nan,
  // the code is above largest().
  HWY_INLINE VU magnitude_code(VU bits, VU random) const {
    const DU du;
    if constexpr (kTapered) {
      (void)random;
      return tapered_bits(bits);
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
    return Magnitude(args, moved(bits, random)).code(args, hn::Zero(du));
  }

  // Returns the bits of |v| + random / 256 of the distance of the format's
  // numbers there, which stochastic rounding cuts off.
  HWY_INLINE VU moved(VU bits, VU random) const {
    const DF df;
    const DU du;
    const VU exponent = hn::Max(hn::And(bits, hn::Set(du, kInfinity)),
                                hn::Set(du, args.least_exponent << 23));
    const VU part =
        hn::Sub(exponent, hn::Set(du, (args.mantissa_bits + 8) << 23));
    const VF number =
        hn::ConvertTo(df, hn::BitCast(hn::RebindToSigned<DF>(), random));
    return hn::BitCast(du, exact_fma(df, number, hn::BitCast(df, part),
                                     hn::BitCast(df, bits)));
  }

  // Returns the bits of |v| cut off to the format.
  HWY_INLINE VU cut_off(VU bits) const {
    const DF df;
    const DU du;
    const VU kept =
        hn::And(bits, hn::Set(du, ~0u << (23 - args.mantissa_bits)));
    // Below the least normal number: multiples of the smallest one.
    const std::uint32_t place = args.least_exponent - args.mantissa_bits;
    const VF count =
        hn::Trunc(hn::Mul(hn::BitCast(df, bits),
                          hn::BitCast(df, hn::Set(du, (254 - place) << 23))));
    const VF subnormal =
        hn::Mul(count, hn::BitCast(df, hn::Set(du, place << 23)));
    return hn::IfThenElse(hn::Lt(bits, hn::Set(du, args.least_exponent << 23)),
                          hn::BitCast(du, subnormal), kept);
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
    if constexpr (kRounding == kStochastic) return cut_off(moved(bits, random));
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

  HWY_INLINE std::uint32_t largest() const {
    return kTapered ? args.largest_bits : args.largest;
  }

  // signed_code() adds the sign of x to a code.
  HWY_INLINE VU signed_code(VU code, VU x_bits) const {
    const DU du;
    if constexpr (kTapered) return hn::BitCast(du, signed_value(code, x_bits));
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
    if constexpr (kTapered) {
      return hn::BitCast(du, special_values(encoder, x_bits, bits, code));
    }
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

#if HWY_TARGET != HWY_SCALAR
// Returns the low or the upper halves of the lanes of two vectors.
template <bool kUpper, class D, class V>
HWY_INLINE hn::Vec<D> halves(D d, V second, V first) {
  const auto b = hn::BitCast(d, second), a = hn::BitCast(d, first);
  constexpr bool kOdd = kUpper == (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);
  return kOdd ? hn::ConcatOdd(d, b, a) : hn::ConcatEven(d, b, a);
}
#endif

// store_codes() stores kWidth codes; two packed codes are a byte, the first
// in the low half. `to` is aligned to the stored bytes if `non_temporal`.
template <bool kTapered>
HWY_INLINE void store_codes(const VU* codes, bool pack, bool non_temporal,
                            std::uint8_t* to) {
#if HWY_TARGET == HWY_SCALAR
  (void)non_temporal;
  for (std::size_t i = 0; i < kWidth; ++i) {
    std::uint32_t code = hn::GetLane(codes[i]);
    if constexpr (kTapered) {
      const hn::CappedTag<std::uint16_t, 1> d16;
      code = hn::GetLane(tapered_codes(
          d16, hn::Set(d16, static_cast<std::uint16_t>(code >> 16))));
    }
    if (pack && i % 2 != 0) {
      to[i / 2] = static_cast<std::uint8_t>(to[i / 2] | code << 4);
    } else {
      to[pack ? i / 2 : i] = static_cast<std::uint8_t>(code);
    }
  }
#else
  const hn::Repartition<std::uint16_t, DF> d16;
  auto low = halves<kTapered>(d16, codes[1], codes[0]);
  auto high = halves<kTapered>(d16, codes[3], codes[2]);
  if constexpr (kTapered) {
    low = tapered_codes(d16, low), high = tapered_codes(d16, high);
  }
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
    store(d8, halves<false>(d8, high, low));
  }
#endif
}

// Stores kWidth values as bfloat16, which must have them, or as float32.
HWY_INLINE void store_values(const VF* values, bool wide, std::uint8_t* to) {
  if (wide) {
    for (std::size_t v = 0; v < kVectors; ++v) {
      hn::StoreU(values[v], DF(), reinterpret_cast<float*>(to) + v * kLanes);
    }
    return;
  }
  auto* const narrow = reinterpret_cast<std::uint16_t*>(to);
#if HWY_TARGET == HWY_SCALAR
  for (std::size_t v = 0; v < kVectors; ++v) {
    narrow[v] = static_cast<std::uint16_t>(
        hn::GetLane(hn::BitCast(DU(), values[v])) >> 16);
  }
#else
  const hn::Repartition<std::uint16_t, DF> d16;
  for (std::size_t v = 0; v < kVectors; v += 2) {
    hn::StoreU(halves<true>(d16, values[v + 1], values[v]), d16,
               narrow + v * kLanes);
  }
#endif
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
