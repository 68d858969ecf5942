// LayerNorm, RMSNorm and their gradients, and the residual connection. Forward
// and backward are templates: RMSNorm is LayerNorm without a mean and a bias.
// Rows that fit into LDM take one launch; a longer row takes two passes on its
// columns, between which this file combines the sums of the chunks. The
// gradients of weight and bias are sums over rows: a partial result for each
// grain of rows, in double, added in the order of the grains.
#include <algorithm>
#include <string>
#include <vector>

#include "master/row_launch.h"
#include "master/text.h"

namespace swamp {

using master::row_of;
using master::RowTable;
using master::Workspace;
using slave::kChunkColumns;
using slave::NormBackwardChunk;
using slave::NormBackwardRow;
using slave::NormBackwardSums;
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
    if (vector.dtype == kFloat32 || vector.dtype == x.dtype) {
      type = vector.dtype;
      return;
    }
    master::refuse(std::string(name) + ".dtype",
                   kFloatFormats[vector.dtype].name,
                   std::string("float32 or ") + kFloatFormats[x.dtype].name +
                       " (as 'x' has)");
  };
  visit("weight", weight);
  visit("bias", bias);
  if (weight.data != nullptr && bias.data != nullptr &&
      weight.dtype != bias.dtype) {
    master::refuse(
        "bias.dtype", kFloatFormats[bias.dtype].name,
        std::string(kFloatFormats[weight.dtype].name) + " (as 'weight' has)");
  }
  return type;
}

// norm_operation() is an operation on rows of x of one dtype and weights of
// another, which is operand kWeight: of whole rows, or a pass on columns.
template <KernelFamily kFamily, int kOperands, int kWeight, class Args,
          class Units>
Operation norm_operation(ScalarType x, ScalarType weight, const Args& args,
                         Units units) {
  static constexpr slave::KernelGroup kGroup =
      slave::kernel_group(kFamily, kOperands);
  const std::uint32_t fits = kGroup.fits[0][x] & kGroup.fits[kWeight][weight];
  return {slave::kKernels[kGroup.ids[__builtin_ctz(fits)]], &args, units};
}

// Forward is layer_norm() if kMean, else rms_norm(), after validation.
template <bool kMean>
struct Forward {
  Machine::Impl& machine;
  const Matrix& x;
  const RowVector& weight;
  const RowVector& bias;
  const Matrix& y;
  float* mean;
  float* rstd;
  ScalarType type;  // of weight and bias
  RowNormArgs args;

  // operation() is one of whole rows, or a pass on columns.
  template <class Units>
  Operation operation(Units units) const {
    constexpr auto kFamily =
        kMean ? KernelFamily::layer_norm : KernelFamily::rms_norm;
    constexpr int kOperands = kMean ? 6 : 4;
    Operation result =
        norm_operation<kFamily, kOperands, 1>(x.dtype, type, args, units);
    if (weight.data == nullptr) result.remove_operand(1);
    if (kMean && bias.data == nullptr) result.remove_operand(2);
    return result;
  }
  // add() adds a segment of rows or columns, which begins with row i.
  void add(RowTable& table, std::size_t units, std::size_t i) const {
    if (kMean) {
      table.add(units, {row_of(x, i), weight.data, bias.data, row_of(y, i),
                        mean + i, rstd + i});
    } else {
      table.add(units, {row_of(x, i), weight.data, row_of(y, i), rstd + i});
    }
  }

  void run() const {
    const Operation whole = operation(x.columns);
    if (!master::fits_rows(machine, x, whole)) {
      run_passes();
      return;
    }
    Workspace& workspace = Workspace::of_this_thread();
    RowTable table(whole, 1, false, master::row_grains(x.columns),
                   workspace.segments());
    add(table, x.rows, 0);
    workspace.run(machine, table.list());
  }

  // run_passes() computes the sums of the chunks, of x alone, and then y.
  void run_passes() const {
    using Chunk = slave::NormChunk<kMean>;
    Operation sum = operation(Pass::sum);
    sum.tile_step = master::chunk_step(x.columns);
    sum.remove_operand(1);
    if (kMean) sum.remove_operand(2);
    const auto add_row = [&](RowTable& table, std::size_t i) {
      add(table, x.columns, i);
    };
    const auto* chunks =
        master::sum_columns<Chunk>(machine, "x", x, sum, add_row);
    const auto add_map = [&](RowTable& table, std::size_t i) {
      const Chunk* const row = chunks + i * master::chunks_of(x.columns);
      const auto statistics = slave::norm_statistics(row, x.columns, args.eps);
      if (kMean) mean[i] = statistics.mean;
      rstd[i] = statistics.rstd;
      add_row(table, i);
    };
    master::map_columns(machine, "x", x, operation(Pass::map), add_map);
  }
};

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
  Forward<kMean>{
      impl, x, weight, bias, y, mean, rstd, type, norm_args(options, x.columns)}
      .run();
}

// Columns per launch: their sums in double must fit into 64 KiB of LDM.
constexpr std::size_t kSumColumns = 1024;

// store_sums() adds the partial results of all grains, `count` doubles each,
// into `sums`. It rounds the first `columns` sums to dweight and the others to
// dbias.
void store_sums(const Workspace& workspace, std::size_t columns, double* sums,
                std::size_t count, float* dweight, float* dbias) {
  std::fill(sums, sums + count, 0.0);
  workspace.for_each_grain<double>([&](const double& grain) {
    const double* const values = &grain;
    for (std::size_t c = 0; c < count; ++c) sums[c] += values[c];
  });
  for (std::size_t c = 0; c < columns; ++c) {
    if (dweight != nullptr) dweight[c] = static_cast<float>(sums[c]);
    if (dbias != nullptr) dbias[c] = static_cast<float>(sums[columns + c]);
  }
}

// Backward is layer_norm_backward() if kMean, else rms_norm_backward(), after
// validation.
template <bool kMean>
struct Backward {
  Machine::Impl& machine;
  const Matrix& gradient;
  const Matrix& x;
  const float* mean;
  const float* rstd;
  const RowVector& weight;
  const Matrix& dx;
  float* dweight;
  float* dbias;
  ScalarType type;  // of weight
  RowNormArgs args;

  static constexpr int kWeight = kMean ? 4 : 3;  // the operand

  bool with_sums() const { return dweight != nullptr || dbias != nullptr; }
  // sum_bytes() is the partial result of `columns` columns.
  std::size_t sum_bytes(std::size_t columns) const {
    return with_sums() ? (kMean ? 2 : 1) * columns * sizeof(double) : 0;
  }

  // operation() is one of whole rows, or a pass on columns.
  template <class Units>
  Operation operation(const RowNormArgs& numbers, Units units) const {
    constexpr auto kFamily = kMean ? KernelFamily::layer_norm_backward
                                   : KernelFamily::rms_norm_backward;
    Operation result = norm_operation<kFamily, kWeight + 2, kWeight>(
        x.dtype, type, numbers, units);
    if (weight.data == nullptr) result.remove_operand(kWeight);
    if (dx.data == nullptr) result.remove_operand(kWeight + 1);
    return result;
  }
  // add() adds a segment of rows or columns, which begins with column `column`
  // of row i. `means` and `rstds` are its statistics.
  void add(RowTable& table, std::size_t units, std::size_t i,
           std::size_t column, const void* means, const void* rstds) const {
    const auto at = [&](const Matrix& matrix) {
      return row_of(matrix, i, column);
    };
    const auto* const weights =
        weight.data == nullptr
            ? nullptr
            : static_cast<const std::byte*>(weight.data) +
                  column * master::kScalarTypeBytes[weight.dtype];
    const auto* const to = dx.data != nullptr ? at(dx) : nullptr;
    if (kMean) {
      table.add(units, {at(gradient), at(x), means, rstds, weights, to});
    } else {
      table.add(units, {at(gradient), at(x), rstds, weights, to});
    }
  }

  void run() const {
    const Operation whole = operation(args, x.columns);
    const std::size_t partial_bytes = sum_bytes(x.columns);
    master::GrainRule grains = master::row_grains(x.columns);
    if (with_sums()) {
      // So few grains that their partial results add little traffic.
      const std::size_t traffic = x.rows * whole.traffic_bytes;
      grains.max_grains =
          std::clamp<std::size_t>(traffic / 32 / partial_bytes, 1, 512);
    }
    if (!master::fits_rows(machine, x, whole, partial_bytes)) {
      run_passes(grains);
      return;
    }
    Workspace& workspace = Workspace::of_this_thread();
    RowTable table(whole, 1, with_sums(), grains, workspace.segments());
    add(table, x.rows, 0, 0, mean, rstd);
    if (!with_sums()) {
      workspace.run(machine, table.list());
      return;
    }
    workspace.run_by_grain(machine, table.list(), partial_bytes);
    store_sums(workspace, x.columns,
               workspace.row_values<double>(partial_bytes / 8),
               partial_bytes / 8, dweight, dbias);
  }

  // run_passes() computes the sums of the chunks, and then dx. LDM holds the
  // sums of weight and bias for a limited number of columns, so each launch of
  // the second pass computes `width` columns of every row. The grains are those
  // of whole rows, so that the sums have the same bits.
  void run_passes(const master::GrainRule& grains) const {
    const NormBackwardRow* const factors = row_factors();
    const std::size_t width = with_sums() ? kSumColumns : x.columns;
    const std::size_t grain_rows = master::grain_rows(x.rows, grains);
    for (std::size_t begin = 0; begin < x.columns; begin += width) {
      run_map(factors, begin, std::min(width, x.columns - begin), grain_rows);
    }
  }

  // row_factors() computes the factors of each row, in the workspace.
  const NormBackwardRow* row_factors() const {
    Operation sum = operation(args, Pass::sum);
    sum.tile_step = slave::kChains;
    const auto* partials = master::sum_columns<NormBackwardSums>(
        machine, "x", x, sum, [&](RowTable& table, std::size_t i) {
          add(table, x.columns, i, 0, kMean ? &mean[i] : nullptr, &rstd[i]);
        });
    const std::size_t chunks = master::chunks_of(x.columns);
    auto* const factors =
        Workspace::of_this_thread().row_values<NormBackwardRow>(x.rows);
    std::vector<NormBackwardChunk> row(chunks);
    for (std::size_t i = 0; i < x.rows; ++i, partials += chunks) {
      for (std::size_t c = 0; c < chunks; ++c) row[c] = partials[c].chunk();
      factors[i] = slave::combine_chunks(row.data(), x.columns,
                                         kMean ? mean[i] : 0.0f, rstd[i]);
    }
    return factors;
  }

  // run_map() computes `width` columns from `begin` on of every row.
  void run_map(const NormBackwardRow* factors, std::size_t begin,
               std::size_t width, std::size_t grain_rows) const {
    RowNormArgs piece = args;
    piece.columns = width;
    Operation map = operation(piece, Pass::map);
    map.set_unit_bytes(2, sizeof(NormBackwardRow));  // of mean and rstd
    if (kMean) map.remove_operand(3);
    const std::size_t piece_bytes = sum_bytes(width);
    master::require_ldm("x", x, runtime::ldm_need(machine, map, piece_bytes));
    Workspace& workspace = Workspace::of_this_thread();
    RowTable pieces(map, x.rows, with_sums(),
                    {grain_rows * width, ~std::size_t{0}},
                    workspace.segments());
    for (std::size_t i = 0; i < x.rows; ++i) {
      add(pieces, width, i, begin, &factors[i], &factors[i]);
    }
    if (!with_sums()) {
      workspace.run(machine, pieces.list());
      return;
    }
    workspace.run_by_grain(machine, pieces.list(), piece_bytes);
    std::vector<double> sums(piece_bytes / sizeof(double));
    store_sums(workspace, width, sums.data(), sums.size(),
               dweight == nullptr ? nullptr : dweight + begin,
               dbias == nullptr ? nullptr : dbias + begin);
  }
};

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
  if (dweight == nullptr && dbias == nullptr && dx.data == nullptr) return;
  if (x.rows == 0 || x.columns == 0) {
    if (dweight != nullptr) std::fill(dweight, dweight + x.columns, 0.0f);
    if (dbias != nullptr) std::fill(dbias, dbias + x.columns, 0.0f);
    return;
  }
  Backward<kMean>{impl,
                  gradient,
                  x,
                  mean,
                  rstd,
                  weight,
                  dx,
                  dweight,
                  dbias,
                  type,
                  norm_args(options, x.columns)}
      .run();
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
  const std::size_t columns = all.columns;
  const auto make = [&](const slave::ResidualAddArgs& args) {
    Operation operation = norm_operation<KernelFamily::residual_add, 3, 1>(
        x.dtype, type, args, static_cast<std::size_t>(args.columns));
    if (bias.data == nullptr) operation.remove_operand(1);
    return operation;
  };
  Workspace& workspace = Workspace::of_this_thread();
  const slave::ResidualAddArgs whole_args{columns};
  const Operation whole = make(whole_args);
  if (runtime::ldm_need(impl, whole, 0).fits()) {
    master::run_rows(impl, whole, all, {x.data, bias.data, residual.data});
    return;
  }

  // Long rows: each launch computes kPiece columns of every row.
  constexpr std::size_t kPiece = 1024;
  for (std::size_t begin = 0; begin < columns; begin += kPiece) {
    const slave::ResidualAddArgs args{std::min(kPiece, columns - begin)};
    const Operation operation = make(args);
    master::require_ldm("x", x, runtime::ldm_need(impl, operation, 0));
    RowTable table(operation, x.rows, false, master::row_grains(args.columns),
                   workspace.segments());
    for (std::size_t i = 0; i < x.rows; ++i) {
      table.add(1, {row_of(x, i, begin),
                    static_cast<const std::byte*>(bias.data) +
                        begin * master::kScalarTypeBytes[bias.dtype],
                    row_of(residual, i, begin)});
    }
    workspace.run(impl, table.list());
  }
}

}  // namespace swamp
