// The kernel of direct convolutions, compiled once per target by Highway.
#include "slave/convolution_args.h"
#include "slave/kernel_table.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "slave/convolution.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "slave/convolution-inl.h"

HWY_BEFORE_NAMESPACE();
namespace swamp::slave::HWY_NAMESPACE {
namespace {

// windows() computes kSums neighbours of a row of the result: each one is the
// chain over `terms` vectors of weights, times x at the terms' offsets.
struct Windows {
  const std::uint32_t* offsets;
  const float* weight;
  std::size_t terms;
  const float* bias;  // null: none
  std::size_t out_step;
};
template <std::size_t kPosition, std::size_t kSums>
HWY_NOINLINE void windows(const Windows& of, const float* x, float* out) {
  const DF df;
  const std::uint32_t* const offsets = of.offsets;
  const float* const bias = of.bias;
  const std::size_t out_step = of.out_step;
  for (std::size_t i = 0; i < kWidth; i += kLanes) {
    const float* const from = x + (kPosition == 1 ? 0 : i);
    product_tile<ByWindow<kPosition>>(
        [&](auto row, std::size_t t)
            HWY_ATTR { return from + offsets[t] + row * kPosition; },
        of.weight + i, kWidth, of.terms,
        [&](auto, auto) HWY_ATTR { return hn::Zero(df); },
        [&](auto row, auto, VF sum) HWY_ATTR {
          VF value = nan_to_quiet(sum);
          if (bias != nullptr) {
            value = nan_to_quiet(hn::Add(value, hn::LoadU(df, bias + i)));
          }
          hn::StoreU(value, df, out + row * out_step + i);
        },
        std::make_index_sequence<kSums>(), std::make_index_sequence<1>());
  }
}

// windows_of() returns windows() of 1 to kMostSums sums.
template <std::size_t kPosition, std::size_t... k>
HWY_INLINE auto windows_of(std::size_t sums, std::index_sequence<k...>) {
  static constexpr decltype(&windows<1, 1>) kAll[] = {
      &windows<kPosition, k + 1>...};
  return kAll[sums - 1];
}
template <class Format>
struct Convolution : Image<Format> {
  using typename Image<Format>::Element;
  using Image<Format>::args;
  using Image<Format>::offsets;
  using At = ConvolutionOperand;

  std::uint32_t* order;
  float* weight;
  const float* bias = nullptr;
  const Operand* layout;

  HWY_INLINE Convolution(const ConvolutionArgs& arguments, const Tile& tile)
      : Image<Format>(arguments, tile, false),
        order(this->template part<std::uint32_t>(this->parts.order)),
        weight(this->template part<float>(this->parts.weight)),
        layout(tile.layout) {
    this->prepare();
    set_order();
  }

  // set_weight() packs the weight and the bias of a unit.
  HWY_INLINE void set_weight(const Element* all, const Element* added) {
    const std::size_t terms = args.all_terms();
    // The last vector is for terms that no result has, and for the bias.
    const std::size_t cleared = args.lanes == kWidth ? terms : 0;
    std::fill(weight + cleared * kWidth, weight + (terms + 1) * kWidth, 0.0f);
    const Source<Format> from{all, static_cast<std::int64_t>(terms), 1,
                              args.lanes, terms};
    const std::size_t lanes = for_terms(
        from,
        [&](auto d, std::size_t lane, std::size_t t, auto value) HWY_ATTR {
          hn::StoreU(value, d, weight + order[t] * kWidth + lane);
        });
    for (std::size_t lane = lanes; lane < args.lanes; ++lane) {
      for (std::size_t t = 0; t < terms; ++t) {
        weight[order[t] * kWidth + lane] = Format::widen(*from.at(lane, t));
      }
    }
    if (added == nullptr) return;
    float* const to = weight + terms * kWidth;
    for (std::size_t i = 0; i < args.lanes; ++i) {
      to[i] = Format::widen(added[i]);
    }
    bias = to;
  }

  // A phase is the results of a row and column less than the divisor, and those
  // at a multiple of it after them. They have the same terms.
  template <class Visit>
  HWY_INLINE void for_phases(const Visit& visit) const {
    const ConvolutionAxis &rows = args.rows, &columns = args.columns;
    for (std::int32_t r = 0; r < std::min(rows.divisor, rows.out); ++r) {
      for (std::int32_t c = 0; c < std::min(columns.divisor, columns.out);
           ++c) {
        visit(r, c);
      }
    }
  }
  template <class Visit>
  HWY_INLINE void for_taps(std::int32_t row, std::int32_t column,
                           const Visit& visit) const {
    for (std::int32_t h = 0; h < args.rows.taps; ++h) {
      if (!this->is_term(args.rows, row, h)) continue;
      for (std::int32_t w = 0; w < args.columns.taps; ++w) {
        if (this->is_term(args.columns, column, w)) visit(h, w);
      }
    }
  }
  HWY_INLINE std::size_t term_count(std::int32_t row,
                                    std::int32_t column) const {
    std::size_t taps = 0;
    for_taps(row, column, [&](std::int32_t, std::int32_t) HWY_ATTR { ++taps; });
    return taps * args.group_terms;
  }

  // set_order() sets where the terms of the weight are in the chains, which
  // follow each other phase by phase, and the offsets of these places.
  void set_order() const {
    std::fill(order, order + args.all_terms(), args.all_terms());
    std::size_t begin = 0;
    for_phases([&](std::int32_t row, std::int32_t column) HWY_ATTR {
      const std::size_t count = term_count(row, column);
      std::size_t t = 0;
      for_taps(row, column, [&](std::int32_t h, std::int32_t w) HWY_ATTR {
        const std::size_t from =
            this->place(this->position(args.rows, row, h),
                        this->position(args.columns, column, w));
        for (std::size_t i = 0; i < args.group_terms; ++i, ++t) {
          const std::size_t to = begin + place_of(t, count);
          order[static_cast<std::size_t>(h * args.columns.taps + w) *
                    args.group_terms +
                i] = static_cast<std::uint32_t>(to);
          offsets[to] = static_cast<std::uint32_t>(from + i * this->plane);
        }
      });
      begin += count;
    });
  }

  // compute() computes a unit of the copy. The results of float32 with all
  // channels in a line are written as they are.
  HWY_INLINE void compute(Element* out) const {
    const Operand& lines = layout[At::out];
    float* to = this->template part<float>(this->parts.out);
    std::size_t step = kWidth;
    bool direct = false;
    if constexpr (sizeof(Element) == sizeof(float)) {
      direct = args.out_by_channel == 0 && args.lanes == kWidth;
      if (direct) to = out, step = lines.line_step / sizeof(float);
    }
    if (this->width == 1) {
      compute_windows<1>(to, step);
    } else {
      compute_windows<kWidth>(to, step);
    }
    if (!direct) store(out, lines);
  }

  template <std::size_t kPosition>
  HWY_INLINE void compute_windows(float* out, std::size_t step) const {
    const ConvolutionAxis &rows = args.rows, &columns = args.columns;
    const auto row_divisor = static_cast<std::size_t>(rows.divisor),
               divisor = static_cast<std::size_t>(columns.divisor);
    const std::size_t row_step =
        this->place(static_cast<std::size_t>(rows.in_step), 0);
    std::size_t begin = 0;
    for_phases([&](std::int32_t r, std::int32_t c) HWY_ATTR {
      const auto first = static_cast<std::size_t>(c);
      const Windows of{offsets + begin, weight + begin * kWidth,
                       term_count(r, c), bias, divisor * step};
      begin += of.terms;
      const float* from = this->x;
      for (auto row = static_cast<std::size_t>(r); row < rows.out_count();
           row += row_divisor, from += row_step) {
        float* const to = out + (row * columns.out_count() + first) * step;
        for_equal_parts<kMostSums>(
            (columns.out_count() - first + divisor - 1) / divisor,
            [&](std::size_t column, std::size_t count) HWY_ATTR {
              windows_of<kPosition>(count,
                                    std::make_index_sequence<kMostSums>())(
                  of, from + column * kPosition, to + column * of.out_step);
            });
      }
    });
  }

  // store() rounds the results of a unit.
  HWY_INLINE void store(Element* out, const Operand& lines) const {
    const auto* const sums = this->template part<const float>(this->parts.out);
    const std::size_t pixels = args.out_pixels();
    const std::size_t line = lines.line_step / sizeof(Element);
    const auto narrow = [&](auto d, auto value, Element* to) HWY_ATTR {
      hn::StoreU(Format::narrow_number(d, value),
                 hn::Rebind<Element, decltype(d)>(), to);
    };
    std::size_t stored;
    if (args.out_by_channel != 0) {
      stored = for_terms(
          Source<Float32>{sums, kWidth, 1, pixels, args.lanes},
          [&](auto d, std::size_t pixel, std::size_t lane, auto value)
              HWY_ATTR { narrow(d, value, out + lane * line + pixel); });
      if (stored == pixels) return;
      for (std::size_t p = 0; p < pixels; ++p) {
        store_one(sums + p * kWidth, line, out + p);
      }
      return;
    }
    stored = for_terms(
        Source<Float32>{sums, 1, kWidth, args.lanes, pixels},
        [&](auto d, std::size_t lane, std::size_t pixel, auto value)
            HWY_ATTR { narrow(d, value, out + pixel * line + lane); });
    if (stored == args.lanes) return;
    for (std::size_t p = 0; p < pixels; ++p) {
      store_one(sums + p * kWidth, 1, out + p * line);
    }
  }
  HWY_INLINE void store_one(const float* sums, std::size_t step,
                            Element* out) const {
    const DF df;
    Element all[kWidth];
    for (std::size_t i = 0; i < kWidth; i += kLanes) {
      hn::StoreU(Format::narrow_number(df, hn::LoadU(df, sums + i)),
                 hn::Rebind<Element, DF>(), all + i);
    }
    for (std::size_t i = 0; i < args.lanes; ++i) out[i * step] = all[i];
  }
};

template <class Format>
HWY_INLINE void convolution(const void* arguments, const Tile& tile, Result&) {
  using At = ConvolutionOperand;
  using Element = typename Format::Element;
  const auto& args = *static_cast<const ConvolutionArgs*>(arguments);
  Convolution<Format> convolution(args, tile);
  const auto* x = operand<const Element>(tile, At::x);
  auto* out = operand<Element>(tile, At::out);
  const auto* weight = operand<const Element>(tile, At::weight);
  const auto* bias = operand<const Element>(tile, At::bias);
  const Element* copied = nullptr;
  for (std::size_t i = 0; i < tile.count; ++i) {
    if (x != copied) {
      convolution.copy(matrix_of<Format>(x, tile.layout[At::x],
                                         args.x_by_channel != 0, args.channels,
                                         args.in_pixels()));
    }
    copied = x;
    convolution.set_weight(weight, bias);
    convolution.compute(out);
    x += tile.layout[At::x].unit_step / sizeof *x;
    weight += tile.layout[At::weight].unit_step / sizeof *weight;
    if (bias != nullptr) bias += tile.layout[At::bias].unit_step / sizeof *bias;
    out += tile.layout[At::out].unit_step / sizeof *out;
  }
}

template <class Format>
HWY_INLINE void transpose(const void* arguments, const Tile& tile, Result&) {
  using At = TransposeOperand;
  using Element = typename Format::Element;
  const auto& args = *static_cast<const TransposeArgs*>(arguments);
  const auto* x = operand<const Element>(tile, At::x);
  auto* out = operand<Element>(tile, At::out);
  const std::size_t line = tile.layout[At::out].line_step / sizeof *out;
  for (std::size_t i = 0; i < tile.count; ++i) {
    const auto from =
        matrix_of<Format>(x, tile.layout[At::x], true, args.lanes, args.terms);
    const auto store = [&](auto d, std::size_t lane, std::size_t t,
                           auto value) HWY_ATTR {
      // A nan has the bits of the reference on every CPU.
      const auto nan = hn::BitCast(
          d, hn::Set(hn::RebindToUnsigned<decltype(d)>(), 0x7fc00000u));
      value = hn::IfThenElse(hn::IsNaN(value), nan, value);
      hn::StoreU(Format::narrow_number(d, value),
                 hn::Rebind<Element, decltype(d)>(), out + t * line + lane);
    };
    const std::size_t copied = for_terms(from, store);
    for (std::size_t lane = copied; lane < args.lanes; ++lane) {
      for (std::size_t t = 0; t < args.terms; ++t) {
        const hn::CappedTag<float, 1> one;
        store(one, lane, t, Format::load(one, from.at(lane, t)));
      }
    }
    x += tile.layout[At::x].unit_step / sizeof *x;
    out += tile.layout[At::out].unit_step / sizeof *out;
  }
}

}  // namespace

SWAMP_KERNELS(convolution, kUpTo32, convolution<A>)
SWAMP_KERNELS(transpose, kUpTo32, transpose<A>)

}  // namespace swamp::slave::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
