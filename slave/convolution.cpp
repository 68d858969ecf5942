// The kernels of direct convolutions. A slave widens an image, or a part of its
// rows, to a copy in scratch memory that has the zeros around it: for each
// position a vector of what the filters of its lanes read, or, if all filters
// read the same, one float. Rows, columns and the terms are then at constant
// distances, and the sums of some neighbours stay in registers while the terms
// pass, as those of a product. Compiled once per target by Highway.
#include "slave/convolution_args.h"
#include "slave/kernel_table.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "slave/convolution.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include <algorithm>
#include <utility>

#include "slave/batch-inl.h"
#include "slave/exact_fma-inl.h"
#include "slave/formats-inl.h"
#include "slave/product_tile-inl.h"
#include "slave/transpose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace swamp::slave::HWY_NAMESPACE {
namespace {

using DF = hn::ScalableTag<float>;
using VF = hn::Vec<DF>;
constexpr std::size_t kLanes = hn::MaxLanes(DF());
constexpr std::size_t kWidth = kConvolutionLanes;
// Prefetched: a position takes few cycles, and the next may be far.
constexpr std::size_t kPixelsAhead = 32;
constexpr std::size_t kMostSums = kTileRows < 6 ? kTileRows : 12;

// ByWindow multiplies weights, or a gradient, by the values at an address:
// kWidth 1 is one for all lanes.
template <std::size_t kPosition>
struct ByWindow : ByFma {
  static HWY_INLINE V set(const float* x) {
    return kPosition == 1 ? hn::Set(D(), *x) : hn::LoadU(D(), x);
  }
};

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

// weight_sums() continues kSums chains over `positions` vectors of gradients:
// each is of a term, times x at the positions' offsets.
struct Gradients {
  const std::uint32_t* begins;
  const float* gradient;
  std::size_t positions;
};
template <std::size_t kPosition, std::size_t kSums>
HWY_NOINLINE void weight_sums(const Gradients& of, const float* x,
                              const std::uint32_t* terms, float* sums) {
  const DF df;
  const std::uint32_t* const begins = of.begins;
  std::size_t offsets[kSums];
  for (std::size_t k = 0; k < kSums; ++k) offsets[k] = terms[k];
  for (std::size_t i = 0; i < kWidth; i += kLanes) {
    const float* const from = x + (kPosition == 1 ? 0 : i);
    product_tile<ByWindow<kPosition>>(
        [&](auto row, std::size_t t)
            HWY_ATTR { return from + begins[t] + offsets[row]; },
        of.gradient + i, kWidth, of.positions,
        [&](auto row, auto)
            HWY_ATTR { return hn::LoadU(df, sums + row * kWidth + i); },
        [&](auto row, auto, VF sum)
            HWY_ATTR { hn::StoreU(sum, df, sums + row * kWidth + i); },
        std::make_index_sequence<kSums>(), std::make_index_sequence<1>());
  }
}

// Functions of 1 to kMostSums sums.
template <std::size_t kPosition, std::size_t... k>
HWY_INLINE auto windows_of(std::size_t sums, std::index_sequence<k...>) {
  static constexpr decltype(&windows<1, 1>) kAll[] = {
      &windows<kPosition, k + 1>...};
  return kAll[sums - 1];
}
template <std::size_t kPosition, std::size_t... k>
HWY_INLINE auto weight_sums_of(std::size_t sums, std::index_sequence<k...>) {
  static constexpr decltype(&weight_sums<1, 1>) kAll[] = {
      &weight_sums<kPosition, k + 1>...};
  return kAll[sums - 1];
}

// for_equal_parts() calls visit(first, count) for parts of at most kMostSums.
template <class Visit>
HWY_INLINE void for_equal_parts(std::size_t count, const Visit& visit) {
  for (std::size_t parts = (count + kMostSums - 1) / kMostSums, first = 0;
       parts != 0; --parts) {
    const std::size_t part = (count - first + parts - 1) / parts;
    visit(first, part);
    first += part;
  }
}

// matrix_of() returns the elements of a unit: pixels are terms, channels lanes.
template <class Format>
HWY_INLINE Source<Format> matrix_of(const typename Format::Element* data,
                                    const Operand& layout, bool by_channel,
                                    std::size_t channels, std::size_t pixels) {
  const auto line = static_cast<std::int64_t>(layout.line_step / sizeof(*data));
  return {data, by_channel ? line : 1, by_channel ? 1 : line, channels, pixels};
}

// Image is the copy of a unit of x.
template <class Format>
struct Image {
  using Element = typename Format::Element;

  const ConvolutionArgs& args;
  std::byte* scratch;
  ConvolutionScratch parts;
  std::uint32_t* offsets;
  std::uint32_t* places;
  float* x;
  std::size_t width, slots, plane;  // plane: floats of a channel of a row

  Image(const ConvolutionArgs& arguments, const Tile& tile, bool is_weight)
      : args(arguments),
        scratch(static_cast<std::byte*>(tile.scratch)),
        parts(args, is_weight),
        offsets(part<std::uint32_t>(parts.offsets)),
        places(part<std::uint32_t>(parts.places)),
        x(part<float>(parts.x)),
        width(args.width()),
        slots(args.columns.slots()),
        plane(slots * width) {}
  // prepare() makes the copy ready for units.
  void prepare() const {
    set_places();
    clear();
  }
  template <class T>
  T* part(std::size_t bytes) const {
    return reinterpret_cast<T*>(scratch + bytes);
  }

  // place() is a position of the copy, in floats.
  HWY_INLINE std::size_t place(std::size_t row, std::size_t column) const {
    const auto step = static_cast<std::size_t>(args.columns.in_step);
    return row * args.group_terms * plane +
           (column % step * (slots / step) + column / step) * width;
  }
  // place_of() is the same for a position of the kernel and the result.
  static std::size_t position(const ConvolutionAxis& axis, std::int32_t o,
                              std::int32_t k) {
    return static_cast<std::size_t>(
        (o * axis.in_step + k * axis.tap_step + axis.offset) / axis.divisor +
        axis.before);
  }
  static bool is_term(const ConvolutionAxis& axis, std::int32_t o,
                      std::int32_t k) {
    return (o * axis.in_step + k * axis.tap_step + axis.offset) %
               axis.divisor ==
           0;
  }

  void set_places() const {
    const std::size_t columns = args.columns.in_count();
    const auto row = static_cast<std::size_t>(args.rows.before);
    for (std::size_t c = 0; c < columns; ++c) {
      places[c] = static_cast<std::uint32_t>(
          place(row, c + static_cast<std::size_t>(args.columns.before)));
    }
    const auto step = static_cast<std::uint32_t>(place(1, 0));
    for (std::size_t p = columns; p < args.in_pixels(); ++p) {
      places[p] = places[p - columns] + step;
    }
  }
  // clear() makes zeros of all that copies do not write.
  void clear() const {
    const ConvolutionAxis &rows = args.rows, &columns = args.columns;
    const bool all = args.lanes != kWidth;
    for (std::int32_t r = 0; r < rows.positions; ++r) {
      const auto row = static_cast<std::size_t>(r);
      float* const begin = x + place(row, 0);
      if (all || r < rows.before || r >= rows.before + rows.in) {
        std::fill(begin, begin + args.group_terms * plane, 0.0f);
        continue;
      }
      for (std::int32_t c = 0; c < columns.positions; ++c) {
        if (c == columns.before) c += columns.in;
        if (c >= columns.positions) break;
        float* to = x + place(row, static_cast<std::size_t>(c));
        for (std::size_t t = 0; t < args.group_terms; ++t, to += plane) {
          std::fill(to, to + width, 0.0f);
        }
      }
    }
  }

  // copy() copies a unit.
  HWY_INLINE void copy(const Source<Format>& from) const {
    if (width == 1) return copy_positions(from);
    if (args.group_terms == 1 && args.group_lanes == 1) {
      const std::size_t lanes = for_terms(
          from,
          [&](auto d, std::size_t lane, std::size_t pixel, auto value)
              HWY_ATTR { hn::StoreU(value, d, x + places[pixel] + lane); },
          kPixelsAhead);
      if (lanes == args.lanes) return;
    } else if (args.group_terms == args.group_lanes && args.lanes == kWidth &&
               kLanes % args.group_terms == 0) {
      return copy_groups(from);
    }
    for (std::size_t t = 0; t < args.group_terms; ++t) {
      for (std::size_t lane = 0; lane < args.lanes; ++lane) {
        const std::size_t channel =
            lane / args.group_lanes * args.group_terms + t;
        float* const to = x + t * plane + lane;
        for (std::size_t p = 0; p < from.terms; ++p) {
          to[places[p]] = Format::widen(*from.at(channel, p));
        }
      }
    }
  }
  // copy_groups() is copy() if the filters of a vector read as many channels.
  HWY_INLINE void copy_groups(const Source<Format>& from) const {
    const DF df;
    std::int32_t lanes[kWidth][kLanes];
    for (std::size_t t = 0; t < args.group_terms; ++t) {
      for (std::size_t i = 0; i < kLanes; ++i) {
        lanes[t][i] = static_cast<std::int32_t>(
            i / args.group_terms * args.group_terms + t);
      }
    }
    for_terms(
        from,
        [&](auto d, std::size_t lane, std::size_t pixel, auto value) HWY_ATTR {
          if constexpr (hn::MaxLanes(decltype(d)()) == kLanes) {
            float* to = x + places[pixel] + lane;
            for (std::size_t t = 0; t < args.group_terms; ++t, to += plane) {
              hn::StoreU(hn::TableLookupLanes(
                             value, hn::SetTableIndices(df, lanes[t])),
                         df, to);
            }
          }
        },
        kPixelsAhead);
  }
  // copy_positions() is copy() if all filters read the same.
  HWY_INLINE void copy_positions(const Source<Format>& from) const {
    const std::size_t columns = args.columns.in_count();
    for (std::size_t p = 0; p < from.terms; p += columns) {
      const Source<Format> row{from.at(0, p), from.term_step, from.lane_step,
                               columns, args.channels};
      std::size_t copied = 0;
      if (args.columns.in_step == 1) {
        copied = for_terms(row, [&](auto d, std::size_t column, std::size_t t,
                                    auto value) HWY_ATTR {
          hn::StoreU(value, d, x + places[p] + t * plane + column);
        });
      }
      for (std::size_t t = 0; copied < columns && t < args.channels; ++t) {
        for (std::size_t c = copied; c < columns; ++c) {
          x[places[p + c] + t * plane] = Format::widen(*row.at(c, t));
        }
      }
    }
  }
};

// ---- Results

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
          const std::size_t to = begin + ((t ^ 1) < count ? t ^ 1 : t);
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
        for_equal_parts((columns.out_count() - first + divisor - 1) / divisor,
                        [&](std::size_t column, std::size_t count) HWY_ATTR {
                          windows_of<kPosition>(
                              count, std::make_index_sequence<kMostSums>())(
                              of, from + column * kPosition,
                              to + column * of.out_step);
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

// ---- The gradient of a weight

template <class Format>
struct WeightGradient : Image<Format> {
  using Image<Format>::args;
  using Image<Format>::offsets;
  using Image<Format>::x;

  std::uint32_t* begins;
  float* gradient;
  ConvolutionSums* kept;  // of the last position of the band before
  float* kept_x;
  float* sums;

  HWY_INLINE WeightGradient(const ConvolutionArgs& arguments, const Tile& tile)
      : Image<Format>(arguments, tile, true),
        begins(this->template part<std::uint32_t>(this->parts.begins)),
        gradient(this->template part<float>(this->parts.out)),
        kept(partial_result<ConvolutionSums>(tile)),
        kept_x(reinterpret_cast<float*>(kept + 1)),
        sums(kept_x + args.terms * kWidth) {}

  void prepare() const {
    Image<Format>::prepare();
    std::size_t t = 0;
    for (std::int32_t h = 0; h < args.rows.taps; ++h) {
      for (std::int32_t w = 0; w < args.columns.taps; ++w) {
        const std::size_t from =
            this->place(this->position(args.rows, 0, h),
                        this->position(args.columns, 0, w));
        for (std::size_t i = 0; i < args.group_terms; ++i) {
          offsets[t++] = static_cast<std::uint32_t>(from + i * this->plane);
        }
      }
    }
    if (args.lanes == kWidth) return;
    std::fill(gradient, gradient + args.out_pixels() * kWidth, 0.0f);
  }

  // slot() is where a position comes in the chain of a band that begins with
  // the second of a pair (odd = 1) or not.
  HWY_INLINE std::size_t slot(std::size_t position, std::size_t odd) const {
    if (position < odd) return position;
    const std::size_t other = ((position - odd) ^ 1) + odd;
    return other < args.out_pixels() ? other : position;
  }

  HWY_INLINE void set_begins(std::size_t odd) const {
    const auto rows = static_cast<std::size_t>(args.rows.in_step);
    std::size_t position = 0;
    for (std::size_t h = 0; h < args.rows.out_count(); ++h) {
      for (std::size_t w = 0; w < args.columns.out_count(); ++w) {
        begins[slot(position++, odd)] = static_cast<std::uint32_t>(
            this->place(h * rows, 0) + w * this->width);
      }
    }
  }

  HWY_INLINE void copy_gradient(const Source<Format>& from,
                                std::size_t odd) const {
    const std::size_t lanes = for_terms(
        from,
        [&](auto d, std::size_t lane, std::size_t position,
            auto value) HWY_ATTR {
          hn::StoreU(value, d, gradient + slot(position, odd) * kWidth + lane);
        },
        kPixelsAhead);
    for (std::size_t lane = lanes; lane < args.lanes; ++lane) {
      for (std::size_t p = 0; p < from.terms; ++p) {
        gradient[slot(p, odd) * kWidth + lane] =
            Format::widen(*from.at(lane, p));
      }
    }
  }

  // add() adds the positions of a band.
  template <std::size_t kPosition>
  HWY_INLINE void add(std::size_t odd, bool is_last) const {
    const DF df;
    const std::uint32_t* const terms = offsets + args.first_term;
    const auto x_of = [&](std::size_t t, std::size_t position,
                          std::size_t i) HWY_ATTR {
      return ByWindow<kPosition>::set(x + terms[t] + begins[position] +
                                      (kPosition == 1 ? 0 : i));
    };
    if (odd != 0) {
      for (std::size_t t = 0; t < args.terms; ++t) {
        for (std::size_t i = 0; i < kWidth; i += kLanes) {
          float* const at = sums + t * kWidth + i;
          VF sum = exact_fma(df, x_of(t, 0, i), hn::LoadU(df, gradient + i),
                             hn::LoadU(df, at));
          sum = exact_fma(df, hn::LoadU(df, kept_x + t * kWidth + i),
                          hn::LoadU(df, kept->gradient + i), sum);
          hn::StoreU(sum, df, at);
        }
      }
    }
    std::size_t positions = args.out_pixels() - odd;
    const bool keeps = positions % 2 != 0 && !is_last;
    if (keeps) --positions;
    const Gradients of{begins + odd, gradient + odd * kWidth, positions};
    for_equal_parts(args.terms, [&](std::size_t t, std::size_t count) HWY_ATTR {
      weight_sums_of<kPosition>(count, std::make_index_sequence<kMostSums>())(
          of, x, terms + t, sums + t * kWidth);
    });
    if (keeps) {
      const std::size_t last = args.out_pixels() - 1;
      for (std::size_t i = 0; i < kWidth; i += kLanes) {
        hn::StoreU(hn::LoadU(df, gradient + last * kWidth + i), df,
                   kept->gradient + i);
        for (std::size_t t = 0; t < args.terms; ++t) {
          hn::StoreU(x_of(t, last, i), df, kept_x + t * kWidth + i);
        }
      }
    }
    if (!is_last) return;
    for (std::size_t i = 0; i < args.terms * kWidth; i += kLanes) {
      hn::StoreU(nan_to_quiet(hn::LoadU(df, sums + i)), df, sums + i);
    }
  }
};

template <class Format>
HWY_INLINE void convolution_weight(const void* arguments, const Tile& tile,
                                   Result&) {
  using At = ConvolutionWeightOperand;
  using Element = typename Format::Element;
  const auto& args = *static_cast<const ConvolutionArgs*>(arguments);
  const auto* x = operand<const Element>(tile, At::x);
  const auto* g = operand<const Element>(tile, At::g);
  const std::size_t rows = args.rows.out_count(),
                    columns = args.columns.out_count();
  for (std::size_t image = tile.first; image < tile.first + tile.count;
       ++image) {
    const Source<Format> all_x = matrix_of<Format>(
                             x, tile.layout[At::x], args.x_by_channel != 0,
                             args.channels, args.in_pixels()),
                         all_g = matrix_of<Format>(
                             g, tile.layout[At::g], args.out_by_channel != 0,
                             args.lanes, args.out_pixels());
    for (std::size_t row = 0; row < rows; row += args.band_rows) {
      std::size_t x_row;
      const ConvolutionArgs band = args.band(
          row, std::min<std::size_t>(args.band_rows, rows - row), x_row);
      const WeightGradient<Format> weight(band, tile);
      const std::size_t odd = (image * rows + row) * columns % 2;
      // The only band of an image is that of the next one.
      const bool is_ready = image != tile.first && args.band_rows >= rows;
      if (!is_ready) weight.prepare();
      if (!is_ready || rows * columns % 2 != 0) weight.set_begins(odd);
      weight.copy({all_x.at(0, x_row * args.columns.in_count()),
                   all_x.lane_step, all_x.term_step, args.channels,
                   band.in_pixels()});
      weight.copy_gradient({all_g.at(0, row * columns), all_g.lane_step,
                            all_g.term_step, args.lanes, band.out_pixels()},
                           odd);
      const bool is_last =
          image + 1 == args.images && row + args.band_rows >= rows;
      if (weight.width == 1) {
        weight.template add<1>(odd, is_last);
      } else {
        weight.template add<kWidth>(odd, is_last);
      }
    }
    x += tile.layout[At::x].unit_step / sizeof *x;
    g += tile.layout[At::g].unit_step / sizeof *g;
  }
}

}  // namespace

SWAMP_KERNELS(convolution, kUpTo32, convolution<A>)
SWAMP_KERNELS(convolution_weight, kUpTo32, convolution_weight<A>)

}  // namespace swamp::slave::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
