// LayerNorm, RMSNorm and their gradients, and the residual connection. Forward
// and backward are templates: RMSNorm is LayerNorm without a mean and a bias.
// The gradients of weight and bias are sums over rows: a partial result for
// each grain of rows, in double, which a second launch adds in the order of the
// grains.
#include <algorithm>
#include <string>

#include "master/row_launch.h"
#include "master/text.h"

namespace swamp {

using master::RowTable;
using master::Workspace;
using slave::RowNormArgs;

namespace {

RowNormArgs norm_args(const NormOptions& options, std::size_t columns) {
  RowNormArgs args{};
  args.columns = columns;
  args.eps = options.eps;
  args.weight_offset = options.zero_centered_weight ? 1.0f : 0.0f;
  return args;
}

// vector_type() validates weight and bias and returns their common dtype.
ScalarType vector_type(const Matrix& x, const RowVector& weight,
                       const RowVector& bias = {nullptr, kFloat32}) {
  ScalarType type = x.dtype;
  const auto visit = [&](const char* name, const RowVector& vector) {
    if (vector.data == nullptr) return;
    master::require_matrix(
        name, {const_cast<void*>(vector.data), 1, x.columns, vector.dtype});
    master::Checker(name).dtype(vector.dtype, x.dtype, "x", true);
    type = vector.dtype;
  };
  visit("weight", weight);
  visit("bias", bias);
  if (weight.data != nullptr && bias.data != nullptr) {
    master::Checker("bias").dtype(bias.dtype, weight.dtype, "weight");
  }
  return type;
}

// norm_operation() returns an operation on rows of x of one dtype and weights
// of another, which is operand kWeight.
template <KernelFamily kFamily, int kWeight, class Args>
Operation norm_operation(ScalarType x, ScalarType weight, const Args& args) {
  static constexpr slave::KernelGroup kGroup =
      slave::kernel_group(kFamily, slave::info_of(kFamily).operand_count);
  const std::uint32_t fits = kGroup.fits[0][x] & kGroup.fits[kWeight][weight];
  return {slave::kKernels[kGroup.ids[__builtin_ctz(fits)]], &args,
          static_cast<std::size_t>(args.columns)};
}

// forward() is layer_norm() if kMean, else rms_norm().
template <bool kMean>
void forward(const Matrix& x, const RowVector& weight, const RowVector& bias,
             const Matrix& y, float* mean, float* rstd,
             const NormOptions& options, Machine* machine) {
  master::require_matrix("x", x);
  master::require_like("y", y, "x", x);
  const ScalarType type = vector_type(x, weight, bias);
  if (kMean) master::require_array("mean", mean, sizeof *mean, x.rows);
  master::require_array("rstd", rstd, sizeof *rstd, x.rows);
  Machine::Impl& impl = master::impl_of(machine);
  if (x.rows == 0 || x.columns == 0) return;
  using At = slave::NormOperand<kMean>;
  constexpr auto kFamily =
      kMean ? KernelFamily::layer_norm : KernelFamily::rms_norm;
  const RowNormArgs args = norm_args(options, x.columns);
  Operation operation =
      norm_operation<kFamily, At::weight>(x.dtype, type, args);
  if (weight.data == nullptr) operation.remove_operand(At::weight);
  if constexpr (kMean) {
    if (bias.data == nullptr) operation.remove_operand(At::bias);
    master::run_rows(impl, "x", x, operation,
                     {x.data, weight.data, bias.data, y.data, mean, rstd});
  } else {
    master::run_rows(impl, "x", x, operation,
                     {x.data, weight.data, y.data, rstd});
  }
}

// A grain of backward has at least kSummedRows rows: adding the partial results
// then takes little time, and 8192 rows have a grain for each of 192 slaves. A
// matrix has at most kSummedGrains grains.
constexpr std::size_t kSummedRows = 43, kSummedGrains = 384;

// backward() is layer_norm_backward() if kMean, else rms_norm_backward().
template <bool kMean>
void backward(const Matrix& gradient, const Matrix& x, const float* mean,
              const float* rstd, const RowVector& weight, const Matrix& dx,
              float* dweight, float* dbias, const NormOptions& options,
              Machine* machine) {
  master::require_matrix("x", x);
  master::require_like("gradient", gradient, "x", x);
  if (dx.data != nullptr) master::require_like("dx", dx, "x", x);
  if (kMean) master::require_array("mean", mean, sizeof *mean, x.rows);
  master::require_array("rstd", rstd, sizeof *rstd, x.rows);
  const ScalarType type = vector_type(x, weight);
  Machine::Impl& impl = master::impl_of(machine);
  const bool with_sums = dweight != nullptr || dbias != nullptr;
  if (!with_sums && dx.data == nullptr) return;
  if (x.rows == 0 || x.columns == 0) {
    if (dweight != nullptr) std::fill(dweight, dweight + x.columns, 0.0f);
    if (dbias != nullptr) std::fill(dbias, dbias + x.columns, 0.0f);
    return;
  }
  constexpr auto kFamily = kMean ? KernelFamily::layer_norm_backward
                                 : KernelFamily::rms_norm_backward;
  using At = slave::NormBackwardOperand<kMean>;
  const RowNormArgs args = norm_args(options, x.columns);
  Operation operation =
      norm_operation<kFamily, At::weight>(x.dtype, type, args);
  if (weight.data == nullptr) operation.remove_operand(At::weight);
  if (dx.data == nullptr) operation.remove_operand(At::dx);

  const std::size_t sums = with_sums ? (kMean ? 2 : 1) * x.columns : 0;
  const std::size_t partial_bytes = sums * sizeof(double);
  master::require_ldm("x", x,
                      runtime::ldm_need(impl, operation, partial_bytes));
  master::GrainRule grains = master::row_grains(x.columns);
  Operation sums_of_grains;
  if (with_sums) {
    grains.block_units =
        std::max(kSummedRows, master::divided(x.rows, kSummedGrains));
    sums_of_grains = master::line_sums(
        impl, kFloat64, kFloat32, master::divided(x.rows, grains.block_units),
        partial_bytes);
    master::require_ldm("x", x, runtime::ldm_need(impl, sums_of_grains, 0));
  }
  Workspace& workspace = Workspace::of_this_thread();
  RowTable table(operation, 1, with_sums, grains, workspace.segments());
  if constexpr (kMean) {
    table.add(x.rows,
              {gradient.data, x.data, mean, rstd, weight.data, dx.data});
  } else {
    table.add(x.rows, {gradient.data, x.data, rstd, weight.data, dx.data});
  }
  if (!with_sums) {
    workspace.run(impl, table.list());
    return;
  }
  workspace.run_by_grain(impl, table.list(), partial_bytes);
  const double* const partials = workspace.partials<double>();
  // A table of at most the bytes of the first one, and as many slaves: nothing
  // is allocated after dx is written.
  RowTable totals(sums_of_grains, 2, false, master::kLineGrains,
                  workspace.segments());
  if (dweight != nullptr) totals.add(x.columns, {partials, dweight});
  if (dbias != nullptr) totals.add(x.columns, {partials + x.columns, dbias});
  workspace.run(impl, totals.list());
}

}  // namespace

void layer_norm(const Matrix& x, const RowVector& weight, const RowVector& bias,
                const Matrix& y, float* mean, float* rstd,
                const NormOptions& options, Machine* machine) {
  forward<true>(x, weight, bias, y, mean, rstd, options, machine);
}

void rms_norm(const Matrix& x, const RowVector& weight, const Matrix& y,
              float* rstd, const NormOptions& options, Machine* machine) {
  forward<false>(x, weight, {nullptr, kFloat32}, y, nullptr, rstd, options,
                 machine);
}

void layer_norm_backward(const Matrix& gradient, const Matrix& x,
                         const float* mean, const float* rstd,
                         const RowVector& weight, const Matrix& dx,
                         float* dweight, float* dbias,
                         const NormOptions& options, Machine* machine) {
  backward<true>(gradient, x, mean, rstd, weight, dx, dweight, dbias, options,
                 machine);
}

void rms_norm_backward(const Matrix& gradient, const Matrix& x,
                       const float* rstd, const RowVector& weight,
                       const Matrix& dx, float* dweight,
                       const NormOptions& options, Machine* machine) {
  backward<false>(gradient, x, nullptr, rstd, weight, dx, dweight, nullptr,
                  options, machine);
}

void residual_add_(const Matrix& residual, const Matrix& x,
                   const RowVector& bias, Machine* machine) {
  master::require_matrix("x", x);
  Matrix expected = x;
  expected.dtype = kFloat32;
  master::require_like("residual", residual, "x", expected);
  const ScalarType type = vector_type(x, {nullptr, kFloat32}, bias);
  Machine::Impl& impl = master::impl_of(machine);
  if (x.rows == 0 || x.columns == 0) return;
  // Without a bias the columns do not matter.
  const Matrix all =
      bias.data != nullptr ? x : Matrix{x.data, x.rows * x.columns, 1, x.dtype};
  const slave::ResidualAddArgs args{all.columns};
  constexpr int kBias = slave::ResidualAddOperand::bias;
  Operation operation =
      norm_operation<KernelFamily::residual_add, kBias>(x.dtype, type, args);
  if (bias.data == nullptr) operation.remove_operand(kBias);
  master::run_rows(impl, "x", all, operation,
                   {x.data, bias.data, residual.data});
}

}  // namespace swamp
