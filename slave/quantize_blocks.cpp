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

HWY_INLINE Scales nvfp4_scales(const BlockArgs& args, VF amax) {
  const DF df;
  const DU du;
  const bool te = args.rule == BlockRule::te_nvfp4;
  const VF one = hn::Set(df, 1.0f), most = hn::Set(df, kFloatMax);
  VF scale;
  if (te) {
    scale = hn::Mul(amax, hn::Set(df, args.tensor_scale * (1.0f / 6.0f)));
  } else {
    scale = hn::Div(hn::Div(amax, hn::Set(df, 6.0f)),
                    hn::Set(df, args.tensor_scale));
    scale = hn::IfThenElse(hn::Lt(scale, hn::Set(df, 0x1p-6f)),
                           hn::Set(df, 0x1p-6f), scale);
  }
  const VU nan = hn::Set(du, 0x7fu);
  const VU limited =
      hn::Min(hn::BitCast(du, scale), hn::Set(du, float_to_bits(448.0f)));
  const VU code =
      hn::IfThenElse(hn::Gt(hn::BitCast(du, scale), hn::Set(du, kInfinity)),
                     nan, nearest_even_code(limited, 3, 121));
  const VF normal =
      hn::BitCast(df, hn::ShiftLeft<20>(hn::Add(code, hn::Set(du, 120u << 3))));
  const VF subnormal =
      hn::Mul(hn::ConvertTo(df, hn::BitCast(hn::RebindToSigned<DF>(), code)),
              hn::Set(df, 0x1p-9f));
  VF value = hn::IfThenElse(hn::RebindMask(df, hn::Lt(code, hn::Set(du, 8u))),
                            subnormal, normal);
  if (te) {
    const VF factor =
        hn::Div(one, hn::Mul(value, hn::Set(df, 1 / args.tensor_scale)));
    // Not Min(), whose result for nan depends on the target.
    return {code, hn::IfThenElse(hn::Lt(factor, most), factor, most)};
  }
  value = hn::IfThenElse(hn::RebindMask(df, hn::Eq(code, nan)),
                         hn::BitCast(df, hn::Set(du, 0x7fc00000u)), value);
  return {code, hn::Div(hn::Set(df, 1 / args.tensor_scale), value)};
}

// scales_of() chooses the scales of as many blocks as there are lanes, from the
// bits of their largest magnitudes. Out of line, because every instance of
// Blocks would have copies.
HWY_NOINLINE Scales scales_of(const BlockArgs& args, VU amax) {
  const DF df;
  const DU du;
  if (args.rule < BlockRule::microxcaling) {
    const VU codes = mx_codes(args, amax);
    return {codes, e8m0_factors(codes)};
  }
  if (args.rule == BlockRule::te_nvfp4 ||
      args.rule == BlockRule::torchao_nvfp4) {
    return nvfp4_scales(args, hn::BitCast(df, amax));
  }
  std::uint32_t bits[kLanes];
  float factors[kLanes];
  hn::StoreU(amax, du, bits);
  for (std::size_t i = 0; i < kLanes; ++i) {
    const BlockScale scale = block_scale(args, float_from_bits(bits[i]));
    bits[i] = scale.bits;
    factors[i] = scale.factor;
  }
  return {hn::LoadU(du, bits), hn::LoadU(df, factors)};
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
        packed_(args.code.elements == 2) {
    for (int i = 4; i < 8; ++i) {
      if (args.block == std::size_t{1} << i) shift_ = i;
    }
  }

  HWY_INLINE void run(const Tile& tile) {
    non_temporal_ = tile.non_temporal;
    const Operand* const layout = tile.layout;
    x_step_ = layout[At::x].line_step / sizeof(Element);
    for (int s = 1; s < At::count; ++s) {
      steps_[s] = layout[s].line_step;
    }
    const auto* x = operand<const Element>(tile, At::x);
    auto* codes = operand<std::uint8_t>(tile, At::codes);
    auto* scales = operand<std::uint8_t>(tile, At::scales);
    auto* column_codes = operand<std::uint8_t>(tile, At::column_codes);
    auto* column_scales = operand<std::uint8_t>(tile, At::column_scales);
    const auto* random = operand<const std::uint8_t>(tile, At::random);
    std::size_t index =
        tile.first * args_.stripe_rows * args_.index_step + args_.first_index;
    if (column_codes == nullptr && args_.square == 0 &&
        args_.stripe_rows == 1 && args_.columns % args_.block == 0) {
      // The rows have whole blocks, and nothing between them.
      const std::size_t rows =
          std::min<std::size_t>(tile.count * args_.stripe_rows,
                                args_.rows - tile.first * args_.stripe_rows);
      row(x, rows * args_.columns, random, index, codes, scales);
      return;
    }
    auto* const scratch = static_cast<std::uint8_t*>(tile.scratch);
    for (std::size_t u = 0; u < tile.count; ++u) {
      const std::size_t rows = std::min<std::size_t>(
          args_.stripe_rows, args_.rows - (tile.first + u) * args_.stripe_rows);
      stripe(x, rows, random, index, codes, scales, column_codes, column_scales,
             scratch);
      x += layout[At::x].unit_step / sizeof(Element);
      index += args_.stripe_rows * args_.index_step;
      if (random != nullptr) random += layout[At::random].unit_step;
      if (codes != nullptr) {
        codes += layout[At::codes].unit_step;
        scales += layout[At::scales].unit_step;
      }
      if (column_codes != nullptr) {
        column_codes += layout[At::column_codes].unit_step;
        column_scales += layout[At::column_scales].unit_step;
      }
    }
  }

 private:
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
                         const float* factors, bool pack,
                         std::uint8_t* out) const {
    const DF df;
    const Codes encoder = encoder_;
    const VU limit = hn::Set(DU(), kFinite ? largest_bits_ : raised_bits_);
    const int shift = shift_;
    // Converts kTurn elements with the factors of their blocks.
    const bool stream = non_temporal_ && streams(out);
    const auto turn = [&](const Element* from, std::size_t i,
                          std::size_t length, const std::uint8_t* bytes,
                          bool stream_turn, std::uint8_t* to) HWY_ATTR {
      for (std::size_t j = 0; j < length; j += kWidth) {
        VU codes[kVectors];
        for (std::size_t v = 0; v < kVectors; ++v) {
          const std::size_t at = j + v * kLanes;
          codes[v] = codes_of<kFinite>(
              encoder, limit, Format::load(df, from + at),
              hn::Set(df, factors[(i + at) >> shift]),
              random_of(row_words_, bytes, at, index + i, kLanes));
        }
        store_codes(codes, pack, stream_turn, to + (pack ? j / 2 : j));
      }
    };
    const std::size_t elements = pack ? 2 : 1;
    std::size_t i = 0;
    for (; i + kTurn <= count; i += kTurn) {
      turn(x + i, i, kTurn, random == nullptr ? nullptr : random + i, stream,
           out + i / elements);
    }
    if (i == count) return;
    const std::size_t rest = count - i;
    Element last[kTurn] = {};
    std::uint8_t some[kTurn] = {}, codes[kTurn];
    std::memcpy(last, x + i, rest * sizeof last[0]);
    if (random != nullptr) std::memcpy(some, random + i, rest);
    turn(last, i, rest, random == nullptr ? nullptr : some, false, codes);
    std::memcpy(out + i / elements, codes, rest / elements);
  }

  HWY_INLINE void cast(bool finite, const Element* x, std::size_t count,
                       const std::uint8_t* random, std::size_t index,
                       const float* factors, bool pack,
                       std::uint8_t* out) const {
    if (HWY_LIKELY(finite)) {
      cast<true>(x, count, random, index, factors, pack, out);
    } else {
      cast<false>(x, count, random, index, factors, pack, out);
    }
  }

  // choose() replaces the bits of `count` largest magnitudes by the scales, and
  // returns whether codes_of<true>() may compute all blocks. The arrays have
  // room for whole vectors.
  HWY_NOINLINE bool choose(std::uint32_t* bits, float* factors,
                           std::size_t count) const {
    const DF df;
    const DU du;
    VU most = hn::Zero(du);
    for (std::size_t i = 0; i < count; i += kLanes) {
      const VU amax = hn::LoadU(du, bits + i);
      const Scales scales = scales_of(args_, amax);
      most = hn::Max(hn::Max(most, amax), magnitude(scales.factors));
      hn::StoreU(scales.bits, du, bits + i);
      hn::StoreU(scales.factors, df, factors + i);
    }
    return clamps_ &&
           hn::AllFalse(du, hn::Gt(most, hn::Set(du, kInfinity - 1)));
  }

  // row() converts the blocks of a row, or of several without gaps.
  HWY_NOINLINE void row(const Element* x, std::size_t count,
                        const std::uint8_t* random, std::size_t index,
                        std::uint8_t* codes, std::uint8_t* scales) const {
    const std::size_t block = args_.block;
    HWY_ALIGN std::uint32_t bits[kGroup + kLanes];
    HWY_ALIGN float factors[kGroup + kLanes];
    const std::size_t group = shift_ == 63 ? block : kGroup * block;
    for (std::size_t i = 0; i < count; i += group) {
      const std::size_t part = std::min(group, count - i);
      std::size_t blocks = 0;
      bool has_nan = false;
      for (std::size_t j = 0; j < part; j += block, ++blocks) {
        const std::size_t length = std::min(block, part - j);
        bits[blocks] = amax_of<Format, false>(x + i + j, length);
        if (HWY_UNLIKELY(bits[blocks] > kInfinity) && args_.skips_nan != 0) {
          bits[blocks] = amax_without_nan<Format>(x + i + j, length);
          has_nan = true;
        }
      }
      for (std::size_t j = blocks; j % kLanes != 0; ++j) bits[j] = 0;
      const bool finite = choose(bits, factors, blocks) && !has_nan;
      for (std::size_t j = 0; j < blocks; ++j) {
        store_scale(args_, scales, j, bits[j]);
      }
      scales += blocks * args_.scale_bytes;
      cast(finite, x + i, part, random == nullptr ? nullptr : random + i,
           index + i, factors, packed_, codes + i / args_.code.elements);
    }
  }

  HWY_NOINLINE void stripe(const Element* x, std::size_t rows,
                           const std::uint8_t* random, std::size_t index,
                           std::uint8_t* codes, std::uint8_t* scales,
                           std::uint8_t* column_codes,
                           std::uint8_t* column_scales,
                           std::uint8_t* scratch) const {
    const std::size_t elements = args_.code.elements;
    if (codes != nullptr && args_.square == 0) {
      for (std::size_t r = 0; r < rows; ++r) {
        row(x + r * x_step_, args_.columns,
            random == nullptr ? nullptr : random + r * steps_[At::random],
            index + r * args_.index_step, codes + r * steps_[At::codes],
            scales + r * steps_[At::scales]);
      }
      if (column_codes == nullptr) return;
    }
    for (std::size_t c = 0; c < args_.columns; c += kBlockWidth) {
      const std::size_t columns = std::min(kBlockWidth, args_.columns - c);
      const std::uint8_t* const bytes =
          random == nullptr ? nullptr : random + c;
      // The first scale of this part.
      const std::size_t first =
          shift_ == 63 ? 0 : (c >> shift_) * args_.scale_bytes;
      if (args_.square != 0) {
        square(x + c, rows, columns, bytes, index + c,
               codes == nullptr ? nullptr : scales + first,
               column_codes == nullptr
                   ? nullptr
                   : column_scales + (args_.repeats != 0 ? c : c >> shift_) *
                                         steps_[At::column_scales],
               scratch);
        if (codes != nullptr) {
          for (std::size_t r = 0; r < rows; ++r) {
            put_row(scratch + r * kBlockWidth, columns,
                    codes + r * steps_[At::codes] + c / elements);
          }
        }
      } else {
        if (column_codes != nullptr) {
          for (std::size_t r = 0; r < rows; r += args_.block) {
            for (std::size_t j = 0; j < columns; j += kWidth) {
              column_block(x + c + j + r * x_step_,
                           std::min<std::size_t>(args_.block, rows - r),
                           std::min(kWidth, columns - j),
                           bytes == nullptr
                               ? nullptr
                               : bytes + j + r * steps_[At::random],
                           index + c + j + r * args_.index_step,
                           column_scales + (c + j) * steps_[At::column_scales] +
                               (r >> shift_) * args_.scale_bytes,
                           scratch + r / elements * kBlockWidth + j);
            }
          }
        }
      }
      if (column_codes == nullptr) continue;
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
      transpose(scratch, rows / elements, columns, non_temporal_,
                column_codes + c * steps_[At::column_codes],
                steps_[At::column_codes]);
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
  // exist) to rows of codes, or of packed codes, in scratch memory.
  HWY_NOINLINE void column_block(const Element* x, std::size_t rows,
                                 std::size_t count, const std::uint8_t* random,
                                 std::size_t index, std::uint8_t* scales,
                                 std::uint8_t* codes) const {
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
    const auto exceeds = [&](VU magnitudes, std::uint32_t limit) HWY_ATTR {
      return !hn::AllFalse(du, hn::Gt(magnitudes, hn::Set(du, limit)));
    };
    VU amax[kVectors];
    column_amax<false>(part, rows, amax);
    bool has_nan = false;
    for (const VU& one : amax) has_nan = has_nan || exceeds(one, kInfinity);
    if (args_.skips_nan != 0 && HWY_UNLIKELY(has_nan)) {
      column_amax<true>(part, rows, amax);
    }
    bool finite = clamps_ && !has_nan;
    std::uint32_t bits[kWidth];
    float factors[kWidth];
    for (std::size_t v = 0; v < kVectors; ++v) {
      const Scales chosen = scales_of(args_, amax[v]);
      finite = finite && !exceeds(amax[v], kInfinity - 1) &&
               !exceeds(magnitude(chosen.factors), kInfinity - 1);
      hn::StoreU(chosen.bits, du, bits + v * kLanes);
      hn::StoreU(chosen.factors, DF(), factors + v * kLanes);
    }
    for (std::size_t j = 0; j < count; ++j) {
      store_scale(args_, scales + j * steps_[At::column_scales], 0, bits[j]);
    }
    if (HWY_LIKELY(finite)) {
      cast_columns<true>(part, rows, count, random, index, factors, codes);
    } else {
      cast_columns<false>(part, rows, count, random, index, factors, codes);
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

  // The factors belong to columns.
  template <bool kFinite>
  HWY_NOINLINE void cast_columns(const Element* x, std::size_t rows,
                                 std::size_t count, const std::uint8_t* random,
                                 std::size_t index, const float* factors,
                                 std::uint8_t* out) const {
    const DF df;
    const Codes encoder = encoder_;
    const VU limit = hn::Set(DU(), kFinite ? largest_bits_ : raised_bits_);
    VF factor[kVectors];
    for (std::size_t v = 0; v < kVectors; ++v) {
      factor[v] = hn::LoadU(df, factors + v * kLanes);
    }
    const auto codes = [&](std::size_t r, std::size_t v) HWY_ATTR {
      return codes_of<kFinite>(
          encoder, limit, Format::load(df, x + r * kWidth + v * kLanes),
          factor[v],
          random_of(
              column_words_,
              random == nullptr ? nullptr : random + r * steps_[At::random],
              v * kLanes, index + r * args_.index_step,
              count - std::min(count, v * kLanes)));
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
      store_codes(bytes, false, false, out + r / elements * kBlockWidth);
    }
  }

  // transform() is the Hadamard transform of kHadamard rows of kWidth.
  HWY_NOINLINE static void transform(Element* x) {
    const DF df;
    const hn::Rebind<Element, DF> d;
    float values[kHadamard * kWidth];
    double wide[kHadamard * kWidth];
    for (std::size_t i = 0; i < kHadamard * kWidth; i += kLanes) {
      hn::StoreU(Format::load(df, x + i), df, values + i);
    }
    for (std::size_t i = 0; i < kHadamard * kWidth; ++i) {
      wide[i] = static_cast<double>(values[i]);
    }
    hadamard_transform(wide, kWidth);
    for (std::size_t i = 0; i < kHadamard * kWidth; ++i) {
      values[i] = static_cast<float>(wide[i]);
    }
    for (std::size_t i = 0; i < kHadamard * kWidth; i += kLanes) {
      hn::StoreU(Format::narrow(df, hn::LoadU(df, values + i)), d, x + i);
    }
  }

  // square() converts square blocks to rows of codes in scratch memory.
  HWY_NOINLINE void square(const Element* x, std::size_t rows,
                           std::size_t columns, const std::uint8_t* random,
                           std::size_t index, std::uint8_t* scales,
                           std::uint8_t* column_scales,
                           std::uint8_t* scratch) const {
    const std::size_t blocks = (columns + args_.block - 1) >> shift_;
    for (std::size_t r = 0; r < rows; r += args_.block) {
      const std::size_t height = std::min<std::size_t>(args_.block, rows - r);
      HWY_ALIGN std::uint32_t bits[kBlockWidth / 16 + kLanes] = {};
      HWY_ALIGN float factors[kBlockWidth / 16 + kLanes];
      bool has_nan = false;
      for (std::size_t i = r; i < r + height; ++i) {
        for (std::size_t b = 0; b < blocks; ++b) {
          const Element* const at = x + i * x_step_ + (b << shift_);
          const std::size_t length =
              std::min<std::size_t>(args_.block, columns - (b << shift_));
          std::uint32_t amax = amax_of<Format, false>(at, length);
          if (HWY_UNLIKELY(amax > kInfinity) && args_.skips_nan != 0) {
            amax = amax_without_nan<Format>(at, length);
            has_nan = true;
          }
          bits[b] = std::max(bits[b], amax);
        }
      }
      const bool finite = choose(bits, factors, blocks) && !has_nan;
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
             index + i * args_.index_step, factors, false,
             scratch + i * kBlockWidth);
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
  bool packed_, non_temporal_ = false;
  int shift_ = 63;  // from an index to its block's; 63: one block a row
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
