// Activations and gated units. The functions are in slave/activation-inl.h.
#include "swamp/activation.h"

#include <initializer_list>
#include <string>

#include "master/row_launch.h"
#include "master/text.h"
#include "swamp/product.h"

namespace swamp {

using slave::ActivationArgs;

namespace {

// The enumerators of the C interface are those of the kernels.
static_assert(SWAMP_SILU == int{ActivationArgs::silu} &&
              SWAMP_POW_BASE + 1 == int{ActivationArgs::count});

ActivationArgs args_of(const ActivationOptions& options) {
  const int function = static_cast<int>(options.function);
  if (function < 0 || function >= int{ActivationArgs::count}) {
    master::refuse("options.function", std::to_string(function),
                   "one of Activation");
  }
  return {1,
          static_cast<ActivationArgs::Function>(function),
          options.beta,
          options.threshold,
          options.alpha,
          options.scale,
          0};
}

void require_no_row_step(const ActivationOptions& options) {
  if (options.row_step == 0) return;
  master::refuse("options.row_step", std::to_string(options.row_step),
                 "0 without a gate");
}

void require_row_step(const ActivationOptions& options, const Matrix& x) {
  if (options.row_step == 0 || (options.row_step >= x.columns &&
                                options.row_step <= Matrices::kMaxStep)) {
    return;
  }
  master::refuse("options.row_step", std::to_string(options.row_step),
                 "0, or from " + std::to_string(x.columns) + " to " +
                     std::to_string(Matrices::kMaxStep));
}

// run() launches a kernel. `gapped` operands (bit s: operand s) have row_step.
template <KernelFamily kFamily>
void run(Machine::Impl& machine, const Matrix& x, ActivationArgs args,
         std::size_t row_step, unsigned gapped,
         std::initializer_list<const void*> addresses) {
  if (x.rows == 0 || x.columns == 0) return;
  // Without gaps a unit is an element.
  const bool is_dense = row_step == 0 || row_step == x.columns || x.rows == 1;
  const Matrix units{x.data, is_dense ? x.rows * x.columns : x.rows,
                     is_dense ? 1 : x.columns, x.dtype};
  args.columns = units.columns;
  Operation operation(master::row_kernel<kFamily>(x.dtype), &args,
                      units.columns);
  const std::size_t bytes = kScalarTypeBytes[x.dtype];
  int s = 0;
  for (const void* address : addresses) {
    if (address == nullptr) {
      operation.remove_operand(s);
    } else if (!is_dense && (gapped >> s & 1u) != 0) {
      const std::size_t row_bytes = x.columns * bytes;
      operation.set_lines(s, 1, row_bytes, row_bytes, row_step * bytes);
    }
    ++s;
  }
  master::run_rows(machine, "x", units, operation, addresses);
}

}  // namespace

void activation(const Matrix& x, const Matrix& y,
                const ActivationOptions& options, Machine* machine) {
  master::require_matrix("x", x);
  master::require_like("y", y, "x", x);
  const ActivationArgs args = args_of(options);
  require_no_row_step(options);
  run<KernelFamily::activation>(master::impl_of(machine), x, args, 0, 0,
                                {x.data, nullptr, y.data});
}

void activation_backward(const Matrix& gradient, const Matrix& x,
                         const Matrix& dx, const ActivationOptions& options,
                         Machine* machine) {
  master::require_matrix("gradient", gradient);
  master::require_like("x", x, "gradient", gradient);
  master::require_like("dx", dx, "gradient", gradient);
  const ActivationArgs args = args_of(options);
  require_no_row_step(options);
  run<KernelFamily::activation_backward>(
      master::impl_of(machine), x, args, 0, 0,
      {gradient.data, x.data, nullptr, dx.data, nullptr});
}

void gated_activation(const Matrix& x, const Matrix& up, const Matrix& y,
                      const ActivationOptions& options, Machine* machine) {
  using At = slave::ActivationOperand;
  master::require_matrix("x", x);
  master::require_like("up", up, "x", x);
  master::require_like("y", y, "x", x);
  const ActivationArgs args = args_of(options);
  require_row_step(options, x);
  run<KernelFamily::activation>(master::impl_of(machine), x, args,
                                options.row_step, 1u << At::x | 1u << At::up,
                                {x.data, up.data, y.data});
}

void gated_activation_backward(const Matrix& gradient, const Matrix& x,
                               const Matrix& up, const Matrix& dx,
                               const Matrix& dup,
                               const ActivationOptions& options,
                               Machine* machine) {
  using At = slave::ActivationBackwardOperand;
  master::require_matrix("gradient", gradient);
  master::require_like("x", x, "gradient", gradient);
  master::require_like("up", up, "gradient", gradient);
  master::require_like("dx", dx, "gradient", gradient);
  master::require_like("dup", dup, "gradient", gradient);
  const ActivationArgs args = args_of(options);
  require_row_step(options, x);
  run<KernelFamily::activation_backward>(
      master::impl_of(machine), x, args, options.row_step,
      ~(1u << At::gradient),
      {gradient.data, x.data, up.data, dx.data, dup.data});
}

}  // namespace swamp
