#ifndef SWAMP_MASTER_CLI_MATRIX_H_
#define SWAMP_MASTER_CLI_MATRIX_H_

#include <cstddef>
#include <vector>

namespace swamp::cli {

// Matrix is row-major. Its values are resized, never shrunk to fit.
struct Matrix {
  std::size_t rows = 0;
  std::size_t columns = 0;
  std::vector<float> values;

  void resize(std::size_t row_count, std::size_t column_count) {
    rows = row_count;
    columns = column_count;
    values.resize(row_count * column_count);
  }
  float* row(std::size_t index) { return values.data() + index * columns; }
  const float* row(std::size_t index) const {
    return values.data() + index * columns;
  }
};

// The three products of a linear layer, accumulated in float32. `out` is
// resized. Their bits depend on the sizes alone, not on CPU or threads.
void multiply(const Matrix& a, const Matrix& b, Matrix& out);  // ab
void multiply_left_transposed(const Matrix& a, const Matrix& b, Matrix& out);
void multiply_right_transposed(const Matrix& a, const Matrix& b, Matrix& out);

}  // namespace swamp::cli

#endif  // SWAMP_MASTER_CLI_MATRIX_H_
