// The only place where Eigen is used.
#include "master/cli/matrix.h"

#include <Eigen/Core>

namespace swamp::cli {
namespace {

using Dense =
    Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

// fix_blocking() ends Eigen's look at the CPU's caches: the blocks of a product
// decide the order of its sums, and so its bits.
bool fix_blocking() {
  Eigen::setCpuCacheSizes(32 << 10, 512 << 10, 4 << 20);
  return true;
}

Eigen::Map<const Dense> view(const Matrix& matrix) {
  static const bool fixed = fix_blocking();
  static_cast<void>(fixed);
  return {matrix.values.data(), static_cast<Eigen::Index>(matrix.rows),
          static_cast<Eigen::Index>(matrix.columns)};
}

Eigen::Map<Dense> sized(Matrix& out, std::size_t rows, std::size_t columns) {
  out.resize(rows, columns);
  return {out.values.data(), static_cast<Eigen::Index>(rows),
          static_cast<Eigen::Index>(columns)};
}

}  // namespace

void multiply(const Matrix& a, const Matrix& b, Matrix& out) {
  sized(out, a.rows, b.columns).noalias() = view(a) * view(b);
}

void multiply_left_transposed(const Matrix& a, const Matrix& b, Matrix& out) {
  sized(out, a.columns, b.columns).noalias() = view(a).transpose() * view(b);
}

void multiply_right_transposed(const Matrix& a, const Matrix& b, Matrix& out) {
  sized(out, a.rows, b.rows).noalias() = view(a) * view(b).transpose();
}

}  // namespace swamp::cli
