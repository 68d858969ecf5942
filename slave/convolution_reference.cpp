// The scalar references of direct convolutions: the chains of
// slave/convolution_args.h in plain loops.
#include <cmath>
#include <limits>
#include <vector>

#include "slave/convolution_args.h"
#include "slave/reference.h"

namespace swamp::slave::reference {
namespace {

float quiet(float value) {
  return value != value ? std::numeric_limits<float>::quiet_NaN() : value;
}

// at() is an element of a unit.
template <class Element>
Element& at(Element* unit, const Operand& layout, bool by_channel,
            std::size_t channel, std::size_t position) {
  const std::size_t line = layout.line_step / sizeof(Element);
  return unit[by_channel ? channel * line + position
                         : position * line + channel];
}

// index_of() is the position of x of a position of the result and the kernel.
// Returns false if there is no term.
bool index_of(const ConvolutionAxis& axis, std::int32_t o, std::int32_t k,
              std::int32_t& index) {
  const std::int32_t from = o * axis.in_step + k * axis.tap_step + axis.offset;
  index = from / axis.divisor;
  return from % axis.divisor == 0;
}

// x_at() is x, or 0 around it.
template <class Format>
float x_at(const ConvolutionArgs& args, const typename Format::Element* x,
           const Operand& layout, std::size_t lane, std::size_t term,
           std::int32_t row, std::int32_t column) {
  if (row < 0 || row >= args.rows.in || column < 0 ||
      column >= args.columns.in) {
    return 0;
  }
  return Format::widen(
      at(x, layout, args.x_by_channel != 0,
         lane / args.group_lanes * args.group_terms + term,
         static_cast<std::size_t>(row * args.columns.in + column)));
}

std::size_t term_at(std::size_t i, std::size_t terms) {
  return (i ^ 1) < terms ? i ^ 1 : i;
}

struct Factor {
  float x, weight;
};
float chain(const std::vector<Factor>& factors) {
  float sum = 0;
  for (std::size_t i = 0; i < factors.size(); ++i) {
    const Factor& one = factors[term_at(i, factors.size())];
    sum = std::fma(one.x, one.weight, sum);
  }
  return quiet(sum);
}

template <class Format>
void convolution(const void* arguments, const Tile& tile, Result&) {
  using At = ConvolutionOperand;
  using Element = typename Format::Element;
  const auto& args = *static_cast<const ConvolutionArgs*>(arguments);
  const auto* x = static_cast<const Element*>(tile.operands[At::x]);
  const auto* weight = static_cast<const Element*>(tile.operands[At::weight]);
  const auto* bias = static_cast<const Element*>(tile.operands[At::bias]);
  auto* out = static_cast<Element*>(tile.operands[At::out]);
  for (std::size_t unit = 0; unit < tile.count; ++unit) {
    for (std::size_t lane = 0; lane < args.lanes; ++lane) {
      for (std::int32_t row = 0; row < args.rows.out; ++row) {
        for (std::int32_t column = 0; column < args.columns.out; ++column) {
          std::vector<Factor> factors;
          std::size_t term = lane * args.all_terms();
          for (std::int32_t h = 0; h < args.rows.taps; ++h) {
            for (std::int32_t w = 0; w < args.columns.taps; ++w) {
              std::int32_t r, c;
              const bool has_row = index_of(args.rows, row, h, r);
              const bool has_term =
                  index_of(args.columns, column, w, c) && has_row;
              for (std::size_t t = 0; t < args.group_terms; ++t, ++term) {
                if (!has_term) continue;
                factors.push_back(
                    {x_at<Format>(args, x, tile.layout[At::x], lane, t, r, c),
                     Format::widen(weight[term])});
              }
            }
          }
          float value = chain(factors);
          if (bias != nullptr) value = quiet(value + Format::widen(bias[lane]));
          at(out, tile.layout[At::out], args.out_by_channel != 0, lane,
             static_cast<std::size_t>(row * args.columns.out + column)) =
              Format::narrow(value);
        }
      }
    }
    x += tile.layout[At::x].unit_step / sizeof *x;
    weight += tile.layout[At::weight].unit_step / sizeof *weight;
    if (bias != nullptr) bias += tile.layout[At::bias].unit_step / sizeof *bias;
    out += tile.layout[At::out].unit_step / sizeof *out;
  }
}

// The tile has all images.
template <class Format>
void convolution_weight(const void* arguments, const Tile& tile, Result&) {
  using At = ConvolutionWeightOperand;
  using Element = typename Format::Element;
  const auto& args = *static_cast<const ConvolutionArgs*>(arguments);
  const auto* const x = static_cast<const Element*>(tile.operands[At::x]);
  const auto* const g = static_cast<const Element*>(tile.operands[At::g]);
  const Operand &x_layout = tile.layout[At::x], &g_layout = tile.layout[At::g];
  float* const sums = reinterpret_cast<float*>(
                          static_cast<ConvolutionSums*>(tile.partial) + 1) +
                      args.terms * kConvolutionLanes;
  for (std::size_t t = 0; t < args.terms; ++t) {
    const std::size_t term = args.first_term + t;
    const auto tap = static_cast<std::int32_t>(term / args.group_terms);
    for (std::size_t lane = 0; lane < args.lanes; ++lane) {
      std::vector<Factor> factors;
      for (std::size_t unit = 0; unit < tile.count; ++unit) {
        for (std::int32_t row = 0; row < args.rows.out; ++row) {
          for (std::int32_t column = 0; column < args.columns.out; ++column) {
            std::int32_t r, c;
            index_of(args.rows, row, tap / args.columns.taps, r);
            index_of(args.columns, column, tap % args.columns.taps, c);
            factors.push_back(
                {x_at<Format>(args, x + unit * x_layout.unit_step / sizeof *x,
                              x_layout, lane, term % args.group_terms, r, c),
                 Format::widen(at(g + unit * g_layout.unit_step / sizeof *g,
                                  g_layout, args.out_by_channel != 0, lane,
                                  static_cast<std::size_t>(
                                      row * args.columns.out + column)))});
          }
        }
      }
      sums[t * kConvolutionLanes + lane] = chain(factors);
    }
  }
}

template <class Format>
void transpose(const void* arguments, const Tile& tile, Result&) {
  using At = TransposeOperand;
  using Element = typename Format::Element;
  const auto& args = *static_cast<const TransposeArgs*>(arguments);
  const Operand &from = tile.layout[At::x], &to = tile.layout[At::out];
  auto* const x = static_cast<Element*>(tile.operands[At::x]);
  auto* const out = static_cast<Element*>(tile.operands[At::out]);
  for (std::size_t i = 0; i < tile.count; ++i) {
    for (std::size_t lane = 0; lane < args.lanes; ++lane) {
      for (std::size_t t = 0; t < args.terms; ++t) {
        at(out + i * to.unit_step / sizeof *out, to, false, lane, t) =
            Format::narrow(quiet(Format::widen(
                at(x + i * from.unit_step / sizeof *x, from, true, lane, t))));
      }
    }
  }
}

}  // namespace

SWAMP_KERNELS(convolution, kUpTo32, convolution<A>)
SWAMP_KERNELS(transpose, kUpTo32, transpose<A>)
SWAMP_KERNELS(convolution_weight, kUpTo32, convolution_weight<A>)

}  // namespace swamp::slave::reference
