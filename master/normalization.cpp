// LayerNorm, RMSNorm and their gradients, and the residual connection. Forward
// and backward are templates: RMSNorm is LayerNorm without a mean and a bias.
// Rows that fit into LDM take one launch; a longer row takes two passes on its
// columns, between which this file combines the sums of the chunks. The
// gradients of weight and bias are sums over rows: a partial result for each
// grain of rows, in double, added in the order of the grains.
#include <algorithm>
#include <string>
#include <vector>

#include "master/rows.h"
#include "master/text.h"

namespace swamp {

using master::row_of;
using master::RowTable;
using master::Workspace;
using slave::kChunkColumns;
using slave::LayerNormChunk;
using slave::NormBackwardChunk;
using slave::NormBackwardRow;
using slave::NormBackwardSums;
using slave::RmsNormChunk;
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
  const RowNormArgs args = norm_args(options, x.columns);
  Workspace& workspace = Workspace::of_this_thread();
  constexpr auto kFamily =
      kMean ? KernelFamily::layer_norm : KernelFamily::rms_norm;
  constexpr int kOperands = kMean ? 6 : 4;
  const auto make = [&](auto units) {
    Operation operation =
        norm_operation<kFamily, kOperands, 1>(x.dtype, type, args, units);
    if (weight.data == nullptr) operation.remove_operand(1);
    if (kMean && bias.data == nullptr) operation.remove_operand(2);
    return operation;
  };
  // add() adds a segment to a table of either kind.
  const auto add = [&](RowTable& table, std::size_t units, const void* from,
                       const void* to, const float* means, const float* rstds) {
    if (kMean) {
      table.add(units, {from, weight.data, bias.data, to, means, rstds});
    } else {
      table.add(units, {from, weight.data, to, rstds});
    }
  };
  const Operation whole = make(x.columns);
  if (x.columns <= slave::kMaxRowColumns &&
      runtime::ldm_need(impl, whole, 0).fits()) {
    RowTable table(whole, 1, false, master::row_grains(x.columns),
                   workspace.segments());
    add(table, x.rows, x.data, y.data, mean, rstd);
    workspace.run(impl, table.list());
    return;
  }

  // Two passes: the sums of the chunks, of x alone, then y.
  using Chunk = std::conditional_t<kMean, LayerNormChunk, RmsNormChunk>;
  Operation sum = make(Pass::sum);
  sum.tile_step = master::chunk_step(x.columns);
  sum.remove_operand(1);
  if (kMean) sum.remove_operand(2);
  const Operation map = make(Pass::map);
  master::require_ldm("x", x, runtime::ldm_need(impl, sum, sizeof(Chunk)));
  master::require_ldm("x", x, runtime::ldm_need(impl, map, 0));
  RowTable rows(sum, x.rows, true, master::chunk_grains(x.columns),
                workspace.segments());
  for (std::size_t i = 0; i < x.rows; ++i) {
    if (kMean) {
      rows.add(x.columns,
               {row_of(x, i), nullptr, nullptr, nullptr, nullptr, nullptr});
    } else {
      rows.add(x.columns, {row_of(x, i), nullptr, nullptr, nullptr});
    }
  }
  workspace.run_by_grain(impl, rows.list(), sizeof(Chunk));
  const std::size_t chunks = master::chunks_of(x.columns);
  const Chunk* partials = workspace.partials<Chunk>();
  RowTable pieces(map, x.rows, false, {}, workspace.segments());
  for (std::size_t i = 0; i < x.rows; ++i, partials += chunks) {
    if constexpr (kMean) {
      const auto total = slave::combine_chunks(partials, x.columns);
      mean[i] = static_cast<float>(total.mean);
      rstd[i] = slave::norm_rstd(total.variance, args.eps);
    } else {
      double squares = 0;
      for (std::size_t c = 0; c < chunks; ++c) {
        squares += static_cast<double>(partials[c].squares);
      }
      rstd[i] =
          slave::norm_rstd(squares / static_cast<double>(x.columns), args.eps);
    }
    add(pieces, x.columns, row_of(x, i), row_of(y, i),
        kMean ? &mean[i] : nullptr, &rstd[i]);
  }
  workspace.run(impl, pieces.list());
}

// So many columns that their sums in double fit into any LDM.
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
  const std::size_t columns = x.columns;
  if (x.rows == 0 || columns == 0) {
    if (dweight != nullptr) std::fill(dweight, dweight + columns, 0.0f);
    if (dbias != nullptr) std::fill(dbias, dbias + columns, 0.0f);
    return;
  }
  const RowNormArgs args = norm_args(options, columns);
  Workspace& workspace = Workspace::of_this_thread();
  constexpr auto kFamily = kMean ? KernelFamily::layer_norm_backward
                                 : KernelFamily::rms_norm_backward;
  constexpr int kWeight = kMean ? 4 : 3;
  const auto make = [&](const RowNormArgs& numbers, auto units) {
    Operation operation = norm_operation<kFamily, kWeight + 2, kWeight>(
        x.dtype, type, numbers, units);
    if (weight.data == nullptr) operation.remove_operand(kWeight);
    if (dx.data == nullptr) operation.remove_operand(kWeight + 1);
    return operation;
  };
  // add() adds a segment to a table. In the pass `map` the factors of the row
  // take the place of mean and rstd.
  const auto add = [&](RowTable& table, std::size_t units,
                       const void* gradients, const void* from,
                       const void* means, const void* rstds,
                       const void* weights, const void* to) {
    if (kMean) {
      table.add(units, {gradients, from, means, rstds, weights, to});
    } else {
      table.add(units, {gradients, from, rstds, weights, to});
    }
  };
  const Operation whole = make(args, columns);
  const std::size_t partial_bytes =
      with_sums ? (kMean ? 2 : 1) * columns * sizeof(double) : 0;
  master::GrainRule grains = master::row_grains(columns);
  if (with_sums) {
    // So few grains that their partial results add little traffic.
    const std::size_t traffic = x.rows * whole.traffic_bytes;
    grains.max_grains =
        std::clamp<std::size_t>(traffic / 32 / partial_bytes, 1, 512);
  }
  if (columns <= slave::kMaxRowColumns &&
      runtime::ldm_need(impl, whole, partial_bytes).fits()) {
    RowTable table(whole, 1, with_sums, grains, workspace.segments());
    add(table, x.rows, gradient.data, x.data, mean, rstd, weight.data, dx.data);
    if (!with_sums) {
      workspace.run(impl, table.list());
      return;
    }
    workspace.run_by_grain(impl, table.list(), partial_bytes);
    store_sums(workspace, columns,
               workspace.row_values<double>(partial_bytes / 8),
               partial_bytes / 8, dweight, dbias);
    return;
  }

  // Two passes: the sums of the chunks, then dx.
  Operation sum = make(args, Pass::sum);
  sum.tile_step = slave::kChains;
  master::require_ldm("x", x,
                      runtime::ldm_need(impl, sum, sizeof(NormBackwardSums)));
  RowTable rows(sum, x.rows, true, master::chunk_grains(x.columns),
                workspace.segments());
  for (std::size_t i = 0; i < x.rows; ++i) {
    add(rows, columns, row_of(gradient, i), row_of(x, i),
        kMean ? &mean[i] : nullptr, &rstd[i], weight.data, nullptr);
  }
  workspace.run_by_grain(impl, rows.list(), sizeof(NormBackwardSums));
  const std::size_t chunks = master::chunks_of(columns);
  const auto* partials = workspace.partials<NormBackwardSums>();
  auto* const factors = workspace.row_values<NormBackwardRow>(x.rows);
  std::vector<NormBackwardChunk> row(chunks);
  for (std::size_t i = 0; i < x.rows; ++i, partials += chunks) {
    for (std::size_t c = 0; c < chunks; ++c) row[c] = partials[c].chunk();
    factors[i] = slave::combine_chunks(row.data(), columns,
                                       kMean ? mean[i] : 0.0f, rstd[i]);
  }
  // LDM holds the sums of weight and bias for a limited number of columns, so
  // each launch computes `width` columns of every row. The grains are those of
  // whole rows, so that the sums have the same bits.
  const std::size_t width = with_sums ? kSumColumns : columns;
  const std::size_t grain_rows = master::grain_rows(x.rows, grains);
  std::vector<double> sums((kMean ? 2 : 1) * width);
  for (std::size_t begin = 0; begin < columns; begin += width) {
    RowNormArgs piece = args;
    piece.columns = std::min(width, columns - begin);
    Operation map = make(piece, Pass::map);
    map.set_unit_bytes(2, sizeof(NormBackwardRow));
    if (kMean) map.remove_operand(3);
    const std::size_t piece_bytes =
        with_sums ? (kMean ? 2 : 1) * piece.columns * sizeof(double) : 0;
    master::require_ldm("x", x, runtime::ldm_need(impl, map, piece_bytes));
    RowTable pieces(
        map, x.rows, with_sums,
        {grain_rows * static_cast<std::size_t>(piece.columns), ~std::size_t{0}},
        workspace.segments());
    const std::size_t offset = begin * master::kScalarTypeBytes[x.dtype];
    const auto* weight_piece =
        weight.data == nullptr
            ? nullptr
            : static_cast<const std::byte*>(weight.data) +
                  begin * master::kScalarTypeBytes[weight.dtype];
    for (std::size_t i = 0; i < x.rows; ++i) {
      add(pieces, piece.columns, row_of(gradient, i) + offset,
          row_of(x, i) + offset, &factors[i], kMean ? nullptr : &factors[i],
          weight_piece, dx.data == nullptr ? nullptr : row_of(dx, i) + offset);
    }
    if (!with_sums) {
      workspace.run(impl, pieces.list());
      continue;
    }
    workspace.run_by_grain(impl, pieces.list(), piece_bytes);
    store_sums(workspace, piece.columns, sums.data(), piece_bytes / 8,
               dweight == nullptr ? nullptr : dweight + begin,
               dbias == nullptr ? nullptr : dbias + begin);
  }
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
    RowTable table(whole, 1, false, master::row_grains(columns),
                   workspace.segments());
    table.add(all.rows, {x.data, bias.data, residual.data});
    workspace.run(impl, table.list());
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
      table.add(1, {row_of(x, i) + begin * master::kScalarTypeBytes[x.dtype],
                    static_cast<const std::byte*>(bias.data) +
                        begin * master::kScalarTypeBytes[bias.dtype],
                    row_of(residual, i) + begin * sizeof(float)});
    }
    workspace.run(impl, table.list());
  }
}

}  // namespace swamp
