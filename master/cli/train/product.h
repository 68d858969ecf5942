#ifndef SWAMP_MASTER_CLI_TRAIN_PRODUCT_H_
#define SWAMP_MASTER_CLI_TRAIN_PRODUCT_H_

#include <cstddef>
#include <string>

namespace swamp::cli {

// Factor is a matrix that is read: all or a part of an array, or the transpose
// of that. Element (r, c) is data[r * row_step + c * column_step].
struct Factor {
  const float* data;
  std::size_t rows;
  std::size_t columns;
  std::size_t row_step;
  std::size_t column_step;
};

inline Factor transposed(const Factor& factor) {
  return {factor.data, factor.columns, factor.rows, factor.column_step,
          factor.row_step};
}

// Place is a matrix that is written: element (r, c) is data[r * row_step + c].
struct Place {
  float* data;
  std::size_t rows;
  std::size_t columns;
  std::size_t row_step;

  operator Factor() const { return {data, rows, columns, row_step, 1}; }
};

// Product computes out = left * right in float32. The shapes must match, and
// `out` must not overlap the factors.
//
// The order of the sums, and so every bit, is the same on every CPU: that of
// Eigen 3.4 on x86-64 with SSE2 only, by which earlier versions computed. With
// p_k = left(i, k) * right(k, j), out(i, j) is ((p_0 + p_1) + p_2) + ... Each
// product and each sum is rounded: there is no fused multiply-add. More than
// 680 terms are added in blocks, whose sums are then added in their order;
// block_terms() in product.cpp is the length of a block.
class Product {
 public:
  // `isa` is a value of SWAMP_ISA that this CPU can run.
  explicit Product(const std::string& isa);

  void operator()(const Factor& left, const Factor& right,
                  const Place& out) const;

 private:
  void (*multiply_)(const Factor& left, const Factor& right, const Place& out,
                    bool add);
};

// product_of_8() and product_of_16() compute out = left * right, of so many
// terms, with the orders of sums that Eigen had for products of fixed size:
//   of 8: ((p_0 + p_4) + (p_2 + p_6)) + ((p_1 + p_5) + (p_3 + p_7))
//   of 16: a binary tree, first of neighbours: p_0 + p_1, p_2 + p_3, ...
// The columns of the right factor of product_of_16() must be consecutive.
void product_of_8(const Factor& left, const Factor& right, const Place& out);
void product_of_16(const Factor& left, const Factor& right, const Place& out);

}  // namespace swamp::cli

#endif  // SWAMP_MASTER_CLI_TRAIN_PRODUCT_H_
