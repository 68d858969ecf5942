// The codes or values of blocks along a row, which are taken in groups: first
// their largest magnitudes, then, as vectors, the scales, then the codes.
// Blocks without inf and nan, almost all, need no tests of their elements.
// Included once per target, like Highway's own -inl.h.
#if defined(SWAMP_SLAVE_BLOCK_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SWAMP_SLAVE_BLOCK_ROWS_INL_H_
#undef SWAMP_SLAVE_BLOCK_ROWS_INL_H_
#else
#define SWAMP_SLAVE_BLOCK_ROWS_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "slave/batch-inl.h"
#include "slave/block_scales-inl.h"
#include "slave/quantize-inl.h"
#include "slave/quantize_args.h"
#include "slave/random-inl.h"

HWY_BEFORE_NAMESPACE();
namespace swamp::slave::HWY_NAMESPACE {

namespace quantizing {

// The blocks of a row whose scales are chosen together.
inline constexpr std::size_t kGroup = 64;

// BlockFactors is of the blocks whose scales are chosen together: the largest
// magnitudes and then the stored scales, what elements are multiplied by, and
// the values of the stored scales.
struct BlockFactors {
  std::uint32_t bits[kGroup + kLanes];
  float factors[kGroup + kLanes], values[kGroup + kLanes];
};

template <class Format>
class BlockRows {
 public:
  using At = BlockOperand;
  using Element = typename Format::Element;

  HWY_INLINE explicit BlockRows(const BlockArgs& args)
      : args_(args),
        row_words_(args.code.key),
        column_words_(args.column_key),
        largest_bits_(float_to_bits(args.largest)),
        raised_bits_(
            sizeof(Element) == 4 && args.rule == BlockRule::microxcaling &&
                    args.code.tapered == 0 && args.code.rounding != kStochastic
                ? microxcaling_raised_bits(args.code)
                : ~0u),
        clamps_(args.code.overflow == args.code.largest && raised_bits_ == ~0u),
        packed_(args.code.elements == 2),
        is_given_(args.rule == BlockRule::given) {
    for (int i = 4; i < 8; ++i) {
      if (args.block == std::size_t{1} << i) shift_ = i;
    }
  }

 protected:
  // Seen is counts of values in each lane, and the bits of all values.
  struct Seen {
    VU saturated, flushed, wide;

    HWY_INLINE Seen() { saturated = flushed = wide = hn::Zero(DU()); }
    HWY_INLINE void join(const Seen& other) {
      saturated = hn::Add(saturated, other.saturated);
      flushed = hn::Add(flushed, other.flushed);
      wide = hn::Or(wide, other.wide);
    }
  };

  // Bytes of codes, packed if `pack`, or of values.
  HWY_INLINE std::size_t bytes_of(std::size_t count, bool pack) const {
    return args_.code.form == CodeForm::code ? (pack ? count / 2 : count)
                                             : form_bytes(args_.code, count);
  }

  // with_encoder() calls body(encoder) with the Encoder of the arguments: the
  // functions that convert elements are compiled for each.
  template <class Body>
  HWY_INLINE void with_encoder(const Body& body) const {
    const QuantizeArgs& code = args_.code;
    if (code.tapered != 0) return body(Encoder<kNearestAway, true>{code});
    if (code.rounding == kNearestEven) {
      return body(Encoder<kNearestEven, false>{code});
    }
    if (code.rounding == kNearestAway) {
      return body(Encoder<kNearestAway, false>{code});
    }
    body(Encoder<kStochastic, false>{code});
  }

  // Whether x * factor may be the number that microxcaling rounds up. Elements
  // of 16 bits have too few mantissa bits.
  template <class Codes>
  static constexpr bool kRaises = sizeof(Element) == 4 && !Codes::kIsStochastic
                                  && !Codes::kIsTapered;

  // codes_of() is the codes of x * factor. If kFinite, no x is inf or nan, no
  // factor is, and larger numbers become the largest one, `limit`. If
  // not, `limit` is the number that is rounded up.
  template <bool kFinite, class Codes>
  static HWY_INLINE VU codes_of(const Codes encoder, VU limit, VF x, VF factor,
                                VU random) {
    const VU x_bits = hn::BitCast(DU(), x);
    VU bits = magnitude(hn::Mul(x, factor));
    if (kFinite) {
      bits = hn::Min(bits, limit);
      return encoder.signed_code(encoder.magnitude_code(bits, random), x_bits);
    }
    VU code = encoder.magnitude_code(bits, random);
    if (kRaises<Codes>) {
      code = hn::Add(
          code, hn::IfThenElseZero(hn::Eq(bits, limit), hn::Set(DU(), 1u)));
    }
    const auto beyond = hn::Gt(code, hn::Set(DU(), encoder.largest()));
    return Codes::special_codes(encoder, x_bits, bits, code, beyond);
  }

  // value_of() is the value of such a code times its scale.
  template <bool kFinite, class Codes>
  static HWY_INLINE VF value_of(const Codes encoder, VU raised, VF x, VF factor,
                                VF scale, VU random, Seen& seen) {
    const DU du;
    const VU x_bits = hn::BitCast(du, x);
    const VU bits = magnitude(hn::Mul(x, factor));
    const VU largest = hn::Set(du, encoder.args.largest_bits);
    VU rounded = encoder.magnitude_bits(bits, random);
    if (!kFinite && kRaises<Codes>) {
      const std::uint32_t least =
          encoder.args.least_exponent - encoder.args.mantissa_bits;
      rounded = hn::IfThenElse(hn::Eq(bits, raised), hn::Set(du, least << 23),
                               rounded);
    }
    const auto beyond = hn::Gt(rounded, largest);
    // Neither a nan counts nor a 0, which elements that do not exist are.
    const auto is_not_zero = hn::Ne(hn::ShiftLeft<1>(x_bits), hn::Zero(du));
    const auto number =
        hn::And(is_not_zero, hn::Lt(magnitude(x), hn::Set(du, kInfinity + 1)));
    const auto count = [&](VU counted_so_far, hn::Mask<DU> mask) HWY_ATTR {
      if (!kFinite) mask = hn::And(mask, number);
      return hn::IfThenElse(mask, hn::Add(counted_so_far, hn::Set(du, 1u)),
                            counted_so_far);
    };
    seen.flushed = count(seen.flushed,
                         hn::And(hn::Eq(rounded, hn::Zero(du)), is_not_zero));
    seen.saturated = count(seen.saturated, beyond);
    VF value;
    if (kFinite) {
      value = hn::Mul(encoder.signed_value(hn::Min(rounded, largest), x_bits),
                      scale);
    } else {
      value = hn::AllFalse(du, beyond)
                  ? encoder.signed_value(rounded, x_bits)
                  : Codes::special_values(encoder, x_bits, bits, rounded);
      // As scaled_value().
      value = hn::IfThenElse(hn::IsNaN(value), value, hn::Mul(value, scale));
    }
    seen.wide = hn::Or(seen.wide, hn::BitCast(du, value));
    return value;
  }

  template <class Codes>
  HWY_INLINE VU random_of(const RandomWords& words, const std::uint8_t* bytes,
                          std::size_t i, std::size_t index,
                          std::size_t count) const {
    const DU du;
    const hn::Rebind<std::uint8_t, DF> d8;
    if (!Codes::kIsStochastic) return hn::Zero(du);
    if (bytes == nullptr) {
      return hn::ShiftRight<24>(
          words.first(static_cast<std::uint32_t>(index + i)));
    }
    std::uint8_t copy[kLanes] = {};
    std::memcpy(copy, bytes + i, std::min(count, kLanes));
    return hn::PromoteTo(du, hn::LoadU(d8, copy));
  }

  // cast() converts the elements of blocks; packed codes are packed if `pack`.
  template <bool kFinite, class Codes>
  HWY_NOINLINE void cast(const Element* x, std::size_t count,
                         const std::uint8_t* random, std::size_t index,
                         const BlockFactors& blocks, bool pack,
                         std::uint8_t* out) {
    const DF df;
    const Codes encoder{args_.code};
    const VU limit = hn::Set(DU(), kFinite ? largest_bits_ : raised_bits_);
    const int shift = shift_;
    const float* const factors = blocks.factors;
    const float* const values_of_scales = blocks.values;
    const CodeForm form = args_.code.form;
    Seen seen;
    const bool stream = non_temporal_ && streams(out);
    for (std::size_t i = 0; i < count; i += kTurn) {
      // The elements of a turn, or copies of the last ones.
      const std::size_t length = std::min(kTurn, count - i);
      const bool is_whole = length == kTurn;
      const Element* from = x + i;
      const std::uint8_t* bytes = random == nullptr ? nullptr : random + i;
      std::uint8_t* const result = out + bytes_of(i, pack);
      std::uint8_t* to = result;
      Element last[kTurn];
      std::uint8_t some[kTurn];
      HWY_ALIGN std::uint8_t codes[kTurn * sizeof(float)];
      if (HWY_UNLIKELY(!is_whole)) {
        std::memset(last, 0, sizeof last);
        std::memcpy(last, from, length * sizeof last[0]);
        from = last;
        to = codes;
        if (random != nullptr) {
          std::memset(some, 0, sizeof some);
          std::memcpy(some, bytes, length);
          bytes = some;
        }
      }
      const auto random_at = [&](std::size_t at) HWY_ATTR {
        return random_of<Codes>(row_words_, bytes, at, index + i, kLanes);
      };
      for (std::size_t j = 0; j < length; j += kWidth) {
        std::uint8_t* const to_j = to + bytes_of(j, pack);
        if (form == CodeForm::code) {
          VU vectors[kVectors];
          for (std::size_t v = 0; v < kVectors; ++v) {
            const std::size_t at = j + v * kLanes;
            vectors[v] = codes_of<kFinite>(
                encoder, limit, Format::load(df, from + at),
                hn::Set(df, factors[(i + at) >> shift]), random_at(at));
          }
          store_codes<Codes::kIsTapered>(vectors, pack, stream && is_whole,
                                         to_j);
          continue;
        }
        VF values[kVectors];
        for (std::size_t v = 0; v < kVectors; ++v) {
          const std::size_t at = j + v * kLanes, block = (i + at) >> shift;
          values[v] = value_of<kFinite>(
              encoder, limit, Format::load(df, from + at),
              hn::Set(df, factors[block]), hn::Set(df, values_of_scales[block]),
              random_at(at), seen);
        }
        store_values(values, form == CodeForm::float32, to_j);
      }
      if (!is_whole) std::memcpy(result, codes, bytes_of(length, pack));
    }
    seen_.join(seen);
  }

  HWY_INLINE void cast(bool finite, const Element* x, std::size_t count,
                       const std::uint8_t* random, std::size_t index,
                       const BlockFactors& blocks, bool pack,
                       std::uint8_t* out) {
    with_encoder([&](const auto& encoder) HWY_ATTR {
      using Codes = std::decay_t<decltype(encoder)>;
      if (HWY_LIKELY(finite)) {
        cast<true, Codes>(x, count, random, index, blocks, pack, out);
      } else {
        cast<false, Codes>(x, count, random, index, blocks, pack, out);
      }
    });
  }

  // choose() replaces the bits of `count` largest magnitudes by the scales, and
  // returns whether codes_of<true>() may compute all blocks. The arrays have
  // room for whole vectors.
  HWY_NOINLINE bool choose(BlockFactors& blocks, std::size_t count) {
    const DF df;
    const DU du;
    VU most = hn::Zero(du);
    for (std::size_t i = 0; i < count; i += kLanes) {
      const VU amax = hn::LoadU(du, blocks.bits + i);
      const Scales scales = scales_of(args_, args_.tensor_scale, amax);
      most = hn::Max(hn::Max(most, amax), magnitude(scales.factors));
      hn::StoreU(scales.bits, du, blocks.bits + i);
      hn::StoreU(scales.factors, df, blocks.factors + i);
      hn::StoreU(scales.values, df, blocks.values + i);
    }
    return clamps_ &&
           hn::AllFalse(du, hn::Gt(most, hn::Set(du, kInfinity - 1)));
  }

  // row() converts the blocks of a row, or of several without gaps.
  HWY_NOINLINE void row(const Element* x, std::size_t count,
                        const std::uint8_t* random, std::size_t index,
                        std::uint8_t* codes, std::uint8_t* scales) {
    const std::size_t block = args_.block;
    HWY_ALIGN BlockFactors group_factors;
    std::uint32_t* const bits = group_factors.bits;
    const std::size_t group = shift_ == 63 ? block : kGroup * block;
    for (std::size_t i = 0; i < count; i += group) {
      const std::size_t part = std::min(group, count - i);
      const std::size_t blocks = (part + block - 1) / block;
      bool finite = false;
      if (is_given_) {
        std::memcpy(group_factors.factors, scales, blocks * sizeof(float));
        set_given_values(group_factors.factors, blocks, group_factors.values);
      } else {
        bool has_nan = false;
        const std::size_t whole = kLanes == 1 ? 0 : part >> shift_;
        for (std::size_t b = 0; b < whole; b += kLanes) {
          const VU some = amax_of_blocks<Format, kLanes>(x + i + b * block,
                                                         block, whole - b);
          hn::StoreU(some, DU(), bits + b);
        }
        std::uint32_t most = amax_;
        for (std::size_t b = 0; b < blocks; ++b) {
          if (b >= whole || HWY_UNLIKELY(bits[b] > kInfinity)) {
            bits[b] = block_amax(x + i + b * block,
                                 std::min(block, part - b * block), has_nan);
          }
          most = std::max(most, bits[b]);
        }
        amax_ = most;
        has_nan_ = has_nan_ || has_nan;
        for (std::size_t j = blocks; j % kLanes != 0; ++j) bits[j] = 0;
        finite = choose(group_factors, blocks) && !has_nan;
        for (std::size_t j = 0; scales != nullptr && j < blocks; ++j) {
          store_scale(args_, scales, j, bits[j]);
        }
      }
      if (scales != nullptr) scales += blocks * args_.scale_bytes;
      if (codes == nullptr) continue;
      cast(finite, x + i, part, random == nullptr ? nullptr : random + i,
           index + i, group_factors, packed_, codes + bytes_of(i, packed_));
    }
  }

  // Sets the values of the scales that belong to given factors.
  HWY_INLINE void set_given_values(const float* factors, std::size_t count,
                                   float* values) const {
    for (std::size_t i = 0; i < count; ++i) {
      values[i] = args_.divides != 0 ? 1 / factors[i] : 1.0f;
    }
  }

  // block_amax() is the bits of the largest magnitude by which a scale is
  // chosen; sets `has_nan` if the block has a nan.
  HWY_INLINE std::uint32_t block_amax(const Element* x, std::size_t count,
                                      bool& has_nan) const {
    const std::uint32_t bits = amax_of<Format, false>(x, count);
    if (HWY_LIKELY(bits <= kInfinity)) return bits;
    has_nan = true;
    return args_.skips_nan != 0 ? amax_without_nan<Format>(x, count) : bits;
  }

  const BlockArgs& args_;
  std::size_t x_step_ = 0;  // elements from row to row
  // Bytes from line to line of each operand.
  std::size_t steps_[At::count] = {};
  RandomWords row_words_, column_words_;
  std::uint32_t largest_bits_, raised_bits_;
  bool clamps_;  // codes_of<true>() may compute finite blocks
  bool packed_, non_temporal_ = false, is_given_;
  int shift_ = 63;  // from an index to its block's; 63: one block a row
  Seen seen_;
  std::uint32_t amax_ = 0, column_amax_ = 0;
  bool has_nan_ = false;
};

}  // namespace quantizing

}  // namespace swamp::slave::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // SWAMP_SLAVE_BLOCK_ROWS_INL_H_
