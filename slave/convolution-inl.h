// The copy of x of direct convolutions, per target. A slave widens an image, or
// a part of its rows, to a copy in scratch memory that has the zeros around it:
// for each position a vector of what the filters of its lanes read, or, if all
// filters read the same, one float. Rows, columns and the terms are then at
// constant distances, and the sums of some neighbours stay in registers while
// the terms pass, as those of a product. Included once per target, like
// Highway's own -inl.h.
#if defined(SWAMP_SLAVE_CONVOLUTION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SWAMP_SLAVE_CONVOLUTION_INL_H_
#undef SWAMP_SLAVE_CONVOLUTION_INL_H_
#else
#define SWAMP_SLAVE_CONVOLUTION_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <utility>

#include "slave/batch-inl.h"
#include "slave/convolution_args.h"
#include "slave/exact_fma-inl.h"
#include "slave/formats-inl.h"
#include "slave/product_tile-inl.h"
#include "slave/transpose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace swamp::slave::HWY_NAMESPACE {
namespace {  // g++ inlines the lambdas of local functions only

using DF = hn::ScalableTag<float>;
using VF = hn::Vec<DF>;
constexpr std::size_t kLanes = hn::MaxLanes(DF());
constexpr std::size_t kWidth = kConvolutionLanes;
// Prefetched: a position takes few cycles, and the next may be far.
constexpr std::size_t kPixelsAhead = 32;
constexpr std::size_t kMostSums = kTileRows < 6            ? kTileRows
                                  : HWY_TARGET == HWY_AVX3 ? 28
                                                           : 12;

// ByWindow multiplies weights, or a gradient, by the values at an address:
// kWidth 1 is one for all lanes.
template <std::size_t kPosition>
struct ByWindow : ByFma {
  static HWY_INLINE V set(const float* x) {
    return kPosition == 1 ? hn::Set(D(), *x) : hn::LoadU(D(), x);
  }
};

// for_equal_parts() calls visit(first, count) for parts of at most kMost.
template <std::size_t kMost, class Visit>
HWY_INLINE void for_equal_parts(std::size_t count, const Visit& visit) {
  for (std::size_t parts = (count + kMost - 1) / kMost, first = 0; parts != 0;
       --parts) {
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
  // position() returns the row or column of the copy of a position of the
  // result and the kernel.
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
    const bool all = width != 1 && args.lanes != kWidth;
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
        std::size_t c = copied;
#if HWY_TARGET != HWY_SCALAR
        if (args.columns.in_step == 2 && row.lane_step == 1) {
          const DF df;
          for (; c + 2 * kLanes <= columns; c += 2 * kLanes) {
            const VF low = Format::load(df, row.at(c, t)),
                     high = Format::load(df, row.at(c + kLanes, t));
            float* const to = x + t * plane;
            hn::StoreU(hn::ConcatEven(df, high, low), df, to + places[p + c]);
            hn::StoreU(hn::ConcatOdd(df, high, low), df,
                       to + places[p + c + 1]);
          }
        }
#endif
        for (; c < columns; ++c) {
          x[places[p + c] + t * plane] = Format::widen(*row.at(c, t));
        }
      }
    }
  }
};

}  // namespace
}  // namespace swamp::slave::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // SWAMP_SLAVE_CONVOLUTION_INL_H_
