// Functions of each element. They are in slave/pointwise.cpp.
#include "swamp/pointwise.h"

#include <initializer_list>
#include <string>

#include "master/row_launch.h"
#include "master/text.h"

namespace swamp {

using slave::PointwiseArgs;
using slave::PointwiseOperand;

namespace {

static_assert(static_cast<int>(Pointwise::sum) == int{PointwiseArgs::sum} &&
              static_cast<int>(Pointwise::difference_by) + 1 ==
                  int{PointwiseArgs::count});

// require_others() throws unless z and w are where the function has them.
void require_others(const Matrix& x, const PointwiseOptions& options) {
  const int given = (options.matrix != nullptr ? 1 : 0) +
                    (options.row != nullptr && x.data != nullptr ? 1 : 0) +
                    (options.values != nullptr ? 1 : 0);
  const int expected = options.function >= Pointwise::sum ? 1 : 0;
  if (given != expected) {
    master::refuse("options",
                   std::to_string(given) + " of matrix, row and values",
                   std::to_string(expected) + " with this function");
  }
  const bool has_third = options.function >= Pointwise::sum_of_product;
  if (has_third != (options.third != nullptr) ||
      (has_third && (options.matrix == nullptr || x.data == nullptr))) {
    master::refuse("options.third",
                   options.third == nullptr ? "null" : "an address",
                   has_third ? "an address, with x and options.matrix, with "
                               "this function"
                             : "null with this function");
  }
  const auto require_like_x = [&](const char* name, const void* data) {
    if (data == nullptr) return;
    Matrix other = x;
    other.data = const_cast<void*>(data);
    master::require_data(name, other);
  };
  require_like_x("options.matrix", options.matrix);
  require_like_x("options.third", options.third);
  if (options.row != nullptr) {
    master::require_array("options.row", options.row, kScalarTypeBytes[x.dtype],
                          x.columns);
  }
  if (options.values != nullptr) {
    master::require_array("options.values", options.values, alignof(float),
                          x.rows);
  }
}

}  // namespace

void pointwise(const Matrix& x, const Matrix& y,
               const PointwiseOptions& options, Machine* machine) {
  constexpr std::uint32_t kTypes = 1u << kFloat16 | 1u << kBFloat16;
  // Without x, a row is in its place.
  if (x.data != nullptr || options.row == nullptr) {
    master::require_matrix("x", x);
  }
  master::Checker("x").dtype(x.dtype, kTypes);
  master::require_like("y", y, "x", x);
  const int function = static_cast<int>(options.function);
  if (function < 0 || function >= int{PointwiseArgs::count}) {
    master::refuse("options.function", std::to_string(function),
                   "one of Pointwise");
  }
  Machine::Impl& impl = master::impl_of(machine);
  if (x.rows == 0 || x.columns == 0) return;
  require_others(x, options);
  const bool by_row = options.row != nullptr || options.values != nullptr;
  const Matrix units =
      by_row ? x : Matrix{x.data, x.rows * x.columns, 1, x.dtype};
  const PointwiseArgs args{units.columns,
                           static_cast<PointwiseArgs::Function>(function),
                           options.alpha, options.beta, options.gamma};
  Operation operation(master::row_kernel<KernelFamily::pointwise>(x.dtype),
                      &args, units.columns);
  const std::initializer_list<const void*> addresses = {
      x.data,      options.matrix, options.third,
      options.row, options.values, y.data};
  int s = 0;
  for (const void* address : addresses) {
    if (address == nullptr) operation.remove_operand(s);
    ++s;
  }
  master::run_rows(impl, "x", units, operation, addresses);
}

}  // namespace swamp
