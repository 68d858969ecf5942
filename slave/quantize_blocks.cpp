// The kernels that convert blocks with a scale each, compiled once per target
// by Highway: stripes of rows are divided into blocks along rows
// (block_rows-inl.h), along columns (block_columns-inl.h), and squares.

#include "slave/kernel_table.h"
#include "slave/quantize_args.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "slave/quantize_blocks.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>

#include "slave/batch-inl.h"
#include "slave/block_columns-inl.h"
#include "slave/block_rows-inl.h"
#include "slave/block_scales-inl.h"
#include "slave/formats-inl.h"
#include "slave/quantize-inl.h"

HWY_BEFORE_NAMESPACE();
namespace swamp::slave::HWY_NAMESPACE {
namespace {

using namespace quantizing;

static_assert(kBlockWidth % kWidth == 0);
// The most columns of square blocks whose values are computed at once.
constexpr std::size_t kSquareWidth = kGroup * 16;

template <class Format>
class Blocks : public BlockColumns<Format> {
  using Base = BlockColumns<Format>;

 public:
  using typename Base::At;
  using typename Base::Element;

  HWY_INLINE explicit Blocks(const BlockArgs& args) : Base(args) {}

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
    const VU lacked = hn::And(seen_.wide, hn::Set(du, 0xffffu));
    found.wide = hn::AllFalse(du, hn::Ne(lacked, hn::Zero(du))) ? 0 : 1;
    found.canonicalize();
    partial_result<ValuePartial>(tile)->join(found);
  }

 private:
  using Base::amax_;
  using Base::args_;
  using Base::cast;
  using Base::choose;
  using Base::column_amax_;
  using Base::column_block;
  using Base::has_nan_;
  using Base::is_given_;
  using Base::non_temporal_;
  using Base::packed_;
  using Base::row;
  using Base::seen_;
  using Base::shift_;
  using Base::steps_;
  using Base::x_step_;

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
    const std::size_t width =
        args_.square != 0 && has_values ? kSquareWidth : kBlockWidth;
    for (std::size_t c = 0; c < args_.columns; c += width) {
      const std::size_t columns = std::min(width, args_.columns - c);
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
};

template <class Format>
HWY_INLINE void quantize_blocks(const void* arguments, const Tile& tile,
                                Result&) {
  const auto& args = *static_cast<const BlockArgs*>(arguments);
  Blocks<Format>(args).run(tile);
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
