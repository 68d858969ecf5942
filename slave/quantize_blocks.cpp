// The kernels that convert blocks with a scale each, compiled once per target
// by Highway. Along rows, the blocks of a row are taken in groups: first their
// largest magnitudes, then, as vectors, the scales, then the codes. Along
// columns, a lane is a column: a vector goes down the rows, and the codes are
// finally transposed. Blocks without inf and nan, almost all, need no tests of
// their elements.

#include "slave/kernel_table.h"
#include "slave/quantize_args.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "slave/quantize_blocks.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include <cstring>
#include <utility>

#include "slave/batch-inl.h"
#include "slave/formats-inl.h"
#include "slave/quantize-inl.h"
#include "slave/random-inl.h"

HWY_BEFORE_NAMESPACE();
namespace swamp::slave::HWY_NAMESPACE {
namespace {

using namespace quantizing;

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
HWY_NOINLINE Scales scales_of(const BlockArgs& args, float tensor_scale,
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
template <class Format>
HWY_NOINLINE std::uint32_t amax_without_nan(const typename Format::Element* x,
                                            std::size_t count) {
  return amax_of<Format, true>(x, count);
}

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

// ---- Codes

// The blocks of a row whose scales are chosen together.
constexpr std::size_t kGroup = 64;
constexpr std::size_t kLine = 64;  // bytes of a cache line
static_assert(kBlockWidth % kWidth == 0);

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
HWY_NOINLINE void transpose(const std::uint8_t* from, std::size_t rows,
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

// BlockFactors is of the blocks whose scales are chosen together: the largest
// magnitudes and then the stored scales, what elements are multiplied by, and
// the values of the stored scales.
struct BlockFactors {
  std::uint32_t bits[kGroup + kLanes];
  float factors[kGroup + kLanes], values[kGroup + kLanes];
};

template <class Format, std::uint32_t kRounding, bool kTapered>
class Blocks {
 public:
  using At = BlockOperand;
  using Element = typename Format::Element;
  using Codes = Encoder<kRounding, kTapered>;

  HWY_INLINE explicit Blocks(const BlockArgs& args)
      : args_(args),
        encoder_{args.code},
        row_words_(args.code.key),
        column_words_(args.column_key),
        largest_bits_(float_to_bits(args.largest)),
        raised_bits_(kRaises && args.rule == BlockRule::microxcaling
                         ? microxcaling_raised_bits(args.code)
                         : ~0u),
        clamps_(args.code.overflow == args.code.largest && raised_bits_ == ~0u),
        packed_(args.code.elements == 2),
        is_given_(args.rule == BlockRule::given) {
    for (int i = 4; i < 8; ++i) {
      if (args.block == std::size_t{1} << i) shift_ = i;
    }
  }

  HWY_INLINE void run(const Tile& tile) {
    run_stripes(tile);
    if (tile.partial == nullptr) return;
    const DU du;
    const auto total = [&](VU lanes) HWY_ATTR {
      std::uint32_t one[kLanes];
      std::uint64_t sum = 0;
      hn::StoreU(lanes, du, one);
      for (const std::uint32_t lane : one) sum += lane;
      return sum;
    };
    ValuePartial found = {total(seen_.saturated), total(seen_.flushed), amax_,
                          column_amax_,           has_nan_ ? 1u : 0u,   0};
    found.wide = hn::AllFalse(du, hn::Ne(seen_.wide, hn::Zero(du))) ? 0 : 1;
    found.canonicalize();
    partial_result<ValuePartial>(tile)->join(found);
  }

 private:
  HWY_INLINE void run_stripes(const Tile& tile) {
    non_temporal_ = tile.non_temporal && args_.code.form == CodeForm::code;
    const Operand* const layout = tile.layout;
    x_step_ = layout[At::x].line_step / sizeof(Element);
    for (int s = 1; s < At::count; ++s) {
      steps_[s] = layout[s].line_step;
    }
    const auto* x = operand<const Element>(tile, At::x);
    Outputs out = {operand<std::uint8_t>(tile, At::codes),
                   operand<std::uint8_t>(tile, At::scales),
                   operand<std::uint8_t>(tile, At::column_codes),
                   operand<std::uint8_t>(tile, At::column_scales)};
    const auto* random = operand<const std::uint8_t>(tile, At::random);
    std::size_t index =
        tile.first * args_.stripe_rows * args_.index_step + args_.first_index;
    if (!out.has_columns() && args_.square == 0 && args_.stripe_rows == 1 &&
        args_.columns % args_.block == 0) {
      // The rows have whole blocks, and nothing between them.
      const std::size_t rows =
          std::min<std::size_t>(tile.count * args_.stripe_rows,
                                args_.rows - tile.first * args_.stripe_rows);
      row(x, rows * args_.columns, random, index, out.codes, out.scales);
      return;
    }
    auto* const scratch = static_cast<std::uint8_t*>(tile.scratch);
    for (std::size_t u = 0; u < tile.count; ++u) {
      const std::size_t rows = std::min<std::size_t>(
          args_.stripe_rows, args_.rows - (tile.first + u) * args_.stripe_rows);
      stripe(x, rows, random, index, out, scratch);
      x += layout[At::x].unit_step / sizeof(Element);
      index += args_.stripe_rows * args_.index_step;
      if (random != nullptr) random += layout[At::random].unit_step;
      const auto step = [&](std::uint8_t*& one, int s) {
        if (one != nullptr) one += layout[s].unit_step;
      };
      step(out.codes, At::codes);
      step(out.scales, At::scales);
      step(out.column_codes, At::column_codes);
      if (!is_given_) step(out.column_scales, At::column_scales);
    }
  }

  // Where the results of a stripe are, and the factors that are given.
  struct Outputs {
    std::uint8_t *codes, *scales, *column_codes, *column_scales;

    bool has_rows() const { return codes != nullptr || scales != nullptr; }
    bool has_columns() const {
      return column_codes != nullptr || column_scales != nullptr;
    }
  };

  // Seen is counts of values in each lane, and bits that bfloat16 lacks.
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

  // Whether x * factor may be the number that microxcaling rounds up. Elements
  // of 16 bits have too few mantissa bits.
  static constexpr bool kRaises =
      sizeof(Element) == 4 && kRounding != kStochastic && !kTapered;

  // codes_of() is the codes of x * factor. If kFinite, no x is inf or nan, no
  // factor is, and larger numbers become the largest one, `limit`. If
  // not, `limit` is the number that is rounded up.
  template <bool kFinite>
  static HWY_INLINE VU codes_of(const Codes encoder, VU limit, VF x, VF factor,
                                VU random) {
    const VU x_bits = hn::BitCast(DU(), x);
    VU bits = magnitude(hn::Mul(x, factor));
    if (kFinite) {
      bits = hn::Min(bits, limit);
      return encoder.signed_code(encoder.magnitude_code(bits, random), x_bits);
    }
    VU code = encoder.magnitude_code(bits, random);
    if (kRaises) {
      code = hn::Add(
          code, hn::IfThenElseZero(hn::Eq(bits, limit), hn::Set(DU(), 1u)));
    }
    const auto beyond = hn::Gt(code, hn::Set(DU(), encoder.largest()));
    return Codes::special_codes(encoder, x_bits, bits, code, beyond);
  }

  // value_of() is the value of such a code times its scale.
  template <bool kFinite>
  static HWY_INLINE VF value_of(const Codes encoder, VU raised, VF x, VF factor,
                                VF scale, VU random, Seen& seen) {
    const DU du;
    const VU x_bits = hn::BitCast(du, x), one = hn::Set(du, 1u);
    const VU bits = magnitude(hn::Mul(x, factor));
    const VU largest = hn::Set(du, encoder.args.largest_bits);
    VU rounded = encoder.magnitude_bits(bits, random);
    if (!kFinite && kRaises) {
      const std::uint32_t least =
          encoder.args.least_exponent - encoder.args.mantissa_bits;
      rounded = hn::IfThenElse(hn::Eq(bits, raised), hn::Set(du, least << 23),
                               rounded);
    }
    const auto beyond = hn::Gt(rounded, largest);
    // Numbers that are not 0; elements that do not exist are.
    const auto number =
        hn::And(hn::Ne(hn::ShiftLeft<1>(x_bits), hn::Zero(du)),
                hn::Lt(magnitude(x), hn::Set(du, kInfinity + 1)));
    const auto count = [&](VU counted_so_far, hn::Mask<DU> mask) HWY_ATTR {
      return hn::Add(counted_so_far,
                     hn::IfThenElseZero(hn::And(mask, number), one));
    };
    seen.flushed = count(seen.flushed, hn::Eq(rounded, hn::Zero(du)));
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
    seen.wide = hn::Or(seen.wide,
                       hn::And(hn::BitCast(du, value), hn::Set(du, 0xffffu)));
    return value;
  }

  HWY_INLINE VU random_of(const RandomWords& words, const std::uint8_t* bytes,
                          std::size_t i, std::size_t index,
                          std::size_t count) const {
    const DU du;
    const hn::Rebind<std::uint8_t, DF> d8;
    if (kRounding != kStochastic) return hn::Zero(du);
    if (bytes == nullptr) {
      return hn::ShiftRight<24>(
          words.first(static_cast<std::uint32_t>(index + i)));
    }
    std::uint8_t copy[kLanes] = {};
    std::memcpy(copy, bytes + i, std::min(count, kLanes));
    return hn::PromoteTo(du, hn::LoadU(d8, copy));
  }

  // cast() converts the elements of blocks; packed codes are packed if `pack`.
  template <bool kFinite>
  HWY_NOINLINE void cast(const Element* x, std::size_t count,
                         const std::uint8_t* random, std::size_t index,
                         const BlockFactors& blocks, bool pack,
                         std::uint8_t* out) {
    const DF df;
    const Codes encoder = encoder_;
    const VU limit = hn::Set(DU(), kFinite ? largest_bits_ : raised_bits_);
    const int shift = shift_;
    const float* const factors = blocks.factors;
    const float* const values_of_scales = blocks.values;
    const CodeForm form = args_.code.form;
    Seen seen;
    // Converts kTurn elements with the factors of their blocks.
    const bool stream = non_temporal_ && streams(out);
    const auto turn = [&](const Element* from, std::size_t i,
                          std::size_t length, const std::uint8_t* bytes,
                          bool stream_turn, std::uint8_t* to) HWY_ATTR {
      for (std::size_t j = 0; j < length; j += kWidth) {
        std::uint8_t* const to_j = to + bytes_of(j, pack);
        if (form == CodeForm::code) {
          VU codes[kVectors];
          for (std::size_t v = 0; v < kVectors; ++v) {
            const std::size_t at = j + v * kLanes;
            codes[v] = codes_of<kFinite>(
                encoder, limit, Format::load(df, from + at),
                hn::Set(df, factors[(i + at) >> shift]),
                random_of(row_words_, bytes, at, index + i, kLanes));
          }
          store_codes(codes, pack, stream_turn, to_j);
          continue;
        }
        VF values[kVectors];
        for (std::size_t v = 0; v < kVectors; ++v) {
          const std::size_t at = j + v * kLanes, block = (i + at) >> shift;
          values[v] = value_of<kFinite>(
              encoder, limit, Format::load(df, from + at),
              hn::Set(df, factors[block]), hn::Set(df, values_of_scales[block]),
              random_of(row_words_, bytes, at, index + i, kLanes), seen);
        }
        store_values(values, form == CodeForm::float32, to_j);
      }
    };
    std::size_t i = 0;
    for (; i + kTurn <= count; i += kTurn) {
      turn(x + i, i, kTurn, random == nullptr ? nullptr : random + i, stream,
           out + bytes_of(i, pack));
    }
    if (i != count) {
      const std::size_t rest = count - i;
      Element last[kTurn] = {};
      std::uint8_t some[kTurn] = {};
      HWY_ALIGN std::uint8_t codes[kTurn * sizeof(float)];
      std::memcpy(last, x + i, rest * sizeof last[0]);
      if (random != nullptr) std::memcpy(some, random + i, rest);
      turn(last, i, rest, random == nullptr ? nullptr : some, false, codes);
      std::memcpy(out + bytes_of(i, pack), codes, bytes_of(rest, pack));
    }
    seen_.join(seen);
  }

  HWY_INLINE void cast(bool finite, const Element* x, std::size_t count,
                       const std::uint8_t* random, std::size_t index,
                       const BlockFactors& blocks, bool pack,
                       std::uint8_t* out) {
    if (HWY_LIKELY(finite)) {
      cast<true>(x, count, random, index, blocks, pack, out);
    } else {
      cast<false>(x, count, random, index, blocks, pack, out);
    }
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
        for (std::size_t b = 0; b < blocks; ++b) {
          bits[b] = block_amax(x + i + b * block,
                               std::min(block, part - b * block), has_nan);
          amax_ = std::max(amax_, bits[b]);
        }
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

  HWY_NOINLINE void stripe(const Element* x, std::size_t rows,
                           const std::uint8_t* random, std::size_t index,
                           const Outputs& out, std::uint8_t* scratch) {
    const bool has_values = args_.code.form != CodeForm::code;
    if (out.has_rows() && args_.square == 0) {
      for (std::size_t r = 0; r < rows; ++r) {
        row(x + r * x_step_, args_.columns,
            random == nullptr ? nullptr : random + r * steps_[At::random],
            index + r * args_.index_step,
            out.codes == nullptr ? nullptr : out.codes + r * steps_[At::codes],
            out.scales == nullptr ? nullptr
                                  : out.scales + r * steps_[At::scales]);
      }
      if (!out.has_columns()) return;
    }
    for (std::size_t c = 0; c < args_.columns; c += kBlockWidth) {
      const std::size_t columns = std::min(kBlockWidth, args_.columns - c);
      const std::uint8_t* const bytes =
          random == nullptr ? nullptr : random + c;
      // The first scale of this part.
      const std::size_t first =
          shift_ == 63 ? 0 : (c >> shift_) * args_.scale_bytes;
      if (args_.square != 0) {
        square(
            x + c, rows, columns, bytes, index + c,
            out.scales == nullptr ? nullptr : out.scales + first,
            out.column_scales == nullptr
                ? nullptr
                : out.column_scales + (args_.repeats != 0 ? c : c >> shift_) *
                                          steps_[At::column_scales],
            has_values ? out.codes + form_bytes(args_.code, c) : scratch,
            has_values ? steps_[At::codes] : kBlockWidth);
        if (has_values) continue;
        if (out.codes != nullptr) {
          for (std::size_t r = 0; r < rows; ++r) {
            put_row(
                scratch + r * kBlockWidth, columns,
                out.codes + r * steps_[At::codes] + c / args_.code.elements);
          }
        }
      } else {
        column_blocks(x + c, rows, columns, bytes, index + c, c, out, scratch);
      }
      if (out.column_codes == nullptr || has_values) continue;
      if (packed_ && args_.square != 0) {
        for (std::size_t r = 0; r < rows; r += 2) {
          std::uint8_t two[2 * kBlockWidth];
          std::memcpy(two, scratch + r * kBlockWidth, sizeof two);
          for (std::size_t j = 0; j < kBlockWidth; ++j) {
            two[j] =
                static_cast<std::uint8_t>(two[j] | two[j + kBlockWidth] << 4);
          }
          std::memcpy(scratch + r / 2 * kBlockWidth, two, kBlockWidth);
        }
      }
      transpose(scratch, rows / args_.code.elements, columns, non_temporal_,
                out.column_codes + c * steps_[At::column_codes],
                steps_[At::column_codes]);
    }
  }

  // column_blocks() converts the blocks of up to kBlockWidth columns, from
  // column `c` of the stripe on: codes to scratch memory, values to the result.
  HWY_INLINE void column_blocks(const Element* x, std::size_t rows,
                                std::size_t columns, const std::uint8_t* random,
                                std::size_t index, std::size_t c,
                                const Outputs& out, std::uint8_t* scratch) {
    if (!out.has_columns()) return;
    const bool has_values = args_.code.form != CodeForm::code;
    const std::size_t height =
        is_given_ ? kMaxBlock : static_cast<std::size_t>(args_.block);
    for (std::size_t r = 0; r < rows; r += height) {
      for (std::size_t j = 0; j < columns; j += kWidth) {
        std::uint8_t* codes = nullptr;
        if (has_values) {
          codes = out.column_codes + r * steps_[At::column_codes] +
                  form_bytes(args_.code, c + j);
        } else if (out.column_codes != nullptr) {
          codes = scratch + r / args_.code.elements * kBlockWidth + j;
        }
        std::uint8_t* scales = out.column_scales;
        if (is_given_) {
          scales += (c + j) * sizeof(float);
        } else if (scales != nullptr) {
          scales += (c + j) * steps_[At::column_scales] +
                    (r >> shift_) * args_.scale_bytes;
        }
        column_block(
            x + j + r * x_step_, std::min<std::size_t>(height, rows - r),
            std::min(kWidth, columns - j),
            random == nullptr ? nullptr : random + j + r * steps_[At::random],
            index + j + r * args_.index_step, scales,
            out.column_codes == nullptr ? nullptr : codes,
            has_values ? steps_[At::column_codes] : kBlockWidth);
      }
    }
  }

  // put_row() copies or packs codes.
  HWY_INLINE void put_row(const std::uint8_t* from, std::size_t count,
                          std::uint8_t* to) const {
    if (!packed_) {
      std::memcpy(to, from, count);
      return;
    }
    std::uint8_t halves[kBlockWidth / 2];
    for (std::size_t i = 0; i < kBlockWidth; i += kTurn) {
      pack_turn(from + i, halves + i / 2);
    }
    std::memcpy(to, halves, count / 2);
  }

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
      transform(part + r * kWidth);
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
    if (HWY_LIKELY(finite)) {
      cast_columns<true>(part, rows, count, random, index, factors, values,
                         codes, step);
    } else {
      cast_columns<false>(part, rows, count, random, index, factors, values,
                          codes, step);
    }
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
  template <bool kFinite>
  HWY_NOINLINE void cast_columns(const Element* x, std::size_t rows,
                                 std::size_t count, const std::uint8_t* random,
                                 std::size_t index, const float* factors,
                                 const float* values_of_scales,
                                 std::uint8_t* out, std::size_t step) {
    const DF df;
    const Codes encoder = encoder_;
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
      return random_of(
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
          values[v] = value_of<kFinite>(encoder, limit, element(r, v),
                                        factor[v], scale[v], bits(r, v), seen);
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
      return codes_of<kFinite>(encoder, limit, element(r, v), factor[v],
                               bits(r, v));
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
      store_codes(bytes, false, false, out + r / elements * step);
    }
  }

  // butterfly() is a step of hadamard_transform(). Unrolled, because the
  // compiler would keep the values in memory.
  template <std::size_t kStep, class V, std::size_t... kPairs>
  static HWY_INLINE void butterfly(V* v, std::index_sequence<kPairs...>) {
    const auto pair = [&](std::size_t a) HWY_ATTR {
      const V sum = hn::Add(v[a], v[a + kStep]);
      v[a + kStep] = hn::Sub(v[a], v[a + kStep]);
      v[a] = sum;
    };
    (pair(kPairs / kStep * (2 * kStep) + kPairs % kStep), ...);
  }

  // transform() is the Hadamard transform of kHadamard rows of kWidth, with the
  // operations of hadamard_transform().
  HWY_NOINLINE static void transform(Element* x) {
    const hn::ScalableTag<double> dd;
    const hn::Rebind<float, decltype(dd)> df;
    const hn::Rebind<Element, decltype(dd)> d;
    for (std::size_t c = 0; c < kWidth; c += hn::MaxLanes(dd)) {
      hn::Vec<decltype(dd)> v[kHadamard];
      for (std::size_t i = 0; i < kHadamard; ++i) {
        v[i] = hn::PromoteTo(dd, Format::load(df, x + i * kWidth + c));
        if ((kHadamardMinus >> i & 1) != 0) v[i] = hn::Neg(v[i]);
      }
      constexpr std::make_index_sequence<kHadamard / 2> kPairs;
      butterfly<1>(v, kPairs);
      butterfly<2>(v, kPairs);
      butterfly<4>(v, kPairs);
      butterfly<8>(v, kPairs);
      const auto nan = hn::Set(dd, std::numeric_limits<double>::quiet_NaN());
      for (std::size_t i = 0; i < kHadamard; ++i) {
        const auto sum = hn::Mul(v[i], hn::Set(dd, 0.25));
        const auto value =
            narrowed(df, hn::IfThenElse(hn::IsNaN(sum), nan, sum));
        hn::StoreU(Format::narrow_number(df, value), d, x + i * kWidth + c);
      }
    }
  }

  // square_amax() is the bits of the largest magnitude of a square block.
  template <bool kSkipNan>
  HWY_NOINLINE std::uint32_t square_amax(const Element* x, std::size_t rows,
                                         std::size_t columns) const {
    const DU du;
    VU most = hn::Zero(du);
    for (std::size_t r = 0; r < rows; ++r, x += x_step_) {
      for (std::size_t c = 0; c < columns; c += kLanes) {
        const VF one = load_some<Format>(x + c, columns - c);
        most = hn::Max(most, counted<kSkipNan>(magnitude(one)));
      }
    }
    return hn::GetLane(hn::MaxOfLanes(du, most));
  }

  // square() converts square blocks to rows of codes or values, `step` bytes
  // apart.
  HWY_NOINLINE void square(const Element* x, std::size_t rows,
                           std::size_t columns, const std::uint8_t* random,
                           std::size_t index, std::uint8_t* scales,
                           std::uint8_t* column_scales, std::uint8_t* out,
                           std::size_t step) {
    const std::size_t blocks = (columns + args_.block - 1) >> shift_;
    for (std::size_t r = 0; r < rows; r += args_.block) {
      const std::size_t height = std::min<std::size_t>(args_.block, rows - r);
      HWY_ALIGN BlockFactors factors;
      std::uint32_t* const bits = factors.bits;
      std::fill_n(bits, blocks + kLanes, 0u);
      bool has_nan = false;
      for (std::size_t b = 0; b < blocks; ++b) {
        const std::size_t first = b << shift_;
        const Element* const at = x + r * x_step_ + first;
        const auto width = std::min<std::size_t>(args_.block, columns - first);
        bits[b] = square_amax<false>(at, height, width);
        if (HWY_UNLIKELY(bits[b] > kInfinity)) {
          has_nan = true;
          if (args_.skips_nan != 0) {
            bits[b] = square_amax<true>(at, height, width);
          }
        }
      }
      for (std::size_t b = 0; b < blocks; ++b) amax_ = std::max(amax_, bits[b]);
      has_nan_ = has_nan_ || has_nan;
      const bool finite = choose(factors, blocks) && !has_nan;
      const std::size_t at = (r >> shift_);
      for (std::size_t b = 0; b < blocks; ++b) {
        if (scales != nullptr) {
          const std::size_t first = args_.repeats != 0 ? r : at;
          const std::size_t copies = args_.repeats != 0 ? height : 1;
          for (std::size_t i = first; i < first + copies; ++i) {
            store_scale(args_, scales + i * steps_[At::scales], b, bits[b]);
          }
        }
        if (column_scales != nullptr) {
          const std::size_t first = args_.repeats != 0 ? b << shift_ : b;
          const std::size_t copies =
              args_.repeats != 0
                  ? std::min<std::size_t>(args_.block, columns - first)
                  : 1;
          for (std::size_t i = first; i < first + copies; ++i) {
            store_scale(args_, column_scales + i * steps_[At::column_scales],
                        at, bits[b]);
          }
        }
      }
      for (std::size_t i = r; i < r + height; ++i) {
        cast(finite, x + i * x_step_, columns,
             random == nullptr ? nullptr : random + i * steps_[At::random],
             index + i * args_.index_step, factors, false, out + i * step);
      }
    }
  }

  const BlockArgs& args_;
  std::size_t x_step_ = 0;  // elements from row to row
  // Bytes from line to line of each operand.
  std::size_t steps_[At::count] = {};
  Codes encoder_;
  RandomWords row_words_, column_words_;
  std::uint32_t largest_bits_, raised_bits_;
  bool clamps_;  // codes_of<true>() may compute finite blocks
  bool packed_, non_temporal_ = false, is_given_;
  int shift_ = 63;  // from an index to its block's; 63: one block a row
  Seen seen_;
  std::uint32_t amax_ = 0, column_amax_ = 0;
  bool has_nan_ = false;
};

template <class Format>
HWY_INLINE void quantize_blocks(const void* arguments, const Tile& tile,
                                Result&) {
  const auto& args = *static_cast<const BlockArgs*>(arguments);
  if (args.code.tapered != 0) {
    Blocks<Format, kNearestAway, true>(args).run(tile);
  } else if (args.code.rounding == kNearestEven) {
    Blocks<Format, kNearestEven, false>(args).run(tile);
  } else if (args.code.rounding == kNearestAway) {
    Blocks<Format, kNearestAway, false>(args).run(tile);
  } else {
    Blocks<Format, kStochastic, false>(args).run(tile);
  }
  if (kHasNonTemporalStores && tile.non_temporal) hwy::FlushStream();
}

template <class Format>
HWY_INLINE void amax(const void*, const Tile& tile, Result&) {
  const auto* const x = operand<const typename Format::Element>(tile, 0);
  AmaxPartial found;
  found.bits = found.with_nan = amax_of<Format, false>(x, tile.count);
  if (found.with_nan > kInfinity) {
    found.bits = amax_without_nan<Format>(x, tile.count);
  }
  partial_result<AmaxPartial>(tile)->join(found);
}

template <class Format>
HWY_INLINE void hadamard(const void*, const Tile& tile, Result&) {
  const DF df;
  const hn::Rebind<typename Format::Element, DF> d;
  const auto* const x =
      operand<const typename Format::Element>(tile, HadamardOperand::x);
  auto* const out =
      operand<typename Format::Element>(tile, HadamardOperand::out);
  for (std::size_t i = 0; i < tile.count * kHadamard; i += kHadamard) {
    HWY_ALIGN float values[kHadamard];
    double wide[kHadamard];
    for (std::size_t j = 0; j < kHadamard; j += kLanes) {
      hn::Store(Format::load(df, x + i + j), df, values + j);
    }
    for (std::size_t j = 0; j < kHadamard; ++j) {
      wide[j] = static_cast<double>(values[j]);
    }
    hadamard_transform(wide, 1);
    for (std::size_t j = 0; j < kHadamard; ++j) {
      values[j] = static_cast<float>(wide[j]);
    }
    for (std::size_t j = 0; j < kHadamard; j += kLanes) {
      hn::StoreU(Format::narrow(df, hn::Load(df, values + j)), d, out + i + j);
    }
  }
}

}  // namespace

SWAMP_KERNELS(quantize_blocks, kUpTo32, quantize_blocks<A>)
SWAMP_KERNELS(amax, kUpTo32, amax<A>)
SWAMP_KERNELS(hadamard, kUpTo32, hadamard<A>)

}  // namespace swamp::slave::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
