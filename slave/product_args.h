// The arguments of the kernels of matrix products, and the contract of each
// family. Every element of a result is one chain of fused multiply-adds,
//   sum = fma(a_t, b_t, sum), beginning with 0,
// over the terms t in the order 1, 0, 3, 2, 5, 4, ...; a last term without a
// partner comes alone. A chain is never divided: between parts of terms its
// float32 value is stored and loaded. So the bits depend neither on parts,
// slaves and vectors nor on the instruction: the bfloat16 instruction of
// AVX512-BF16 adds the odd product of a pair first, then the even one.
#ifndef SWAMP_SLAVE_PRODUCT_ARGS_H_
#define SWAMP_SLAVE_PRODUCT_ARGS_H_

#include <cstddef>
#include <cstdint>

#include "slave/kernel.h"

namespace swamp::slave {

// ProductLines describes the lines of a unit that is a part of a matrix. A line
// is a row of it, or, if `by_column`, a column.
struct ProductLines {
  std::int64_t step;  // elements from one to the next of a line
  std::uint32_t by_column;
  std::uint32_t reserved;
};

// ProductSteps are distances between elements.
struct ProductSteps {
  std::int64_t row, column;
};

// steps_of() returns the steps in a unit of an operand of a tile.
inline ProductSteps steps_of(const Operand& operand, const ProductLines& lines,
                             std::size_t element_bytes) noexcept {
  const auto line =
      static_cast<std::int64_t>(operand.line_step / element_bytes);
  if (lines.by_column != 0) return {lines.step, line};
  return {line, lines.step};
}

// row_steps_of() returns the steps of a matrix whose rows are the units.
inline ProductSteps row_steps_of(const Operand& operand,
                                 const ProductLines& lines,
                                 std::size_t element_bytes) noexcept {
  return {static_cast<std::int64_t>(operand.unit_step / element_bytes),
          steps_of(operand, lines, element_bytes).column};
}

// product_pack: x (in), panel (out). A unit is a panel: up to kProductLanes
//   columns of b (or rows of a), the lanes, with all their terms, which are the
//   rows of ProductLines. A panel begins with a ProductPanel;
//   then it has, term after term in the order of the sum, `width` floats, which
//   are 0 in the lanes from `lanes` on. With `pairs` (bfloat16 only) the terms
//   2i and 2i + 1 are the lower and upper half of 32 bits; a missing partner is
//   -0 if `width` is kProductLanes (b), else +0 (a), so that its product is -0.
struct ProductPackArgs {
  std::uint64_t terms;
  ProductLines x;
  std::uint32_t lanes, width;  // lanes <= width
  std::uint32_t pairs;
  std::uint32_t reserved;
};
struct ProductPackOperand {
  enum : int { x, panel, count };
};

// product: a (in, rows), b (constant, packed panels of kProductLanes columns
//   and at most block_terms terms; the panels of the same columns follow each
//   other), sums (inout, rows: float32, each kProductLanes a line; absent:
//   none), self (in, rows; absent: none), out (out, rows), a_scales, b_scales
//   (absent: none). A unit is a row of the result: `columns` elements.
//   out = r(alpha * sum + beta * self), rounded to float32 after
//   alpha * sum and after the fma() with beta; a nan is the quiet nan with
//   payload 0. Without self out = r(alpha * sum). If `first` is 0 the chains
//   begin with `sums`; if `last` is 0 they end there, and out is not written.
//   Without sums, both are 1, and there are at most block_terms terms.
//   a_scales (in, rows) has a float32 factor for each scale_terms terms of a
//   row of a, and b_scales (constant, a line of `columns` factors for each
//   scale_terms terms) of a column of b. Each scale_terms terms have a chain of
//   their own, and sum = sum + (factor of a * factor of b) * chain, from 0,
//   where each operation is rounded to float32. If scale_terms is 0, there is
//   one chain, and sum = (factor of a * factor of b) * chain.
//   With row_runs.begins, a (constant) is gathered by the kernel: it is the
//   matrix from its beginning, which never fits into LDM. The first unit of a
//   tensor is row first_row of it, the first term its term first_term.
//   With packed_rows, a (constant) is panels of kMaxProductRows rows of the
//   tensor, from its first on, in as many terms as the panels of b.
// product_rows: the same for few rows or, of float32, few terms, with b (in) as
//   it lies in main memory: a (constant, packed panels of product_rows_width()
//   rows), self, out, a_scales (constant), b_scales (in), of one chain. A unit
//   is kProductLanes columns of the result; the last unit, which tile.first
//   tells, may have fewer.
// scaled_product: a (in, rows of bfloat16), b (constant, a packed panel of
//   kProductLanes columns), sums (inout, rows; absent: none), a_scales (in,
//   rows of float32), b_scales (constant, rows of kProductLanes float32), out
//   (out, rows). A unit is a row of the result: `columns` elements, at most
//   kProductLanes. Operands have so few significant bits that sums of products
//   are exact as doubles, or as two: with `wide` = 1 that of the products of
//   a's elements from kSplit on, and that of the others; with `wide` = 2 that
//   of multiples of kProductUnit, and that of what is left of each product.
//   With s the float32 product of two scales, and inner = f32(the exact sum of
//   a scale block of `block` terms):
//     block = 0: y = s * inner, of all terms and the only scales
//     else: y = y + s * inner, scale block after scale block, from 0; each
//       operation is rounded to float32
//   out = r(factor * y); a nan is the quiet nan with payload 0. If `first` is 0
//   it goes on from `sums`; if `last` is 0 it ends there: kProductLanes floats
//   y, with block = 0 as many doubles, or, if wide, twice as many.
struct ScaledProductArgs {
  std::uint64_t terms;
  std::uint64_t block;  // even; a part ends with a block
  std::uint32_t columns;
  std::uint32_t steps;  // scales of a row
  std::uint32_t wide, first, last;
  float factor;
  std::uint32_t reserved;
};
struct ScaledProductOperand {
  enum : int { a, b, sums, a_scales, b_scales, out, count };
};

struct ProductRuns {
  const std::size_t* begins;  // of runs of `length` neighbours
  std::uint64_t length;

  std::size_t place(std::size_t i) const noexcept {
    return begins[i / length] + i % length;
  }
};

struct ProductArgs {
  std::uint64_t terms;
  std::uint64_t columns;
  ProductLines in, self, out;  // in: of a; product_rows: of b
  // Rows and terms of the part of `a` that is packed into scratch at a time.
  // block_terms is even, and also the terms of a panel of b.
  std::uint32_t block_rows, block_terms;
  float alpha, beta;
  std::uint32_t first, last;
  std::uint32_t pairs;  // b is packed as pairs; the CPU has the instruction
  std::uint32_t rows;   // product_rows
  std::uint32_t packed_rows;  // 1: a is packed
  // Even, and block_terms is a multiple of it; 0: all terms.
  std::uint32_t scale_terms;
  // Element (r, t) of a gathered a is a[row_runs.place(r) +
  // term_runs.place(t)].
  ProductRuns row_runs, term_runs;
  std::uint64_t first_row, first_term;
};
struct ProductOperand {
  enum : int { a, b, sums, self, out, a_scales, b_scales, count };
};
struct ProductRowsOperand {
  enum : int { b, a, self, out, a_scales, b_scales, count };
};

// ProductPanel is the beginning of a packed panel.
struct ProductPanel {
  // The least biased exponent of the values that are not 0; pairs only.
  std::uint32_t least_exponent;
  std::uint32_t reserved[15];
};

inline constexpr std::size_t kProductLanes = 32;
inline constexpr std::size_t kMaxProductRows = 12;  // of a tile in registers
inline constexpr std::size_t kFewProductRows = 8;   // of one panel
inline constexpr std::size_t kProductTileBytes =
    kMaxProductRows * kProductLanes * sizeof(float);

inline constexpr float kSplit = 2;
inline constexpr double kProductUnit = 0x1p-6;   // of scaled_product
inline constexpr std::size_t kScaledTerms = 64;  // converted at a time

// scaled_product_scratch_bytes() is Operation::scratch_bytes of scaled_product:
// terms of some rows as doubles, their sums, and y.
constexpr std::size_t scaled_product_scratch_bytes() noexcept {
  return kMaxProductRows *
         (kScaledTerms * sizeof(double) +
          kProductLanes * (2 * sizeof(double) + sizeof(float)));
}

constexpr std::size_t product_panel_bytes(std::size_t terms, std::size_t width,
                                          bool pairs) noexcept {
  return sizeof(ProductPanel) + (pairs ? (terms + 1) / 2 : terms) * width * 4;
}

// product_packed_bytes() is the bytes of the panels of `width` lanes, each of
// which has block_terms terms, and the last one the rest.
constexpr std::size_t product_packed_bytes(std::size_t terms,
                                           std::size_t block_terms,
                                           std::size_t width,
                                           bool pairs) noexcept {
  const std::size_t whole = terms == 0 ? 0 : (terms - 1) / block_terms;
  return whole * product_panel_bytes(block_terms, width, pairs) +
         product_panel_bytes(terms - whole * block_terms, width, pairs);
}

// product_scratch_bytes() is Operation::scratch_bytes of `product` without
// scale_terms: a tile of sums, the packed rows, whose groups begin with a
// ProductPanel, and gathered elements of gathered_bytes each (0 without
// gather). With scale_terms a second tile follows.
constexpr std::size_t product_scratch_bytes(
    std::size_t block_rows, std::size_t block_terms,
    std::size_t gathered_bytes) noexcept {
  return kProductTileBytes + block_rows * (block_terms + 1) * 4 +
         (block_rows / 2 + 4) * sizeof(ProductPanel) +
         block_rows * block_terms * gathered_bytes;
}

// product_places_bytes() returns the bytes that a gather adds to
// Operation::scratch_bytes of `product`, for the places of the terms. They
// follow the tile of sums.
constexpr std::size_t product_places_bytes(std::size_t terms) noexcept {
  return (terms * sizeof(std::size_t) + 63) / 64 * 64;
}

// product_rows_width() is the width of the packed rows of product_rows.
constexpr std::size_t product_rows_width(std::size_t rows) noexcept {
  return rows > 4 ? kFewProductRows : rows > 2 ? 4 : rows;
}

// product_rows_sums_bytes() is the bytes of the sums of one unit.
constexpr std::size_t product_rows_sums_bytes(std::size_t rows) noexcept {
  const std::size_t width = product_rows_width(rows);
  return (rows + width - 1) / width * width * kProductLanes * sizeof(float);
}

// product_rows_scratch_bytes() is Operation::scratch_bytes of product_rows: the
// sums, and a panel of b.
constexpr std::size_t product_rows_scratch_bytes(
    std::size_t rows, std::size_t block_terms) noexcept {
  return product_rows_sums_bytes(rows) +
         product_panel_bytes(block_terms, kProductLanes, false);
}

// has_bfloat16_pairs() returns whether the kernels of `isa` should be given
// pairs: the CPU has AVX512-BF16, and its instruction computed the bits of two
// fma(), and is faster than they are. It is not on CPUs with AMX: on an Intel
// Granite Rapids it takes as long as four, so products of float32 words take
// 0.65 of the time of pairs.
bool has_bfloat16_pairs(const char* isa) noexcept;

// has_fma() returns whether the kernels of `isa` use the CPU's fused
// multiply-add. Otherwise it is emulated: slave/exact_fma-inl.h.
bool has_fma(const char* isa) noexcept;

}  // namespace swamp::slave

#endif  // SWAMP_SLAVE_PRODUCT_ARGS_H_
