/// @file
/// Matrix products of float32, bfloat16 and float16, with float32 sums and one
/// rounding at the end. Every element is one chain of fused multiply-adds in a
/// fixed order of its terms (slave/product_args.h), so the results have the
/// same bits on every machine: any number of slaves, any LDM, transfer mode and
/// ISA, with and without the CPU's bfloat16 instruction.
#ifndef SWAMP_PRODUCT_H_
#define SWAMP_PRODUCT_H_

#include <cstddef>

#include "swamp/export.h"
#include "swamp/machine.h"
#include "swamp/tensor.h"

namespace swamp {

/// Matrices is a batch of `batch` matrices of the same shape. Element (r, c) of
/// matrix i is data[i * batch_step + r * row_step + c * column_step]; steps are
/// in elements, those of rows and columns at most kMaxStep, and may be 0, which
/// repeats an element, unless the matrices are written. A transpose has the two
/// steps exchanged. The caller owns the memory.
struct Matrices {
  /// Of rows and columns: the bytes of a step are 32-bit.
  static constexpr std::size_t kMaxStep = std::size_t{1} << 29;

  void* data = nullptr;         ///< of the first element
  std::size_t batch = 1;        ///< number of matrices
  std::size_t rows = 0;         ///< of each
  std::size_t columns = 0;      ///< of each
  std::size_t batch_step = 0;   ///< between matrices
  std::size_t row_step = 0;     ///< between the rows of a matrix
  std::size_t column_step = 1;  ///< between its columns
  ScalarType dtype = kFloat32;  ///< float16, bfloat16 or float32

  /// Returns matrices that lie one after another, row by row.
  static Matrices dense(void* data, std::size_t batch, std::size_t rows,
                        std::size_t columns, ScalarType dtype) noexcept {
    return {data, batch, rows, columns, rows * columns, columns, 1, dtype};
  }
  /// Returns the transposes of the matrices.
  Matrices transposed() const noexcept {
    return {data,       batch,       columns,  rows,
            batch_step, column_step, row_step, dtype};
  }
};

/// Runs are the places of the rows or the columns of a gathered matrix, which
/// lie in runs of `length` neighbours: index i is at begins[i / length] +
/// i % length. The caller owns the memory.
struct Runs {
  const std::size_t* begins = nullptr;  ///< in elements; one for each run
  std::size_t length = 1;               ///< at least 1
};

/// Gather describes matrices whose elements are not at fixed steps, such as the
/// windows of a convolution: element (r, c) of matrix i is data[i * batch_step
/// + place of row r + place of column c]. Elements may be read several times,
/// and what lies between the first and the last element of a matrix may be
/// read.
struct Gather {
  Runs rows;     ///< places of the rows
  Runs columns;  ///< places of the columns; length 1 in one of the two
  /// Without `begins` the rows of b are at steps. Otherwise row r is at
  /// begins[r / length] + r % length * b.row_step. The length is even; there is
  /// one begin for each run; the last run may have fewer rows.
  Runs b_rows = {};
};

/// PartialSums continues a product whose terms are divided between several
/// calls, in their order: with the same `data`, the calls give together the
/// bits of one product of all terms. All calls have the same shape of out, and
/// each except the last has an even number of terms.
struct PartialSums {
  /// product_sums_count() values, which a call leaves for the next one, on any
  /// machine; their layout is not specified.
  float* data = nullptr;
  bool begins = true;  ///< whether the sums begin with 0, not with `data`
  bool ends = true;    ///< whether out is written; otherwise it is ignored
};

/// product_sums_count returns the number of PartialSums of a product.
constexpr std::size_t product_sums_count(std::size_t rows,
                                         std::size_t columns) noexcept {
  return (columns + 31) / 32 * 32 * rows;
}

/// ProductScales are factors of the blocks of a and b, which are `terms`
/// neighbours in a row of a and in a column of b; the last block may have
/// fewer. The sum of a * b is then one of sum = sum + (factor of a * factor of
/// b) * (sum of the terms of a block), from 0, block after block; each
/// operation is rounded to float32. So Transformer Engine's and DeepSeek's
/// kernels multiply codes with float32 scales. A block of all terms has the sum
/// (factor of a * factor of b) * (sum of the terms).
struct ProductScales {
  const float* a = nullptr;  ///< [rows of a, blocks], row after row
  const float* b = nullptr;  ///< [blocks, columns of b], row after row
  std::size_t terms = 0;  ///< of a block; even, at most kMaxTerms; 0: all terms

  /// Of a block.
  static constexpr std::size_t kMaxTerms = 128;

  /// Returns the number of blocks of `count` terms.
  constexpr std::size_t blocks(std::size_t count) const noexcept {
    return terms == 0 ? 1 : (count + terms - 1) / terms;
  }
};

/// The options of BLAS's gemm, a bias that is added, a gather, and scales.
struct ProductOptions {
  float alpha = 1;  ///< factor of a * b
  float beta = 1;   ///< factor of self
  /// Added to the product, of the shape and dtype of out; a bias has row_step
  /// 0. It may be the same matrices as out. Nothing is added if it is null.
  const Matrices* self = nullptr;
  /// Where the elements of a are: row_step and column_step of a are not used,
  /// and nothing checks that the places are in a's memory. At steps if null.
  const Gather* gather = nullptr;
  /// Sums of earlier and for later terms. Only of batch 1 and without a gather.
  const PartialSums* sums = nullptr;
  /// Factors of blocks. Only of batch 1, without a gather and partial sums.
  const ProductScales* scales = nullptr;
};

/// product sets out to round(alpha * (a * b) + beta * self), for each matrix of
/// a batch. The sum of a * b begins with 0 and is rounded to float32 after each
/// fma(); alpha * sum and fma(beta, self, alpha * sum) are rounded to float32,
/// and the result to the dtype of out. All nan are the quiet nan without
/// payload. Without terms (a.columns is 0) the sum is 0.
///
/// A null machine is the default machine. Outputs must not overlap anything.
/// Everything is checked before the first write. Any thread may call, also
/// several at once on one machine. Error is thrown for bad arguments (also if a
/// step of out is not larger than the extent of the dimensions with smaller
/// steps), with SWAMP_UNSUPPORTED if the machine's LDM is too small, and with
/// SWAMP_OUT_OF_MEMORY if packed copies cannot be allocated: about 16 MiB of a
/// factor; with more than 8 slaves 32 MiB of the other one; of products with many
/// terms, 32 MiB of float32 sums (of each 512 KiB for each slave, if that is
/// more); of a gathered a, unless transfers are
/// views, a copy of at most 1024 rows.
///
/// @param[out] out [rows of a, columns of b]; dtype that of a, or float32
/// @param a the left factors
/// @param b the right factors, with as many rows as a has columns; dtype of a
/// @param options factors, added arrays, gather, scales
/// @param machine where to run; null: the default machine
SWAMP_API void product(const Matrices& out, const Matrices& a,
                       const Matrices& b, const ProductOptions& options = {},
                       Machine* machine = nullptr);

/// is_product_fast returns whether the kernels of a machine have the CPU's
/// fused multiply-add. Without it, on SSE and scalar ISAs, product() computes
/// the same bits by an exact emulation that is about 70 times slower.
///
/// @param machine null: the default machine
SWAMP_API bool is_product_fast(Machine* machine = nullptr);

}  // namespace swamp

#endif  // SWAMP_PRODUCT_H_
