// The arguments of the kernels of direct convolutions, whose groups have too
// few filters for the panels of a matrix product, and the contract of each.
// A result has the bits that the product of windows and weight has
// (product_args.h): one chain of fused multiply-adds over the terms, which are
// ordered by row and column of the kernel, then by channel of the group.
#ifndef SWAMP_SLAVE_CONVOLUTION_ARGS_H_
#define SWAMP_SLAVE_CONVOLUTION_ARGS_H_

#include <cstddef>
#include <cstdint>

#include "slave/kernel.h"

namespace swamp::slave {

inline constexpr std::uint32_t kConvolutionLanes = 16;  // filters of a unit

// ConvolutionAxis is the rows or the columns of a unit. Position k of the
// kernel at position o of the result is at
//   i = (o * in_step + k * tap_step + offset) / divisor
// of x, if that is a whole number; otherwise it has no term. If x has no such
// position, it is 0.
struct ConvolutionAxis {
  std::int32_t in, out, taps;  // positions of x, of the result, of the kernel
  std::int32_t in_step, tap_step, offset, divisor;
  // Positions of the copy in scratch memory, of which x begins at `before`:
  // all i for all o.
  std::int32_t before, positions;

  std::size_t in_count() const noexcept { return static_cast<std::size_t>(in); }
  std::size_t out_count() const noexcept {
    return static_cast<std::size_t>(out);
  }
  // part() returns the axis of `count` positions of the result from `first` on,
  // and sets x_first to the first position of x that it has.
  ConvolutionAxis part(std::int64_t first, std::int64_t count,
                       std::size_t& x_first) const noexcept {
    const std::int64_t reach = std::int64_t{taps - 1} * tap_step;
    const auto index = [&](std::int64_t o, std::int64_t from) {
      const std::int64_t at = o * in_step + offset + from;
      return (at >= 0 ? at : at - divisor + 1) / divisor;
    };
    std::int64_t begin = index(first, reach < 0 ? reach : 0),
                 end = index(first + count - 1, reach > 0 ? reach : 0) + 1;
    const auto within = [](std::int64_t at, std::int64_t low,
                           std::int64_t high) {
      return at < low ? low : at > high ? high : at;
    };
    const std::int64_t x_begin = within(begin, 0, in - 1),
                       x_end = within(end, x_begin + 1, in);
    if (x_begin < begin) begin = x_begin;
    if (x_end > end) end = x_end;
    ConvolutionAxis axis = *this;
    axis.in = static_cast<std::int32_t>(x_end - x_begin);
    axis.out = static_cast<std::int32_t>(count);
    axis.offset =
        static_cast<std::int32_t>(offset + first * in_step - x_begin * divisor);
    axis.before = static_cast<std::int32_t>(x_begin - begin);
    axis.positions = static_cast<std::int32_t>(end - begin);
    x_first = static_cast<std::size_t>(x_begin);
    return axis;
  }
  // slots() is the positions of a row of the copy. Positions in_step apart are
  // neighbours in it.
  std::size_t slots() const noexcept {
    return static_cast<std::size_t>((positions + in_step - 1) / in_step *
                                    in_step);
  }
};

// convolution: x (in: an image, or a part of its rows, of the channels of the
//   filters; constant if all units read the same), weight (in: [lanes, rows,
//   columns, channels of a group]), bias (in: one for each filter; absent:
//   none), out (out: `lanes` filters of the result's positions). A line of x
//   and of out is all channels of a position, or, if by_channel, all positions
//   of a channel. out = r(sum + bias); a nan is the quiet nan with payload 0.
// convolution_weight: x, g (in: `lanes` filters of the gradient of the result).
//   A unit is an image. Its partial result is a ConvolutionSums, then for each
//   of `terms` terms from first_term on kConvolutionLanes float32: the sum over
//   images and positions of the gradient times x. All units of a segment belong
//   to one partial result.
struct ConvolutionArgs {
  ConvolutionAxis rows, columns;
  std::uint32_t lanes;        // filters, at most kConvolutionLanes
  std::uint32_t channels;     // of x: those of all groups of the filters
  std::uint32_t group_lanes;  // filters of a group; `lanes` if there is one
  std::uint32_t group_terms;  // channels of a group
  std::uint32_t x_by_channel, out_by_channel;  // also of g
  // Of convolution_weight: terms, and the rows of the result whose x is copied
  // to scratch memory at a time.
  std::uint32_t first_term, terms, band_rows;
  std::uint32_t reserved;
  std::uint64_t images;  // of a segment

  std::uint32_t all_terms() const noexcept {
    return static_cast<std::uint32_t>(rows.taps * columns.taps) * group_terms;
  }
  std::size_t out_pixels() const noexcept {
    return rows.out_count() * columns.out_count();
  }
  // band() returns the arguments of `count` rows of the result from `first` on,
  // and sets x_first to the first row of x that they have.
  ConvolutionArgs band(std::size_t first, std::size_t count,
                       std::size_t& x_first) const noexcept {
    ConvolutionArgs part = *this;
    part.rows = rows.part(static_cast<std::int64_t>(first),
                          static_cast<std::int64_t>(count), x_first);
    return part;
  }
  std::size_t in_pixels() const noexcept {
    return rows.in_count() * columns.in_count();
  }
  // The floats of a position of the copy of x: its value for each filter, or
  // one if all filters are of a group.
  std::size_t width() const noexcept {
    return group_lanes == lanes ? 1 : kConvolutionLanes;
  }
};
struct ConvolutionOperand {
  enum : int { x, weight, bias, out, count };
};
struct ConvolutionWeightOperand {
  enum : int { x, g, count };
};

// transpose: x (in: `lanes` lines of `terms` elements), out (out: `terms` lines
//   of `lanes` elements). A nan is the quiet nan with
//   payload 0.
struct TransposeArgs {
  std::uint32_t lanes, terms;
};
struct TransposeOperand {
  enum : int { x, out, count };
};

// ConvolutionSums is the beginning of a partial result of convolution_weight.
// The terms of a sum come in pairs, also of two images: if the first of a pair
// is the last position of an image, it is kept here.
struct ConvolutionSums {
  float gradient[kConvolutionLanes];  // of that position
  // Then float x[terms][kConvolutionLanes] of it, and the sums.
};

constexpr std::size_t convolution_partial_bytes(std::size_t terms) noexcept {
  return sizeof(ConvolutionSums) +
         2 * terms * kConvolutionLanes * sizeof(float);
}

// ConvolutionScratch is the offsets in bytes of the parts of scratch memory.
struct ConvolutionScratch {
  std::size_t offsets;  // of terms in the order of the chain, uint32
  std::size_t order;    // places of terms in the chain, uint32
  std::size_t places;   // of positions of x, uint32
  std::size_t begins;   // of windows, uint32: convolution_weight
  std::size_t weight;   // vectors in the order of the chain
  std::size_t x;
  std::size_t out;  // vectors: of the result, or of its gradient
  std::size_t bytes;

  explicit ConvolutionScratch(const ConvolutionArgs& args,
                              bool is_weight) noexcept {
    constexpr std::size_t kVector = kConvolutionLanes * sizeof(float);
    bytes = 0;
    const auto add = [&](std::size_t count, std::size_t each) {
      const std::size_t at = bytes;
      bytes += (count * each + 63) / 64 * 64;
      return at;
    };
    offsets = add(args.all_terms(), 4);
    order = add(is_weight ? 0 : args.all_terms(), 4);
    places = add(args.in_pixels(), 4);
    begins = add(is_weight ? args.out_pixels() : 0, 4);
    weight = add(is_weight ? 1 : args.all_terms() + 1, kVector);
    x = add(static_cast<std::size_t>(args.rows.positions) *
                args.columns.slots() * args.group_terms * args.width(),
            sizeof(float));
    out = add(args.out_pixels(), kVector);
  }
};

}  // namespace swamp::slave

#endif  // SWAMP_SLAVE_CONVOLUTION_ARGS_H_
