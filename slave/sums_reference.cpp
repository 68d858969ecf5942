// The scalar references of the sums over rows and lines, of affine functions of
// rows and of those of two operands: the formulas of slave/row_args.h in plain
// loops.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "slave/pointwise_args.h"
#include "slave/reference.h"
#include "slave/row_args.h"

namespace swamp::slave::reference {
namespace {

template <class Format>
const typename Format::Element* row(const Tile& tile, int s, std::size_t i,
                                    std::size_t columns) {
  const auto* data =
      static_cast<const typename Format::Element*>(tile.operands[s]);
  return data == nullptr ? nullptr : data + i * columns;
}

template <class Format>
void row_sums(const void* arguments, const Tile& tile, Result&) {
  using At = RowSumsOperand;
  const auto& args = *static_cast<const RowSumsArgs*>(arguments);
  const auto* shifts = static_cast<const float*>(tile.operands[At::shift]);
  auto* factor_sums = static_cast<double*>(tile.operands[At::factor_sum]);
  for (std::size_t i = 0; i < tile.count; ++i) {
    const auto* x = row<Format>(tile, At::x, i, args.columns);
    const auto* factor = row<Format>(tile, At::factor, i, args.columns);
    const double shift = shifts == nullptr ? 0 : static_cast<double>(shifts[i]);
    auto& sum = static_cast<double*>(tile.operands[At::sum])[i];
    if (args.term >= RowSumsArgs::largest) {
      const bool is_largest = args.term == RowSumsArgs::largest;
      const double infinity = std::numeric_limits<double>::infinity();
      sum = is_largest ? -infinity : infinity;
      for (std::size_t j = 0; j < args.columns && !std::isnan(sum); ++j) {
        const auto one = static_cast<double>(Format::widen(x[j]));
        // The zero that is positive is larger.
        const bool is_other_zero =
            one == sum && std::signbit(sum) == is_largest;
        if (std::isnan(one) || (is_largest ? one > sum : one < sum) ||
            is_other_zero) {
          sum =
              std::isnan(one) ? std::numeric_limits<double>::quiet_NaN() : one;
        }
      }
      continue;
    }
    if (args.term >= RowSumsArgs::narrow_plain) {
      std::vector<float> terms;
      for (std::size_t j = 0; j < args.columns; ++j) {
        const auto value = static_cast<float>(Format::widen(x[j]));
        float term = value;
        if (args.term == RowSumsArgs::narrow_loss) {
          const float e =
              std::fabs(value - static_cast<float>(Format::widen(factor[j])));
          const float m = args.limit < e ? args.limit : e;
          const float rest = e - 0.5f * m;
          term = m * rest;
        }
        terms.push_back(term);
      }
      sum = static_cast<double>(chain_sum(terms.data(), terms.size(), kChains));
      continue;
    }
    std::vector<double> terms;
    for (std::size_t j = 0; j < args.columns; ++j) {
      const double d = static_cast<double>(Format::widen(x[j])) - shift;
      const double by =
          factor == nullptr ? 0 : static_cast<double>(Format::widen(factor[j]));
      const double e = std::fabs(d - by);
      const double m = std::min(e, static_cast<double>(args.limit));
      terms.push_back(args.term == RowSumsArgs::product  ? d * by
                      : args.term == RowSumsArgs::square ? d * d
                      : args.term == RowSumsArgs::loss   ? m * (e - 0.5 * m)
                                                         : d);
    }
    sum = chain_sum(terms.data(), terms.size(), kWideChains);
    if (factor_sums == nullptr) continue;
    for (std::size_t j = 0; j < args.columns; ++j) {
      terms[j] = static_cast<double>(Format::widen(factor[j]));
    }
    factor_sums[i] = chain_sum(terms.data(), terms.size(), kWideChains);
  }
}

template <class Format, class Sum>
void column_sums(const void*, const Tile& tile, Result&) {
  using At = ColumnSumsOperand;
  const Operand& layout = tile.layout[At::x];
  const auto* x = static_cast<const std::byte*>(tile.operands[At::x]);
  auto* sums = static_cast<typename Sum::Element*>(tile.operands[At::sum]);
  for (std::size_t i = 0; i < tile.count; ++i) {
    double sum = 0;
    for (std::size_t line = 0; line < layout.lines(); ++line) {
      sum += static_cast<double>(
          Format::widen(*reinterpret_cast<const typename Format::Element*>(
              x + line * layout.line_step + i * layout.unit_step)));
    }
    sums[i] = static_cast<typename Sum::Element>(sum);
  }
}

// The reference of a family for columns of lines is that for rows, of a copy of
// a column.
template <class Element>
std::vector<Element> column_of(const Tile& tile, int s, std::size_t i) {
  std::vector<Element> column;
  const auto* x = static_cast<const std::byte*>(tile.operands[s]);
  if (x == nullptr) return column;
  const Operand& layout = tile.layout[s];
  for (std::size_t line = 0; line < layout.lines(); ++line) {
    column.push_back(*reinterpret_cast<const Element*>(
        x + line * layout.line_step + i * layout.unit_step));
  }
  return column;
}

template <class T>
T* data_or_null(std::vector<T>& values) {
  return values.empty() ? nullptr : values.data();
}

template <class Format>
void channel_sums(const void* arguments, const Tile& tile, Result& result) {
  using At = ChannelSumsOperand;
  using Element = typename Format::Element;
  const auto& args = *static_cast<const ChannelSumsArgs*>(arguments);
  auto* const shifts = static_cast<float*>(tile.operands[At::shift]);
  auto* const sums = static_cast<double*>(tile.operands[At::sum]);
  auto* const factor_sums = static_cast<double*>(tile.operands[At::factor_sum]);
  Tile row = tile;
  row.count = 1;
  for (std::size_t i = 0; i < tile.count; ++i) {
    std::vector<Element> x = column_of<Element>(tile, At::x, i),
                         factor = column_of<Element>(tile, At::factor, i);
    const RowSumsArgs of{x.size(), args.term, 0};
    void* operands[] = {x.data(), data_or_null(factor),
                        shifts == nullptr ? nullptr : shifts + i, sums + i,
                        factor_sums == nullptr ? nullptr : factor_sums + i};
    row.operands = operands;
    row_sums<Format>(&of, row, result);
  }
}

template <class Format>
void row_affine(const void* arguments, const Tile& tile, Result&) {
  using At = RowAffineOperand;
  const std::size_t columns =
      static_cast<const RowAffineArgs*>(arguments)->columns;
  for (std::size_t i = 0; i < tile.count; ++i) {
    const auto& factors =
        static_cast<const RowFactors*>(tile.operands[At::factors])[i];
    const auto* x = row<Format>(tile, At::x, i, columns);
    const auto* gradient = row<Format>(tile, At::gradient, i, columns);
    auto* y = static_cast<typename Format::Element*>(tile.operands[At::y]) +
              i * columns;
    for (std::size_t j = 0; j < columns; ++j) {
      const float product =
          (Format::widen(x[j]) - factors.shift) * factors.x_factor;
      float value = product + factors.addend;
      if (gradient != nullptr) {
        const float first =
            Format::widen(gradient[j]) * factors.gradient_factor;
        value = first + value;
      }
      y[j] = Format::narrow(value);
    }
  }
}

template <class Format>
void channel_affine(const void*, const Tile& tile, Result& result) {
  using At = RowAffineOperand;
  using Element = typename Format::Element;
  auto* const factors = static_cast<RowFactors*>(tile.operands[At::factors]);
  const Operand& layout = tile.layout[At::y];
  Tile row = tile;
  row.count = 1;
  for (std::size_t i = 0; i < tile.count; ++i) {
    std::vector<Element> x = column_of<Element>(tile, At::x, i),
                         gradient = column_of<Element>(tile, At::gradient, i),
                         y(x.size());
    const RowAffineArgs args{x.size()};
    void* operands[] = {x.data(), data_or_null(gradient), factors + i,
                        y.data()};
    row.operands = operands;
    row_affine<Format>(&args, row, result);
    auto* to = static_cast<std::byte*>(tile.operands[At::y]);
    for (std::size_t line = 0; line < y.size(); ++line) {
      *reinterpret_cast<Element*>(to + line * layout.line_step +
                                  i * layout.unit_step) = y[line];
    }
  }
}

// pointwise_value() is f(x, z, w), each operation rounded to float32.
float pointwise_value(const PointwiseArgs& args, float x, float z, float w) {
  using A = PointwiseArgs;
  const auto limited = [](float value, float low, float high) {
    const float raised = value < low ? low : value;
    return high < raised ? high : raised;
  };
  const float shifted = x + 3;
  const float hard = limited(shifted, 0, 6);
  switch (args.function) {
    case A::clamp:
      return limited(x, args.alpha, args.beta);
    case A::hard_swish: {
      const float product = x * hard;
      return product / 6;
    }
    case A::hard_sigmoid:
      return hard / 6;
    case A::leaky_relu:
      return 0 < x ? x : x * args.alpha;
    case A::affine: {
      const float product = x * args.alpha;
      return product + args.beta;
    }
    case A::product:
      return x * z;
    case A::sum: {
      const float first = x * args.alpha, second = z * args.beta;
      return first + second;
    }
    case A::difference:
    case A::difference_by: {
      const float d = limited(x - z, -args.gamma, args.gamma);
      const float product = d * args.alpha;
      return product * (args.function == A::difference ? args.beta : w);
    }
    case A::maximum:
      return x > z || std::isnan(x) ? x : z;
    case A::minimum:
      return x < z || std::isnan(x) ? x : z;
    case A::lerp:
    case A::lerp_by: {
      const float by = args.function == A::lerp ? args.alpha : w;
      const float step = z - x;
      const bool is_near = std::fabs(by) < 0.5f;
      const float rest = 1 - by;
      const float part = step * (is_near ? by : rest);
      return is_near ? x + part : z - part;
    }
    case A::sum_of_product: {
      const float product = z * args.alpha;
      const float part = product * w;
      return x + part;
    }
    case A::sum_of_quotient: {
      const float product = z * args.alpha;
      const float part = product / w;
      return x + part;
    }
    case A::loss: {
      const float d = std::fabs(x - z);
      const float m = args.gamma < d ? args.gamma : d;
      const float rest = d - m * 0.5f;
      const float product = m * args.alpha;
      return product * rest;
    }
    case A::scaled_relu:
      return 0 < x ? x : x * z;
    case A::above:
      return x <= args.alpha ? 0 : z;
    case A::between:
      return args.alpha < x && x < args.beta ? z * args.gamma : 0;
    default:
      return 0 < x ? z : z * args.alpha;
  }
}

template <class Format>
void pointwise(const void* arguments, const Tile& tile, Result&) {
  using At = PointwiseOperand;
  const auto& args = *static_cast<const PointwiseArgs*>(arguments);
  const std::size_t columns = args.columns;
  const auto* values = static_cast<const float*>(tile.operands[At::value]);
  const auto* line = row<Format>(tile, At::line, 0, columns);
  for (std::size_t i = 0; i < tile.count; ++i) {
    const auto* x = row<Format>(tile, At::x, i, columns);
    const auto* z =
        line == nullptr ? row<Format>(tile, At::z, i, columns) : line;
    const auto* w = row<Format>(tile, At::w, i, columns);
    if (x == nullptr) x = line;
    auto* y = static_cast<typename Format::Element*>(tile.operands[At::y]) +
              i * columns;
    for (std::size_t j = 0; j < columns; ++j) {
      const float second = values != nullptr ? values[i]
                           : z != nullptr    ? Format::widen(z[j])
                                             : 0;
      const float third = w != nullptr ? Format::widen(w[j]) : 0;
      y[j] = Format::narrow(
          pointwise_value(args, Format::widen(x[j]), second, third));
    }
  }
}

}  // namespace

SWAMP_KERNELS(channel_sums, kUpTo32, channel_sums<A>)
SWAMP_KERNELS(channel_affine, kUpTo32, channel_affine<A>)
SWAMP_KERNELS(row_sums, kUpTo64, row_sums<A>)
SWAMP_KERNELS(column_sums, kSums, column_sums<A, B>)
SWAMP_KERNELS(row_affine, kUpTo32, row_affine<A>)
SWAMP_KERNELS(pointwise, kHalf, pointwise<A>)

}  // namespace swamp::slave::reference
