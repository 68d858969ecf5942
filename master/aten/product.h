// One product of float16 or bfloat16 matrices in float32, in bounded memory.
#ifndef SWAMP_MASTER_ATEN_PRODUCT_H_
#define SWAMP_MASTER_ATEN_PRODUCT_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

#include <cstdint>

#include "master/aten/half_precision.h"

namespace swamp::aten {

// Product is out = beta * self + alpha * a b, for each matrix of a batch.
struct Product {
  at::Tensor out;   // [batch, m, n]; 16-bit, or float32 and then also self
  at::Tensor self;  // of out's sizes; undefined: beta is 0, or self is out
  at::Tensor a;     // [batch, m, k]
  at::Tensor b;     // [batch, k, n]
  at::Scalar beta;
  at::Scalar alpha;

  std::int64_t batch() const { return a.size(0); }
  std::int64_t m() const { return a.size(1); }
  std::int64_t k() const { return a.size(2); }
  std::int64_t n() const { return b.size(2); }

  Product narrowed(std::int64_t dimension_of_out, std::int64_t begin,
                   std::int64_t count) const {
    const std::int64_t d = dimension_of_out;
    Product part = *this;
    part.out = out.narrow(d, begin, count);
    if (self.defined()) part.self = self.narrow(d, begin, count);
    if (d != 2) part.a = a.narrow(d, begin, count);
    if (d != 1) part.b = b.narrow(d, begin, count);
    return part;
  }
};

// multiply() computes a product in float32, with one rounding to the dtype of
// product.out. `way` is kFloat32 or kOneDnn; without oneDNN both are the same.
void multiply(const Product& product, Way way);

// way_of() returns the choice for the class of a product of matrices, or of
// batches of them. A class is the dtype, the levels of the sizes, and the order
// of the operands in memory: a transposed one can make PyTorch's float16 kernel
// 30 times slower, and PyTorch copies one that is not dense or is shared by the
// batch. If `wide`, the result is float32, and the choice never kNative:
// PyTorch has no such kernel.
Way way_of(const at::Tensor& a, const at::Tensor& b, bool wide = false);

}  // namespace swamp::aten

#endif  // SWAMP_MASTER_ATEN_PRODUCT_H_
