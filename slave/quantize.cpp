// The kernels that convert to and from formats of at most 8 bits, compiled once
// per target by Highway. A format is a few numbers of the arguments, so that
// one code, on the bits of float32, serves all of them.

#include "slave/kernel_list.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "slave/quantize.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include <cstring>

#include "slave/batch-inl.h"
#include "slave/exact_fma-inl.h"
#include "slave/formats-inl.h"
#include "slave/random-inl.h"

HWY_BEFORE_NAMESPACE();
namespace swamp::slave::HWY_NAMESPACE {
namespace {

using DF = hn::ScalableTag<float>;
using DU = hn::RebindToUnsigned<DF>;
using VF = hn::Vec<DF>;
using VU = hn::Vec<DU>;
constexpr std::size_t kLanes = hn::MaxLanes(DF());

constexpr std::uint32_t kMagnitude = 0x7fffffff, kInfinity = 0x7f800000;

// Magnitude is the parts of |v| that rounding needs: |v| = mantissa * 2^k, and
// `cut` bits of the mantissa are below the format's.
struct Magnitude {
  VU exponent;  // at least that of the format's smallest normal number
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
  // code() is that of the mantissa + add, cut off.
  HWY_INLINE VU code(const QuantizeArgs& args, VU add) const {
    const DU du;
    const VU kept = hn::Shr(hn::Add(mantissa, add), cut);
    const VU above = hn::Sub(exponent, hn::Set(du, args.least_exponent));
    return hn::Add(
        kept, hn::ShiftLeftSame(above, static_cast<int>(args.mantissa_bits)));
  }
};

// Quantizer converts vectors and counts what it sees.
template <std::uint32_t kRounding, bool kTapered>
struct Quantizer {
  const QuantizeArgs& args;
  VU amax, saturated, flushed, nan_count;

  HWY_INLINE explicit Quantizer(const QuantizeArgs& arguments)
      : args(arguments) {
    amax = saturated = flushed = nan_count = hn::Zero(DU());
  }

  // magnitude_code() is that of |v|, of which `bits` are the bits; larger than
  // `largest` if |v| is, or is nan.
  HWY_INLINE VU magnitude_code(VU bits, VU random) const {
    const DF df;
    const DU du;
    if constexpr (kTapered) {
      (void)random;
      std::uint32_t lanes[kLanes];
      hn::StoreU(bits, du, lanes);
      for (std::uint32_t& lane : lanes) lane = tapered_code(lane);
      return hn::LoadU(du, lanes);
    }
    if constexpr (kRounding == kNearestEven) {
      // The sum of |v| and a power of two, of which the last place is that of
      // the format, is rounded there. A format has at most 5 exponent bits.
      const VU exponent =
          hn::Clamp(hn::And(bits, hn::Set(du, kInfinity)),
                    hn::Set(du, args.least_exponent << 23),
                    hn::Set(du, (args.least_exponent + 32) << 23));
      const std::uint32_t cut = 23 - args.mantissa_bits;
      const VU power = hn::Add(exponent, hn::Set(du, cut << 23));
      const VU sum = hn::BitCast(
          du, hn::Add(hn::BitCast(df, bits), hn::BitCast(df, power)));
      const VU above = hn::ShiftRightSame(exponent, static_cast<int>(cut));
      const VU least = hn::Set(du, args.least_exponent << args.mantissa_bits);
      return hn::Add(hn::Sub(sum, power), hn::Sub(above, least));
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

  HWY_INLINE VU codes(VF x, VU random) {
    const DF df;
    const DU du;
    const VU magnitude_mask = hn::Set(du, kMagnitude);
    const VU x_bits = hn::BitCast(du, x);
    const VU x_magnitude = hn::And(x_bits, magnitude_mask);
    const VU bits = hn::And(
        hn::BitCast(du, hn::Mul(x, hn::Set(df, args.scale))), magnitude_mask);
    VU code = magnitude_code(bits, random);
    const auto zero = hn::Eq(code, hn::Zero(du));
    flushed = hn::Add(
        flushed,
        hn::IfThenElseZero(hn::And(zero, hn::Ne(x_magnitude, hn::Zero(du))),
                           hn::Set(du, 1u)));
    VU sign = hn::ShiftRightSame(hn::AndNot(magnitude_mask, x_bits),
                                 static_cast<int>(31 - args.sign));
    if (args.negative_zero == 0) sign = hn::IfThenZeroElse(zero, sign);
    // The codes of a tapered format are not in the order of their values.
    const std::uint32_t largest = kTapered ? kBeyond - 1 : args.largest;
    const auto beyond = hn::Gt(code, hn::Set(du, largest));
    if (HWY_LIKELY(hn::AllFalse(du, beyond))) {
      amax = hn::Max(amax, x_magnitude);
      return hn::Or(code, sign);
    }
    return special_codes(x_bits, bits, code, sign, beyond);
  }

  // special_codes() are those of a vector with numbers beyond the largest, inf
  // or nan.
  HWY_NOINLINE VU special_codes(VU x_bits, VU bits, VU code, VU sign,
                                hn::Mask<DU> beyond) {
    const DU du;
    const VU one = hn::Set(du, 1u);
    const VU infinity = hn::Set(du, kInfinity);
    const VU x_magnitude = hn::And(x_bits, hn::Set(du, kMagnitude));
    const auto nan = hn::Gt(x_magnitude, infinity);
    amax = hn::Max(amax, hn::IfThenZeroElse(nan, x_magnitude));
    nan_count = hn::Add(nan_count, hn::IfThenElseZero(nan, one));
    saturated =
        hn::Add(saturated, hn::IfThenElseZero(hn::AndNot(nan, beyond), one));
    code = hn::IfThenElse(beyond, hn::Set(du, args.overflow), code);
    code = hn::IfThenElse(hn::Eq(bits, infinity), hn::Set(du, args.infinity),
                          code);
    const auto is_negative = hn::Ne(hn::ShiftRight<31>(x_bits), hn::Zero(du));
    const VU nan_code = hn::IfThenElse(
        is_negative, hn::Set(du, args.negative_nan), hn::Set(du, args.nan));
    return hn::IfThenElse(nan, nan_code, hn::Or(code, sign));
  }

  // finish() adds the counts to `partial`, and begins again.
  HWY_INLINE void finish(QuantizePartial& partial) {
    const DU du;
    QuantizePartial found = {};
    const auto for_lanes = [&](VU counts, auto visit) HWY_ATTR {
      std::uint32_t lanes[kLanes];
      hn::StoreU(counts, du, lanes);
      for (const std::uint32_t lane : lanes) visit(lane);
    };
    for_lanes(saturated, [&](std::uint32_t n) { found.saturated += n; });
    for_lanes(flushed, [&](std::uint32_t n) { found.flushed += n; });
    for_lanes(nan_count, [&](std::uint32_t n) { found.nan_count += n; });
    for_lanes(amax,
              [&](std::uint32_t n) { found.amax = std::max(found.amax, n); });
    partial.join(found);
    amax = saturated = flushed = nan_count = hn::Zero(du);
  }
};

// A turn is so many elements, a multiple of two vectors of any target.
constexpr std::size_t kTurn = 64;

template <class Format, std::uint32_t kRounding, bool kTapered>
HWY_INLINE void quantize_elements(const QuantizeArgs& args, const Tile& tile) {
  using Element = typename Format::Element;
  const DF df;
  const DU du;
  const hn::Rebind<std::uint8_t, DF> d8;
  const std::size_t count = tile.count * args.elements;
  const auto* const x = operand<const Element>(tile, 0);
  auto* const out = operand<std::uint8_t>(tile, 1);
  const auto* const random = operand<const std::uint8_t>(tile, 2);
  const bool packed = args.elements == 2;
  const std::size_t first = tile.first * args.elements;
  Quantizer<kRounding, kTapered> quantizer(args);
  const RandomWords words(args.key);
  std::size_t counted = 0;
  auto& partial = *partial_result<QuantizePartial>(tile);
  // turn() converts kTurn elements.
  const auto turn = [&](const Element* from, const std::uint8_t* octets,
                        std::size_t index, std::uint8_t* to) HWY_ATTR {
    for (std::size_t i = 0; i < kTurn; i += kLanes) {
      VU bits = hn::Zero(du);
      if constexpr (kRounding == kStochastic) {
        bits = octets != nullptr ? hn::PromoteTo(du, hn::LoadU(d8, octets + i))
                                 : hn::ShiftRight<24>(words.first(
                                       static_cast<std::uint32_t>(index + i)));
      }
      const VU codes = quantizer.codes(Format::load(df, from + i), bits);
      hn::StoreU(hn::TruncateTo(d8, codes), d8, to + i);
    }
  };
  const auto pack = [](const std::uint8_t* from, std::size_t units,
                       std::uint8_t* to) {
    for (std::size_t i = 0; i < units; ++i) {
      to[i] = static_cast<std::uint8_t>(from[2 * i] | from[2 * i + 1] << 4);
    }
  };
  std::uint8_t codes[kTurn];
  std::size_t i = 0;
  for (; i + kTurn <= count; i += kTurn) {
    turn(x + i, random == nullptr ? nullptr : random + i, first + i,
         packed ? codes : out + i);
    if (packed) pack(codes, kTurn / 2, out + i / 2);
    counted += kTurn;
    if (counted >= std::size_t{1} << 31) {  // before a count overflows
      quantizer.finish(partial);
      counted = 0;
    }
  }
  if (i < count) {
    const std::size_t rest = count - i;
    Element last[kTurn] = {};
    std::uint8_t octets[kTurn] = {};
    std::memcpy(last, x + i, rest * sizeof last[0]);
    if (random != nullptr) std::memcpy(octets, random + i, rest);
    turn(last, random == nullptr ? nullptr : octets, first + i, codes);
    if (packed) {
      pack(codes, rest / 2, out + i / 2);
    } else {
      std::memcpy(out + i, codes, rest);
    }
  }
  quantizer.finish(partial);
}

template <class Format>
HWY_INLINE void quantize(const void* arguments, const Tile& tile, Result&) {
  const auto& args = *static_cast<const QuantizeArgs*>(arguments);
  if (args.tapered != 0) {
    quantize_elements<Format, kNearestAway, true>(args, tile);
  } else if (args.rounding == kNearestEven) {
    quantize_elements<Format, kNearestEven, false>(args, tile);
  } else if (args.rounding == kNearestAway) {
    quantize_elements<Format, kNearestAway, false>(args, tile);
  } else {
    quantize_elements<Format, kStochastic, false>(args, tile);
  }
}

template <class Format>
HWY_INLINE void dequantize(const void* arguments, const Tile& tile, Result&) {
  using Element = typename Format::Element;
  const DF df;
  const DU du;
  const hn::Rebind<Element, DF> d;
  const hn::Rebind<std::uint8_t, DF> d8;
  const auto& args = *static_cast<const DequantizeArgs*>(arguments);
  const std::size_t count = tile.count * args.elements;
  const auto* const codes = operand<const std::uint8_t>(tile, 1);
  const auto* const values = operand<const float>(tile, 2);
  auto* const out = operand<Element>(tile, 0);
  const VF scale = hn::Set(df, args.scale);
  const VU mantissa_and_exponent = hn::Set(du, (1u << args.sign) - 1);
  const auto up = static_cast<int>(23 - args.mantissa_bits);
  const VU normal = hn::Set(du, 1u << args.mantissa_bits);
  // The value of a code with exponent 1 and without mantissa.
  const VU least = hn::Set(du, args.least_exponent << 23);
  const VU before = hn::Set(du, (args.least_exponent - 1) << 23);
  // value() is that of kLanes codes.
  const auto value = [&](const std::uint8_t* at) HWY_ATTR {
    const VU code = hn::PromoteTo(du, hn::LoadU(d8, at));
    const VU magnitude = hn::And(code, mantissa_and_exponent);
    auto special = hn::Gt(magnitude, hn::Set(du, args.largest));
    if (args.nan_zero != 0) {
      special = hn::Or(special, hn::Eq(code, hn::Set(du, 1u << args.sign)));
    }
    if (HWY_UNLIKELY(!hn::AllFalse(du, special))) {
      float found[kLanes];
      for (std::size_t j = 0; j < kLanes; ++j) found[j] = values[at[j]];
      return hn::LoadU(df, found);
    }
    const VU shifted = hn::ShiftLeftSame(magnitude, up);
    const VF subnormal = hn::Sub(hn::BitCast(df, hn::Add(shifted, least)),
                                 hn::BitCast(df, least));
    const VF found =
        hn::IfThenElse(hn::RebindMask(df, hn::Lt(magnitude, normal)), subnormal,
                       hn::BitCast(df, hn::Add(shifted, before)));
    const VU sign = hn::ShiftLeftSame(hn::AndNot(mantissa_and_exponent, code),
                                      static_cast<int>(31 - args.sign));
    return hn::BitCast(df, hn::Or(hn::BitCast(du, found), sign));
  };
  std::uint8_t some[kTurn];
  for (std::size_t i = 0; i < count; i += kTurn) {
    const std::size_t rest = std::min(kTurn, count - i);
    const std::uint8_t* at = codes + i;
    if (args.elements == 2) {
      for (std::size_t j = 0; j < rest / 2; ++j) {
        some[2 * j] = codes[i / 2 + j] & 15;
        some[2 * j + 1] = codes[i / 2 + j] >> 4;
      }
      at = some;
    } else if (rest < kTurn) {
      std::memcpy(some, at, rest);
      at = some;
    }
    if (rest < kTurn) std::memset(some + rest, 0, kTurn - rest);
    for (std::size_t j = 0; j < rest; j += kLanes) {
      const auto result = Format::narrow(df, hn::Mul(value(at + j), scale));
      if (rest - j >= kLanes) {
        hn::StoreU(result, d, out + i + j);
      } else {
        Element last[kLanes];
        hn::StoreU(result, d, last);
        std::memcpy(out + i + j, last, (rest - j) * sizeof(Element));
      }
    }
  }
}

}  // namespace

SWAMP_KERNELS(quantize, quantize<A>)
SWAMP_KERNELS(dequantize, dequantize<A>)

}  // namespace swamp::slave::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
