// The kernels that convert to and from formats of at most 8 bits, compiled once
// per target by Highway. A format is a few numbers of the arguments, so that
// one code, on the bits of float32, serves all of them.

#include "slave/kernel_table.h"
#include "slave/quantize_args.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "slave/quantize.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include <cstring>

#include "slave/batch-inl.h"
#include "slave/formats-inl.h"
#include "slave/quantize-inl.h"
#include "slave/random-inl.h"

HWY_BEFORE_NAMESPACE();
namespace swamp::slave::HWY_NAMESPACE {
namespace {

using namespace quantizing;

// Quantizer converts vectors and counts what it sees.
template <std::uint32_t kRounding, bool kTapered>
struct Quantizer {
  // Counts are what was seen, in each lane.
  struct Counts {
    VU amax, saturated, flushed, nan_count;

    HWY_INLINE Counts() {
      amax = saturated = flushed = nan_count = hn::Zero(DU());
    }
  };
  using Codes = Encoder<kRounding, kTapered>;
  Codes encoder;
  Counts counts;

  HWY_INLINE explicit Quantizer(const QuantizeArgs& args) : encoder{args} {}

  // Returns the bits of |x * scale|.
  HWY_INLINE VU scaled(VF x) const {
    const DF df;
    const DU du;
    return hn::And(hn::BitCast(du, hn::Mul(x, hn::Set(df, encoder.args.scale))),
                   hn::Set(du, kMagnitude));
  }
  // Counts elements, and returns whether some are beyond the largest.
  HWY_INLINE bool count(VU x_bits, hn::Mask<DU> zero, hn::Mask<DU> beyond) {
    const DU du;
    const VU x_magnitude = hn::And(x_bits, hn::Set(du, kMagnitude));
    if constexpr (kRounding != kPowerOfTwo) {
      counts.flushed = hn::Add(
          counts.flushed,
          hn::IfThenElseZero(hn::And(zero, hn::Ne(x_magnitude, hn::Zero(du))),
                             hn::Set(du, 1u)));
    }
    if (HWY_LIKELY(hn::AllFalse(du, beyond))) {
      counts.amax = hn::Max(counts.amax, x_magnitude);
      return false;
    }
    counts = with_special(counts, x_magnitude, beyond);
    return true;
  }

  HWY_INLINE VU codes(VF x, VU random) {
    const DU du;
    const VU x_bits = hn::BitCast(du, x), bits = scaled(x);
    const VU code = encoder.magnitude_code(bits, random);
    const auto beyond = hn::Gt(code, hn::Set(du, encoder.largest()));
    if (HWY_LIKELY(!count(x_bits, hn::Eq(code, hn::Zero(du)), beyond))) {
      return encoder.signed_code(code, x_bits);
    }
    return Codes::special_codes(encoder, x_bits, bits, code, beyond);
  }

  // Returns the values of the codes.
  HWY_INLINE VF values(VF x, VU random) {
    const DU du;
    const VU x_bits = hn::BitCast(du, x), bits = scaled(x);
    const VU value = encoder.magnitude_bits(bits, random);
    const auto beyond = hn::Gt(value, hn::Set(du, encoder.args.largest_bits));
    if (HWY_LIKELY(!count(x_bits, hn::Eq(value, hn::Zero(du)), beyond))) {
      return encoder.signed_value(value, x_bits);
    }
    return Codes::special_values(encoder, x_bits, bits, value);
  }

  // with_special() also counts numbers beyond the largest, inf and nan.
  static HWY_NOINLINE Counts with_special(Counts counts, VU x_magnitude,
                                          hn::Mask<DU> beyond) {
    const DU du;
    const VU one = hn::Set(du, 1u);
    const auto nan = hn::Gt(x_magnitude, hn::Set(du, kInfinity));
    counts.amax = hn::Max(counts.amax, hn::IfThenZeroElse(nan, x_magnitude));
    counts.nan_count = hn::Add(counts.nan_count, hn::IfThenElseZero(nan, one));
    counts.saturated = hn::Add(
        counts.saturated, hn::IfThenElseZero(hn::AndNot(nan, beyond), one));
    return counts;
  }

  // finish() adds the counts to `partial`, and begins again.
  HWY_INLINE void finish(QuantizePartial& partial) {
    const DU du;
    QuantizePartial found = {};
    const auto for_lanes = [&](VU numbers, auto visit) HWY_ATTR {
      std::uint32_t lanes[kLanes];
      hn::StoreU(numbers, du, lanes);
      for (const std::uint32_t lane : lanes) visit(lane);
    };
    for_lanes(counts.saturated, [&](std::uint32_t n) { found.saturated += n; });
    for_lanes(counts.flushed, [&](std::uint32_t n) { found.flushed += n; });
    for_lanes(counts.nan_count, [&](std::uint32_t n) { found.nan_count += n; });
    for_lanes(counts.amax,
              [&](std::uint32_t n) { found.amax = std::max(found.amax, n); });
    partial.join(found);
    counts = Counts();
  }
};

template <class Format, std::uint32_t kRounding, bool kTapered>
HWY_INLINE void quantize_elements(const QuantizeArgs& args, const Tile& tile) {
  using At = QuantizeOperand;
  using Element = typename Format::Element;
  const DF df;
  const DU du;
  const hn::Rebind<std::uint8_t, DF> d8;
  const std::size_t count = tile.count * args.elements;
  const auto* const x = operand<const Element>(tile, At::x);
  auto* const out = operand<std::uint8_t>(tile, At::codes);
  const auto* const random = operand<const std::uint8_t>(tile, At::random);
  const bool packed = args.elements == 2;
  const std::size_t first = tile.first * args.elements;
  Quantizer<kRounding, kTapered> quantizer(args);
  const RandomWords words(args.key);
  std::size_t counted = 0;
  auto& partial = *partial_result<QuantizePartial>(tile);
  const CodeForm form = args.form;
  // turn() converts kTurn elements.
  const auto turn = [&](const Element* from, const std::uint8_t* bytes,
                        std::size_t index, bool stream,
                        std::uint8_t* to) HWY_ATTR {
    for (std::size_t i = 0; i < kTurn; i += kWidth) {
      const auto random_of = [&](std::size_t at) HWY_ATTR {
        if constexpr (kRounding != kStochastic) return hn::Zero(du);
        return bytes != nullptr ? hn::PromoteTo(du, hn::LoadU(d8, bytes + at))
                                : hn::ShiftRight<24>(words.first(
                                      static_cast<std::uint32_t>(index + at)));
      };
      const auto each = [&](const auto& convert) HWY_ATTR {
        for (std::size_t v = 0; v < kVectors; ++v) {
          const std::size_t at = i + v * kLanes;
          convert(v, Format::load(df, from + at), random_of(at));
        }
      };
      std::uint8_t* const out_at = to + form_bytes(args, i);
      if (form == CodeForm::code) {
        VU codes[kVectors];
        each([&](std::size_t v, VF one, VU bits)
                 HWY_ATTR { codes[v] = quantizer.codes(one, bits); });
        store_codes<kTapered>(codes, packed, stream, out_at);
      } else {
        VF values[kVectors];
        each([&](std::size_t v, VF one, VU bits)
                 HWY_ATTR { values[v] = quantizer.values(one, bits); });
        store_values(values, form == CodeForm::float32, out_at);
      }
    }
  };
  const bool stream =
      tile.non_temporal && form == CodeForm::code && streams(out);
  std::size_t i = 0;
  for (; i + kTurn <= count; i += kTurn) {
    turn(x + i, random == nullptr ? nullptr : random + i, first + i, stream,
         out + form_bytes(args, i));
    counted += kTurn;
    if (counted >= std::size_t{1} << 31) {  // before a count overflows
      quantizer.finish(partial);
      counted = 0;
    }
  }
  if (i < count) {
    const std::size_t rest = count - i;
    Element last[kTurn] = {};
    std::uint8_t bytes[kTurn] = {};
    std::memcpy(last, x + i, rest * sizeof last[0]);
    if (random != nullptr) std::memcpy(bytes, random + i, rest);
    HWY_ALIGN std::uint8_t codes[kTurn * sizeof(float)];
    turn(last, random == nullptr ? nullptr : bytes, first + i, false, codes);
    std::memcpy(out + form_bytes(args, i), codes, form_bytes(args, rest));
  }
  if (kHasNonTemporalStores && stream) hwy::FlushStream();
  quantizer.finish(partial);
}

template <class Format>
HWY_INLINE void quantize(const void* arguments, const Tile& tile, Result&) {
  const auto& args = *static_cast<const QuantizeArgs*>(arguments);
  if (args.tapered != 0) {
    quantize_elements<Format, kNearestAway, true>(args, tile);
  } else if (args.mantissa_bits == 0) {
    quantize_elements<Format, kPowerOfTwo, false>(args, tile);
  } else if (args.rounding == kNearestEven) {
    quantize_elements<Format, kNearestEven, false>(args, tile);
  } else if (args.rounding == kNearestAway) {
    quantize_elements<Format, kNearestAway, false>(args, tile);
  } else {
    quantize_elements<Format, kStochastic, false>(args, tile);
  }
}

// dequantize_elements() calls factor(i) for the factor of the kLanes elements
// from i on.
template <class Format, class Factor>
HWY_INLINE void dequantize_elements(const DequantizeArgs& args,
                                    const std::uint8_t* codes,
                                    const float* values, std::size_t count,
                                    const Factor& factor,
                                    typename Format::Element* out) {
  using Element = typename Format::Element;
  const DF df;
  const hn::Rebind<Element, DF> d;
  const Decoder decoder(args, values);
  const bool packed = args.elements == 2;
  std::uint8_t some[kTurn];
  std::size_t i = 0;
  for (; i + kTurn <= count; i += kTurn) {
    const std::uint8_t* at = codes + i;
    if (packed) {
      unpack_turn(codes + i / 2, some);
      at = some;
    }
    for (std::size_t j = 0; j < kTurn; j += kLanes) {
      hn::StoreU(Format::narrow(df, decoder.scaled(at + j, factor(i + j))), d,
                 out + i + j);
    }
  }
  if (i == count) return;
  const std::size_t rest = count - i;
  std::uint8_t last[kTurn] = {};
  std::memcpy(packed ? some : last, codes + i / args.elements,
              rest / args.elements);
  if (packed) {
    std::memset(some + rest / 2, 0, (kTurn - rest) / 2);
    unpack_turn(some, last);
  }
  Element found[kTurn];
  for (std::size_t j = 0; j < rest; j += kLanes) {
    hn::StoreU(Format::narrow(df, decoder.scaled(last + j, factor(i + j))), d,
               found + j);
  }
  std::memcpy(out + i, found, rest * sizeof(Element));
}

template <class Format>
HWY_INLINE void dequantize(const void* arguments, const Tile& tile, Result&) {
  using At = DequantizeOperand;
  const auto& args = *static_cast<const DequantizeArgs*>(arguments);
  const VF scale = hn::Set(DF(), args.scale);
  dequantize_elements<Format>(
      args, operand<const std::uint8_t>(tile, At::codes),
      operand<const float>(tile, At::values), tile.count * args.elements,
      [&](std::size_t) HWY_ATTR { return scale; },
      operand<typename Format::Element>(tile, At::x));
}

template <class Format>
HWY_INLINE void dequantize_blocks(const void* arguments, const Tile& tile,
                                  Result&) {
  using At = DequantizeBlockOperand;
  const auto& args = *static_cast<const DequantizeBlockArgs*>(arguments);
  auto* out = operand<typename Format::Element>(tile, At::x);
  const auto* codes = operand<const std::uint8_t>(tile, At::codes);
  const auto* scales = operand<const std::uint8_t>(tile, At::scales);
  const auto* const values = operand<const float>(tile, At::values);
  const bool wide = args.scales == ScaleKind::float32;
  // Rows of whole blocks are one row, if scales change between vectors only.
  const bool whole = args.columns % args.block == 0 && args.block % kLanes == 0;
  const std::size_t rows = whole ? 1 : tile.count;
  const std::size_t columns = args.columns * (whole ? tile.count : 1);
  for (std::size_t r = 0; r < rows; ++r) {
    std::size_t left = 0, block = 0;  // elements of the current block
    VF scale = hn::Zero(DF());
    const auto factor = [&](std::size_t) HWY_ATTR {
      if (left == 0) {
        std::uint32_t bits = scales[block];
        if (wide) std::memcpy(&bits, scales + 4 * block, 4);
        scale = hn::Set(DF(), dequantize_factor(args, bits));
        left = args.block;
        ++block;
      }
      left -= std::min(left, kLanes);
      return scale;
    };
    dequantize_elements<Format>(args.code, codes, values, columns, factor, out);
    out += columns;
    codes += columns / args.code.elements;
    scales += block * (wide ? 4 : 1);
  }
}

}  // namespace

SWAMP_KERNELS(quantize, kUpTo32, quantize<A>)
SWAMP_KERNELS(dequantize, kUpTo32, dequantize<A>)
SWAMP_KERNELS(dequantize_blocks, kUpTo32, dequantize_blocks<A>)

}  // namespace swamp::slave::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
