// The scalar references of matrix products: the chain of slave/product_args.h
// in plain loops.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "slave/product_args.h"
#include "slave/reference.h"

namespace swamp::slave::reference {
namespace {

// term_at() is the term that comes i-th in the chain.
std::size_t term_at(std::size_t i, std::size_t terms) {
  return (i ^ 1) < terms ? i ^ 1 : i;
}

template <class Format>
void pack(const void* arguments, const Tile& tile, Result&) {
  using At = ProductPackOperand;
  const auto& args = *static_cast<const ProductPackArgs*>(arguments);
  const auto* x = static_cast<typename Format::Element*>(tile.operands[At::x]);
  auto* panel = static_cast<std::byte*>(tile.operands[At::panel]);
  const ProductSteps at = steps_of(tile.layout[At::x], args.x, sizeof *x);
  const auto value = [&](std::size_t lane, std::size_t term) {
    return x[static_cast<std::int64_t>(term) * at.row +
             static_cast<std::int64_t>(lane) * at.column];
  };
  for (std::size_t unit = 0; unit < tile.count; ++unit) {
    auto& head = *reinterpret_cast<ProductPanel*>(panel);
    head = {args.pairs != 0 ? 0xffu : 0, {}};
    auto* word = reinterpret_cast<std::uint32_t*>(&head + 1);
    const std::size_t step = args.pairs != 0 ? 2 : 1;
    for (std::size_t t = 0; t < args.terms; t += step) {
      for (std::size_t lane = 0; lane < args.width; ++lane, ++word) {
        *word = 0;
        if (lane >= args.lanes) continue;
        if (args.pairs == 0) {
          const float wide = Format::widen(value(lane, term_at(t, args.terms)));
          std::memcpy(word, &wide, sizeof wide);
          continue;
        }
        std::uint32_t half[2] = {static_cast<std::uint32_t>(value(lane, t)),
                                 args.width == kProductLanes ? 0x8000u : 0u};
        if (t + 1 < args.terms) {
          half[1] = static_cast<std::uint32_t>(value(lane, t + 1));
        }
        for (const std::uint32_t bits : half) {
          const std::uint32_t exponent = bits >> 7 & 0xff;
          if ((bits & 0x7fff) != 0 && exponent < head.least_exponent) {
            head.least_exponent = exponent;
          }
        }
        *word = half[1] << 16 | half[0];
      }
    }
    panel += tile.layout[At::panel].unit_step;
    x += tile.layout[At::x].unit_step / sizeof *x;
  }
}

float quiet(float value) {
  return value != value ? std::numeric_limits<float>::quiet_NaN() : value;
}

// result_of() is the rounded result; `self` is null if nothing is added, and
// the scales if there are none.
template <class Out>
typename Out::Element result_of(const ProductArgs& args, float sum,
                                const typename Out::Element* self,
                                const float* a_scale, const float* b_scale) {
  if (a_scale != nullptr) sum = *a_scale * *b_scale * sum;
  float value = args.alpha == 1 ? sum : args.alpha * sum;
  if (self != nullptr) value = std::fma(args.beta, Out::widen(*self), value);
  return Out::narrow(quiet(value));
}

template <class In, class Out>
void product(const void* arguments, const Tile& tile, Result&) {
  using At = ProductOperand;
  const auto& args = *static_cast<const ProductArgs*>(arguments);
  const auto* a = static_cast<typename In::Element*>(tile.operands[At::a]);
  const auto* b = static_cast<std::byte*>(tile.operands[At::b]);
  auto* sums = static_cast<float*>(tile.operands[At::sums]);
  const auto* self =
      static_cast<typename Out::Element*>(tile.operands[At::self]);
  auto* out = static_cast<typename Out::Element*>(tile.operands[At::out]);
  const auto* a_scales = static_cast<float*>(tile.operands[At::a_scales]);
  const auto* b_scales = static_cast<float*>(tile.operands[At::b_scales]);
  const ProductSteps a_at =
                         row_steps_of(tile.layout[At::a], args.in, sizeof *a),
                     self_at = row_steps_of(tile.layout[At::self], args.self,
                                            sizeof *self),
                     out_at = row_steps_of(tile.layout[At::out], args.out,
                                           sizeof *out);
  const bool pairs = args.pairs != 0;
  // Returns a term of lane `lane` of panels that are `width` wide.
  const auto packed = [&](const void* panels, std::size_t width,
                          std::size_t lane, std::size_t term) {
    const std::size_t block = term / args.block_terms;
    const std::size_t first = block * args.block_terms;
    const auto* words = reinterpret_cast<const std::uint32_t*>(
        static_cast<const std::byte*>(panels) +
        lane / width *
            product_packed_bytes(args.terms, args.block_terms, width, pairs) +
        block * product_panel_bytes(args.block_terms, width, pairs) +
        sizeof(ProductPanel));
    const std::size_t place =
        pairs
            ? (term - first) / 2
            : term_at(term - first, std::min<std::size_t>(args.block_terms,
                                                          args.terms - first));
    std::uint32_t word = words[place * width + lane % width];
    if (pairs) word = term % 2 == 0 ? word << 16 : word & 0xffff0000u;
    float value;
    std::memcpy(&value, &word, sizeof value);
    return value;
  };
  for (std::size_t i = 0; i < tile.count; ++i) {
    const auto row = static_cast<std::int64_t>(i);
    for (std::size_t j = 0; j < args.columns; ++j) {
      const auto column = static_cast<std::int64_t>(j);
      float sum = 0;
      float* const kept =
          sums == nullptr
              ? nullptr
              : sums +
                    j / kProductLanes * (tile.layout[At::sums].line_step / 4) +
                    i * kProductLanes + j % kProductLanes;
      if (args.first == 0) sum = *kept;
      float before = sum;  // the scaled chains
      for (std::size_t t = 0; t < args.terms; ++t) {
        if (args.scale_terms != 0 && t % args.scale_terms == 0) sum = 0;
        const std::size_t term = term_at(t, args.terms);
        const std::int64_t at =
            args.row_runs.begins == nullptr
                ? row * a_at.row + static_cast<std::int64_t>(term) * a_at.column
                : static_cast<std::int64_t>(
                      args.row_runs.place(args.first_row + tile.first + i) +
                      args.term_runs.place(args.first_term + term));
        const float left = args.packed_rows != 0 ? packed(a, kMaxProductRows,
                                                          tile.first + i, term)
                                                 : In::widen(a[at]);
        sum = std::fma(left, packed(b, kProductLanes, j, term), sum);
        if (args.scale_terms != 0 &&
            ((t + 1) % args.scale_terms == 0 || t + 1 == args.terms)) {
          const std::size_t step = t / args.scale_terms;
          const float scale =
              a_scales[i * (tile.layout[At::a_scales].unit_step / 4) + step] *
              b_scales[step * (tile.layout[At::b_scales].line_step / 4) + j];
          before = before + scale * sum;
          sum = before;
        }
      }
      if (kept != nullptr) *kept = quiet(sum);
      if (args.last == 0) continue;
      out[row * out_at.row + column * out_at.column] = result_of<Out>(
          args, sum,
          self == nullptr ? nullptr
                          : self + row * self_at.row + column * self_at.column,
          args.scale_terms != 0 || a_scales == nullptr
              ? nullptr
              : a_scales + i * (tile.layout[At::a_scales].unit_step / 4),
          b_scales + j);
    }
  }
}

template <class In, class Out>
void product_rows(const void* arguments, const Tile& tile, Result&) {
  using At = ProductRowsOperand;
  const auto& args = *static_cast<const ProductArgs*>(arguments);
  const auto* b = static_cast<typename In::Element*>(tile.operands[At::b]);
  const auto* self =
      static_cast<typename Out::Element*>(tile.operands[At::self]);
  auto* out = static_cast<typename Out::Element*>(tile.operands[At::out]);
  const auto* a_scales = static_cast<float*>(tile.operands[At::a_scales]);
  const auto* b_scales = static_cast<float*>(tile.operands[At::b_scales]);
  const std::size_t width = product_rows_width(args.rows);
  const std::size_t count = std::min<std::size_t>(
      tile.count * kProductLanes, args.columns - tile.first * kProductLanes);
  // Returns the index of an element of column j of the result.
  const auto place = [&](int s, const ProductLines& lines, std::size_t bytes,
                         std::size_t row, std::size_t j) {
    const ProductSteps at = steps_of(tile.layout[s], lines, bytes);
    return j / kProductLanes * (tile.layout[s].unit_step / bytes) +
           static_cast<std::size_t>(at.row) * row +
           static_cast<std::size_t>(at.column) * (j % kProductLanes);
  };
  for (std::size_t i = 0; i < args.rows; ++i) {
    const auto* const a = reinterpret_cast<const std::uint32_t*>(
        static_cast<const std::byte*>(tile.operands[At::a]) +
        i / width * product_panel_bytes(args.terms, width, args.pairs != 0) +
        sizeof(ProductPanel));
    for (std::size_t j = 0; j < count; ++j) {
      float sum = 0;
      for (std::size_t t = 0; t < args.terms; ++t) {
        const std::size_t term = term_at(t, args.terms);
        std::uint32_t word =
            a[(args.pairs != 0 ? term / 2 : t) * width + i % width];
        if (args.pairs != 0) {
          word = term % 2 == 0 ? word << 16 : word & 0xffff0000u;
        }
        float factor;
        std::memcpy(&factor, &word, sizeof factor);
        sum = std::fma(factor,
                       In::widen(b[place(At::b, args.in, sizeof *b, term, j)]),
                       sum);
      }
      out[place(At::out, args.out, sizeof *out, i, j)] = result_of<Out>(
          args, sum,
          self == nullptr
              ? nullptr
              : self + place(At::self, args.self, sizeof *self, i, j),
          a_scales == nullptr ? nullptr : a_scales + i, b_scales + j);
    }
  }
}

// ExactSum is a sum of products in units of 2^-kUnit.
class ExactSum {
 public:
  static constexpr int kUnit = 60;

  void add(double product) {
    if (product - product != 0) {
      special_ += product;
    } else {
      units_ += static_cast<Integer>(std::ldexp(product, kUnit));
    }
  }
  // rounded() rounds once: the cut-off part is kept as an odd last bit.
  float rounded() const {
    if (special_ != 0) return quiet(static_cast<float>(special_));
    Integer magnitude = units_ < 0 ? -units_ : units_;
    int exponent = -kUnit;
    for (; magnitude >> 53 != 0; ++exponent) {
      magnitude = magnitude >> 1 | (magnitude & 1);
    }
    const double value = std::ldexp(static_cast<double>(magnitude), exponent);
    return static_cast<float>(units_ < 0 ? -value : value);
  }

 private:
  __extension__ using Integer = __int128;
  Integer units_ = 0;
  double special_ = 0;  // inf or nan
};

template <class Out>
void scaled_product(const void* arguments, const Tile& tile, Result&) {
  using At = ScaledProductOperand;
  const auto& args = *static_cast<const ScaledProductArgs*>(arguments);
  const auto* a = static_cast<const std::uint16_t*>(tile.operands[At::a]);
  const auto* b = reinterpret_cast<const float*>(
      static_cast<const std::byte*>(tile.operands[At::b]) +
      sizeof(ProductPanel));
  const auto* a_scales = static_cast<const float*>(tile.operands[At::a_scales]);
  const auto* b_scales = static_cast<const float*>(tile.operands[At::b_scales]);
  auto* out = static_cast<typename Out::Element*>(tile.operands[At::out]);
  const std::size_t a_row = tile.layout[At::a].unit_step / sizeof *a,
                    scale_row =
                        tile.layout[At::a_scales].unit_step / sizeof *a_scales,
                    out_row = tile.layout[At::out].unit_step / sizeof *out;
  const std::size_t block = args.block == 0 ? args.terms : args.block;
  for (std::size_t i = 0; i < tile.count; ++i) {
    for (std::size_t j = 0; j < args.columns; ++j) {
      float y = 0;
      std::size_t t = 0;
      for (std::size_t s = 0; s < args.steps; ++s) {
        ExactSum sum;
        for (; t < std::min<std::size_t>(args.terms, (s + 1) * block); ++t) {
          const float x = BFloat16::widen(a[i * a_row + t]);
          const float z = b[term_at(t, args.terms) * kProductLanes + j];
          sum.add(static_cast<double>(x) * static_cast<double>(z));
        }
        const float scale =
            a_scales[i * scale_row + s] * b_scales[s * kProductLanes + j];
        const float scaled = scale * sum.rounded();
        y = args.block == 0 ? scaled : y + scaled;
      }
      out[i * out_row + j] = Out::narrow(quiet(args.factor * y));
    }
  }
}

}  // namespace

SWAMP_KERNELS(product_pack, kUpTo32, pack<A>)
SWAMP_KERNELS(product, kSameOrWide, product<A, B>)
SWAMP_KERNELS(product_rows, kSameOrWide, product_rows<A, B>)
// Of launches that are both first and last.
SWAMP_KERNELS(scaled_product, kUpTo32, scaled_product<A>)

}  // namespace swamp::slave::reference
