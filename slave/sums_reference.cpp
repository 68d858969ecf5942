// The scalar references of the sums over rows and lines, and of affine
// functions of rows: the formulas of slave/row_args.h in plain loops.
#include <vector>

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
  for (std::size_t i = 0; i < tile.count; ++i) {
    const auto* x = row<Format>(tile, At::x, i, args.columns);
    const auto* factor = row<Format>(tile, At::factor, i, args.columns);
    const double shift = shifts == nullptr ? 0 : static_cast<double>(shifts[i]);
    std::vector<double> terms;
    for (std::size_t j = 0; j < args.columns; ++j) {
      const double d = static_cast<double>(Format::widen(x[j])) - shift;
      terms.push_back(factor != nullptr
                          ? d * static_cast<double>(Format::widen(factor[j]))
                      : args.squares != 0 ? d * d
                                          : d);
    }
    static_cast<double*>(tile.operands[At::sum])[i] =
        chain_sum(terms.data(), terms.size(), kWideChains);
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

}  // namespace

SWAMP_KERNELS(row_sums, kUpTo64, row_sums<A>)
SWAMP_KERNELS(column_sums, kSums, column_sums<A, B>)
SWAMP_KERNELS(row_affine, kUpTo32, row_affine<A>)

}  // namespace swamp::slave::reference
