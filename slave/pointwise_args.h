// The arguments of the kernels of functions of each element.
#ifndef SWAMP_SLAVE_POINTWISE_ARGS_H_
#define SWAMP_SLAVE_POINTWISE_ARGS_H_

#include <cstdint>

namespace swamp::slave {

// pointwise: x (in), z (in), w (in), line (in, constant), value (in, float32,
//   one for each row), y (out). z_j is an element of z, of line or value; those
//   that a call does not have are null. Without x, x_j is that of line.
//   y_j = r(f(x_j, z_j, w_j)), each operation in float32, without z_j of
//   functions before `sum`, and without w_j of those before `sum_of_product`.
//   The functions are in slave/pointwise.cpp.
struct PointwiseArgs {
  enum Function : std::uint32_t {
    clamp,
    hard_swish,
    hard_sigmoid,
    leaky_relu,
    affine,
    sum,
    product,
    difference,
    loss,
    scaled_relu,
    above,
    between,
    leaky_gradient,
    maximum,
    minimum,
    lerp,
    sum_of_product,
    sum_of_quotient,
    lerp_by,
    difference_by,
    count
  };
  std::uint64_t columns;
  Function function;
  float alpha, beta, gamma;
};
struct PointwiseOperand {
  enum : int { x, z, w, line, value, y, count };
};

}  // namespace swamp::slave

#endif  // SWAMP_SLAVE_POINTWISE_ARGS_H_
