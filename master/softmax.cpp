// Softmax of rows, or its log, and its gradient. The formulas and the order of
// sums are in slave/row_args.h.
#include <string>

#include "master/row_launch.h"
#include "master/text.h"

namespace swamp {

using master::row_of;
using master::RowTable;
using master::Workspace;
using slave::SoftmaxArgs;
using slave::SoftmaxBackwardArgs;

namespace {

// softmax() computes y after validation. Each of the mask's matrices is a
// segment.
void softmax(Machine::Impl& machine, const Matrix& x, const Matrix& y,
             const SoftmaxMask& mask, const SoftmaxArgs& args) {
  Operation operation(master::row_kernel<KernelFamily::scaled_softmax>(x.dtype),
                      &args, x.columns);
  const bool masked = mask.data != nullptr;
  if (!masked) operation.remove_operand(slave::SoftmaxOperand::mask);
  // The exponentials of a row of one chunk are kept: in scratch memory, or, for
  // float32, in the output.
  if (args.log == 0 && x.dtype != kFloat32 &&
      x.columns <= slave::kChunkColumns) {
    operation.scratch_bytes =
        static_cast<std::uint32_t>(x.columns * sizeof(float));
  }
  master::require_ldm("x", x, runtime::ldm_need(machine, operation, 0));
  Workspace& workspace = Workspace::of_this_thread();
  const std::size_t segment_rows = masked ? mask.query_rows : x.rows;
  RowTable table(operation, x.rows / segment_rows, false,
                 master::row_grains(x.columns), workspace.segments());
  for (std::size_t i = 0; i < x.rows; i += segment_rows) {
    const std::uint8_t* mask_rows = nullptr;
    if (masked) {
      const std::size_t batch = i / mask.query_rows / mask.heads % mask.batches;
      mask_rows = mask.data + batch * mask.query_rows * x.columns;
    }
    table.add(segment_rows, {row_of(x, i), mask_rows, row_of(y, i)});
  }
  workspace.run(machine, table.list());
}

void require_mask(const Matrix& x, const SoftmaxOptions& options) {
  const SoftmaxMask& mask = options.mask;
  if (mask.data == nullptr) return;
  if (options.causal_rows != 0) {
    master::refuse("options.causal_rows", std::to_string(options.causal_rows),
                   "0 with a mask");
  }
  if (mask.heads == 0) master::refuse("options.mask.heads", "0", "at least 1");
  if (mask.query_rows == 0 || x.rows % mask.query_rows != 0 ||
      x.rows / mask.query_rows % mask.heads != 0) {
    master::refuse("options.mask.query_rows", std::to_string(mask.query_rows),
                   "a divisor of x.rows / mask.heads, of " +
                       std::to_string(x.rows) + " rows and " +
                       std::to_string(mask.heads) + " heads");
  }
  const std::size_t batches = x.rows / mask.query_rows / mask.heads;
  if (mask.batches != 1 && mask.batches != batches) {
    master::refuse("options.mask.batches", std::to_string(mask.batches),
                   "1 or " + std::to_string(batches));
  }
}

// backward() computes dx after validation.
void backward(Machine::Impl& machine, const Matrix& gradient, const Matrix& y,
              const Matrix& dx, const SoftmaxBackwardArgs& args) {
  Operation operation(
      master::row_kernel<KernelFamily::softmax_backward>(y.dtype), &args,
      y.columns);
  operation.remove_operand(slave::SoftmaxBackwardOperand::dot);
  master::run_rows(machine, "y", y, operation,
                   {gradient.data, y.data, dx.data, nullptr});
}

}  // namespace

void scaled_softmax(const Matrix& x, const Matrix& y,
                    const SoftmaxOptions& options, Machine* machine) {
  master::require_matrix("x", x);
  master::require_like("y", y, "x", x);
  require_mask(x, options);
  Machine::Impl& impl = master::impl_of(machine);
  if (x.rows == 0 || x.columns == 0) return;
  SoftmaxArgs args{};
  args.columns = x.columns;
  args.causal_rows = options.causal_rows;
  args.scale = options.scale;
  args.round_scale = options.round_scale;
  args.zero_masked_rows =
      options.mask.data != nullptr && options.zero_masked_rows;
  softmax(impl, x, y, options.mask, args);
}

void log_softmax(const Matrix& x, const Matrix& y, Machine* machine) {
  master::require_matrix("x", x);
  master::require_like("y", y, "x", x);
  Machine::Impl& impl = master::impl_of(machine);
  if (x.rows == 0 || x.columns == 0) return;
  SoftmaxArgs args{};
  args.columns = x.columns;
  args.scale = 1;
  args.log = 1;
  softmax(impl, x, y, {}, args);
}

void scaled_softmax_backward(const Matrix& gradient, const Matrix& y,
                             const Matrix& dx, const SoftmaxOptions& options,
                             Machine* machine) {
  master::require_matrix("gradient", gradient);
  master::require_like("y", y, "gradient", gradient);
  master::require_like("dx", dx, "gradient", gradient);
  Machine::Impl& impl = master::impl_of(machine);
  if (y.rows == 0 || y.columns == 0) return;
  backward(impl, gradient, y, dx,
           {y.columns, options.causal_rows, options.scale, 0});
}

void log_softmax_backward(const Matrix& gradient, const Matrix& y,
                          const Matrix& dx, Machine* machine) {
  master::require_matrix("gradient", gradient);
  master::require_like("y", y, "gradient", gradient);
  master::require_like("dx", dx, "gradient", gradient);
  Machine::Impl& impl = master::impl_of(machine);
  if (y.rows == 0 || y.columns == 0) return;
  backward(impl, gradient, y, dx, {y.columns, 0, 1, 1});
}

}  // namespace swamp
