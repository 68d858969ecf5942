// Sums along one dimension, and the norms of channels that are made of them. A
// long sum is divided into chunks, whose sums in double are added in a next
// launch, so that every slave has a part: the chunks depend on the shape alone.
// Norms are computed block by block, so that the caches have the rows that a
// block's second launch reads again.
#include "swamp/channel_norm.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <string>

#include "master/row_launch.h"
#include "master/text.h"

namespace swamp {

using master::Checker;
using master::divided;
using master::RowTable;
using master::Workspace;
using slave::RowFactors;
using slave::RowSumsArgs;

namespace {

// The terms of one sum: elements that lie next to each other, or lines.
constexpr std::size_t kRowTerms = 8192, kLineTerms = 128;

// Channels whose sums a slave adds at a time, and whose factors it reads, if
// they are last.
constexpr std::uint32_t kSumChannels = 64, kAffineChannels = 1024;

// row_sums() returns the operation that adds the elements of rows.
Operation row_sums(ScalarType type, const RowSumsArgs& args) {
  return {master::row_kernel<KernelFamily::row_sums>(type), &args,
          static_cast<std::size_t>(args.columns)};
}

// sum_chunks() adds the terms of the chunks of an array of a shape, or joins
// them: sums[o, c, i] is the sum of chunk c, of at most `terms` terms.
void sum_chunks(Machine::Impl& machine, const Tensor& x, const void* factor,
                RowSumsArgs::Term term, float limit, const SumShape& shape,
                std::size_t terms, double* sums) {
  using At = slave::RowSumsOperand;
  const std::size_t bytes = kScalarTypeBytes[x.dtype];
  const std::size_t chunks = divided(shape.terms, terms);
  const std::size_t last = shape.terms - (chunks - 1) * terms;
  const bool is_by_row = shape.inner == 1;
  // All chunks but the last, and the last one.
  const bool has_factor = factor != nullptr && term != RowSumsArgs::square;
  const RowSumsArgs args[] = {{terms, term, limit}, {last, term, limit}};
  Operation operations[2];
  for (int k = 0; k < 2; ++k) {
    operations[k] =
        is_by_row ? row_sums(x.dtype, args[k])
                  : master::line_sums(machine, x.dtype, kFloat64,
                                      static_cast<std::size_t>(args[k].columns),
                                      shape.inner * bytes);
    if (is_by_row) {
      if (!has_factor) operations[k].remove_operand(At::factor);
      operations[k].remove_operand(At::shift);
      operations[k].remove_operand(At::factor_sum);
    }
    master::require_ldm("x", {nullptr, 1, terms, x.dtype},
                        runtime::ldm_need(machine, operations[k], 0));
  }
  // Whole chunks of a row follow each other, and are one segment.
  const std::size_t whole = is_by_row ? 1 : chunks - 1;
  const std::size_t of_outer = (chunks == 1 ? 0 : whole) + 1;
  Workspace& workspace = Workspace::of_this_thread();
  RowTable table(operations, 2, shape.outer * of_outer, false,
                 is_by_row ? master::row_grains(terms) : master::kLineGrains,
                 workspace.segments());
  table.fill(machine, shape.outer * of_outer, [&](std::size_t i, auto set) {
    const std::size_t o = i / of_outer, segment = i % of_outer;
    const bool is_last = segment + 1 == of_outer;
    const std::size_t chunk = is_last ? chunks - 1 : segment;
    const std::size_t begin =
        (o * shape.terms + chunk * terms) * shape.inner * bytes;
    const std::byte* from = static_cast<const std::byte*>(x.data) + begin;
    double* const to = sums + (o * chunks + chunk) * shape.inner;
    if (is_by_row) {
      const void* const by =
          has_factor ? static_cast<const std::byte*>(factor) + begin : nullptr;
      set(is_last ? 1 : chunks - 1, {from, by, nullptr, to, nullptr}, is_last);
    } else {
      set(shape.inner, {from, to}, is_last);
    }
  });
  workspace.run(machine, table.list());
}

// RowBlock is some statistics and their rows: `segments` times `rows` rows,
// from row `row` on, each `step` rows after the one before.
struct RowBlock {
  std::size_t first, count;  // statistics
  std::size_t row, rows, segments, step;
  std::size_t of_statistic;  // rows of a segment
  std::size_t channels;
  std::size_t blocks;  // of the tensor

  // for_rows() calls visit(row, statistic, channel) for each row.
  template <class Visit>
  void for_rows(const Visit& visit) const {
    for (std::size_t s = 0; s < segments; ++s) {
      std::size_t r = row + s * step, c = r % channels;
      for (std::size_t k = first; k < first + count; ++k) {
        for (std::size_t i = 0; i < of_statistic; ++i) {
          visit(r++, k, c++);
          if (c == channels) c = 0;
        }
      }
    }
  }
};

// Rows is what the functions of channels have in common.
struct Rows {
  Rows(const Matrix& matrix, const ChannelShape& channels_of)
      : shape(channels_of), x(matrix) {
    master::require_matrix("x", x);
    if (shape.channels == 0 || x.rows % shape.channels != 0) {
      master::refuse("shape.channels", std::to_string(shape.channels),
                     "a divisor of x.rows, " + std::to_string(x.rows));
    }
    if (shape.groups != 0 && shape.channels % shape.groups != 0) {
      master::refuse("shape.groups", std::to_string(shape.groups),
                     "0 or a divisor of shape.channels, " +
                         std::to_string(shape.channels));
    }
    if (shape.channels_last && shape.groups != 0) {
      master::refuse("shape.groups", std::to_string(shape.groups),
                     "0, because the channels are last");
    }
    count = shape.statistics(x.rows);
    elements = count == 0 ? 0
                          : static_cast<double>(x.rows / count) *
                                static_cast<double>(x.columns);
    in_group = shape.groups == 0 ? 1 : shape.channels / shape.groups;
  }
  bool is_empty() const noexcept { return x.rows == 0 || x.columns == 0; }

  // block() returns the block of some statistics. `joined` rows follow each
  // other, and are one row of it.
  RowBlock block(std::size_t first, std::size_t statistics,
                 std::size_t joined) const noexcept {
    const std::size_t rows = in_group / joined;
    return {first,
            statistics,
            first * rows,
            statistics * rows,
            shape.groups == 0 ? x.rows / count : 1,
            count * rows,
            rows,
            shape.channels,
            divided(count, statistics)};
  }
  RowBlock all() const noexcept { return block(0, count, 1); }
  // for_blocks() calls visit() with each block. Launches read `tensors` of the
  // size of x.
  template <class Visit>
  void for_blocks(const Machine::Impl& machine, std::size_t tensors,
                  std::size_t joined, const Visit& visit) const {
    constexpr std::size_t kSlaveBytes = std::size_t{1} << 20;
    const std::size_t bytes = tensors * (x.rows / count) * x.columns *
                              kScalarTypeBytes[x.dtype];
    const auto slaves = static_cast<std::size_t>(machine.slaves());
    const std::size_t most =
        shape.channels_last
            ? count
            : std::clamp<std::size_t>(slaves * kSlaveBytes / bytes, 1, count);
    const std::size_t size = divided(count, divided(count, most));
    for (std::size_t k = 0; k < count; k += size) {
      visit(block(k, std::min(size, count - k), joined));
    }
  }

  const ChannelShape& shape;
  const Matrix& x;
  std::size_t count;     // of means
  std::size_t in_group;  // channels of a group; BatchNorm: 1
  double elements;       // of a mean
};

void require_values(const char* name, const void* data, std::size_t count) {
  master::require_array(name, data, alignof(float), count);
}

// set_lines() makes a unit of some operands an element of each of `lines` lines
// of the channels.
void set_lines(Operation& operation, std::initializer_list<int> operands,
               ScalarType type, std::size_t lines, std::size_t channels) {
  const std::size_t bytes = kScalarTypeBytes[type];
  for (const int s : operands) {
    operation.set_lines(s, lines, bytes, channels * bytes, bytes);
  }
}

// offset() returns data + count; null if data is null.
template <class T>
T* offset(T* data, std::size_t count) {
  return data == nullptr ? nullptr : data + count;
}

// run_channel_sums() is run_sums() of a matrix whose channels are last.
void run_channel_sums(Machine::Impl& machine, const Matrix& x,
                      std::size_t channels, RowSumsArgs::Term term,
                      const void* factor, const float* shift, double* sums,
                      double* factor_sums) {
  using At = slave::ChannelSumsOperand;
  slave::ChannelSumsArgs args{kSumChannels, term};
  Operation operation(master::row_kernel<KernelFamily::channel_sums>(x.dtype),
                      &args);
  set_lines(operation, {At::x, At::factor}, x.dtype, x.columns, channels);
  if (factor == nullptr) operation.remove_operand(At::factor);
  if (shift == nullptr) operation.remove_operand(At::shift);
  if (factor_sums == nullptr) operation.remove_operand(At::factor_sum);
  const auto need = [&] {
    operation.tile_step = args.block;
    operation.scratch_bytes = static_cast<std::uint32_t>(
        slave::channel_sums_scratch_bytes(args.block));
    return runtime::ldm_need(machine, operation, 0);
  };
  while (!need().fits() && args.block > 1) args.block /= 2;
  master::require_ldm("x", x, need());
  Workspace& workspace = Workspace::of_this_thread();
  RowTable table(operation, x.rows / channels, false, master::kLineGrains,
                 workspace.segments());
  for (std::size_t r = 0; r < x.rows; r += channels) {
    const std::size_t at = r * x.columns * kScalarTypeBytes[x.dtype];
    const auto from = [&](const void* data) {
      return offset(static_cast<const std::byte*>(data), at);
    };
    table.add(channels, {from(x.data), from(factor), offset(shift, r), sums + r,
                         offset(factor_sums, r)});
  }
  workspace.run(machine, table.list());
}

// run_block() launches an operation on the rows of a block; `addresses` are
// those of the first row of x.
void run_block(Machine::Impl& machine, const Matrix& x, const RowBlock& block,
               const Operation& operation,
               std::initializer_list<const void*> addresses) {
  master::require_ldm("x", x, runtime::ldm_need(machine, operation, 0));
  Workspace& workspace = Workspace::of_this_thread();
  RowTable table(operation, block.segments, false,
                 master::row_grains(x.columns), workspace.segments());
  for (std::size_t s = 0; s < block.segments; ++s) {
    table.add_from(block.rows, addresses, block.row + s * block.step);
  }
  master::SegmentList list = table.list();
  list.memory_bytes = list.traffic_bytes * block.blocks;
  workspace.run(machine, list);
}

// run_sums() sets sums[r] to the sum of the terms of row r, and factor_sums[r]
// to that of the factor.
void run_sums(Machine::Impl& machine, const Matrix& x,
              const ChannelShape& shape, const RowBlock& block, bool squares,
              const void* factor, const float* shift, double* sums,
              double* factor_sums = nullptr) {
  using At = slave::RowSumsOperand;
  const RowSumsArgs args{x.columns,
                         factor != nullptr ? RowSumsArgs::product
                         : squares         ? RowSumsArgs::square
                                           : RowSumsArgs::plain,
                         0};
  if (shape.channels_last) {
    return run_channel_sums(machine, x, shape.channels, args.term, factor,
                            shift, sums, factor_sums);
  }
  Operation operation = row_sums(x.dtype, args);
  if (factor == nullptr) operation.remove_operand(At::factor);
  if (shift == nullptr) operation.remove_operand(At::shift);
  if (factor_sums == nullptr) operation.remove_operand(At::factor_sum);
  run_block(machine, x, block, operation,
            {x.data, factor, shift, sums, factor_sums});
}

// run_channel_affine() is run_affine() of a matrix whose channels are last. A
// channel has the same factors in all images.
void run_channel_affine(Machine::Impl& machine, const Matrix& x,
                        std::size_t channels, const void* gradient,
                        const RowFactors* factors, const Matrix& y) {
  using At = slave::RowAffineOperand;
  const std::size_t lines = x.rows / channels * x.columns;
  const std::size_t whole = std::min(lines, kLineTerms);
  slave::ChannelAffineArgs args{kAffineChannels};
  Operation operations[2];
  const auto fits = [&] {
    for (Operation& operation : operations) {
      operation = {master::row_kernel<KernelFamily::channel_affine>(x.dtype),
                   &args};
      set_lines(operation, {At::x, At::gradient, At::y}, x.dtype,
                &operation == operations ? whole : lines % whole, channels);
      if (gradient == nullptr) operation.remove_operand(At::gradient);
      operation.tile_step = static_cast<std::uint32_t>(args.block);
      operation.scratch_bytes =
          static_cast<std::uint32_t>(args.block * sizeof *factors);
    }
    return runtime::ldm_need(machine, operations[0], 0).fits();
  };
  while (!fits() && args.block > 1) args.block /= 2;
  master::require_ldm("x", x, runtime::ldm_need(machine, operations[0], 0));
  Workspace& workspace = Workspace::of_this_thread();
  RowTable table(operations, 2, divided(lines, whole), false,
                 master::kLineGrains, workspace.segments());
  for (std::size_t line = 0; line < lines; line += whole) {
    const std::size_t at = line * channels * kScalarTypeBytes[x.dtype];
    const auto from = [&](const void* data) {
      return offset(static_cast<const std::byte*>(data), at);
    };
    table.add(channels, {from(x.data), from(gradient), factors, from(y.data)},
              lines - line < whole ? 1 : 0);
  }
  workspace.run(machine, table.list());
}

// run_affine() launches row_affine; a gradient of null is absent.
void run_affine(Machine::Impl& machine, const Matrix& x,
                const ChannelShape& shape, const RowBlock& block,
                const void* gradient, const RowFactors* factors,
                const Matrix& y) {
  if (shape.channels_last) {
    return run_channel_affine(machine, x, shape.channels, gradient, factors, y);
  }
  const slave::RowAffineArgs args{x.columns};
  Operation operation(master::row_kernel<KernelFamily::row_affine>(x.dtype),
                      &args, x.columns);
  if (gradient == nullptr) {
    operation.remove_operand(slave::RowAffineOperand::gradient);
  }
  run_block(machine, x, block, operation,
            {x.data, gradient, factors, y.data});
}

float value_of(const float* values, std::size_t i, float otherwise) {
  return values == nullptr ? otherwise : values[i];
}

}  // namespace

void sum(const Tensor& x, const SumShape& shape, double* sums, Machine* machine,
         const void* factor, const float* limit, bool narrow) {
  constexpr std::uint32_t kTypes = master::kRowTypes | 1u << kFloat64;
  Checker("x").dtype(x.dtype, kTypes);
  std::size_t results = 0, count = 0;
  if (__builtin_mul_overflow(shape.outer, shape.inner, &results) ||
      __builtin_mul_overflow(results, shape.terms, &count)) {
    master::refuse("shape",
                   std::to_string(shape.outer) + " x " +
                       std::to_string(shape.terms) + " x " +
                       std::to_string(shape.inner),
                   "at most " + std::to_string(SIZE_MAX) + " elements");
  }
  Checker("x")
      .same("count", x.count, count, "shape")
      .data(x.data, kScalarTypeBytes[x.dtype], x.count);
  master::require_array("sums", sums, alignof(double), results);
  if (factor != nullptr) {
    Checker("factor").data(factor, kScalarTypeBytes[x.dtype], x.count);
    if (shape.inner != 1) {
      master::refuse("shape.inner", std::to_string(shape.inner),
                     "1, because there is a factor");
    }
  }
  if (limit != nullptr && factor == nullptr) {
    master::refuse("limit", "an address", "null, because there is no factor");
  }
  if (narrow) {
    Checker("x").dtype(x.dtype, 1u << kFloat16 | 1u << kBFloat16);
    if (shape.inner != 1) {
      master::refuse("shape.inner", std::to_string(shape.inner),
                     "1, because sums are narrow");
    }
    if (factor != nullptr && limit == nullptr) {
      master::refuse("limit", "null",
                     "an address, because sums with a factor are narrow");
    }
  }
  Machine::Impl& impl = master::impl_of(machine);
  if (results == 0) return;
  if (shape.terms == 0) {
    std::fill(sums, sums + results, 0.0);
    return;
  }
  RowSumsArgs::Term term = narrow && limit != nullptr ? RowSumsArgs::narrow_loss
                           : narrow            ? RowSumsArgs::narrow_plain
                           : limit != nullptr  ? RowSumsArgs::loss
                           : factor == nullptr ? RowSumsArgs::plain
                           : factor == x.data  ? RowSumsArgs::square
                                               : RowSumsArgs::product;
  const std::size_t terms = shape.inner == 1 ? kRowTerms : kLineTerms;
  std::size_t scratch = 0;
  for (std::size_t n = divided(shape.terms, terms); n > 1;) {
    scratch += results * n;
    n = divided(n, terms);
  }
  double* to = Workspace::of_this_thread().row_values<double>(
      std::max<std::size_t>(scratch, 1));
  Tensor from = x;
  for (SumShape rest = shape;;) {
    const std::size_t chunks = divided(rest.terms, terms);
    sum_chunks(impl, from, factor, term, limit == nullptr ? 0 : *limit, rest,
               terms, chunks == 1 ? sums : to);
    if (chunks == 1) return;
    factor = nullptr;
    term = RowSumsArgs::plain;
    from = {to, results * chunks, kFloat64};
    to += results * chunks;
    rest.terms = chunks;
  }
}

void row_extremes(const Matrix& x, bool is_smallest, double* extremes,
                  Machine* machine) {
  master::require_matrix("x", x);
  Checker("x").dtype(x.dtype, 1u << kFloat16 | 1u << kBFloat16);
  master::require_array("extremes", extremes, alignof(double), x.rows);
  Machine::Impl& impl = master::impl_of(machine);
  if (x.rows == 0) return;
  if (x.columns == 0) {
    const double infinity = std::numeric_limits<double>::infinity();
    std::fill(extremes, extremes + x.rows, is_smallest ? infinity : -infinity);
    return;
  }
  const std::size_t chunks = divided(x.columns, kRowTerms);
  double* const found =
      chunks == 1
          ? extremes
          : Workspace::of_this_thread().row_values<double>(x.rows * chunks);
  sum_chunks(impl, {x.data, x.rows * x.columns, x.dtype}, nullptr,
             is_smallest ? RowSumsArgs::smallest : RowSumsArgs::largest, 0,
             {x.rows, x.columns, 1}, kRowTerms, found);
  if (chunks == 1) return;
  for (std::size_t i = 0; i < x.rows; ++i) {
    extremes[i] = found[i * chunks];
    for (std::size_t c = 1; c < chunks; ++c) {
      const double next = found[i * chunks + c];
      const bool is_other_zero =  // the positive one is larger
          next == extremes[i] && std::signbit(next) == is_smallest;
      if (std::isnan(next) || is_other_zero ||
          (is_smallest ? next < extremes[i] : extremes[i] < next)) {
        extremes[i] = next;
      }
    }
  }
}

void channel_statistics(const Matrix& x, const ChannelShape& shape, double eps,
                        float* mean, float* variance, float* rstd,
                        Machine* machine) {
  const Rows rows(x, shape);
  require_values("mean", mean, rows.count);
  if (variance != nullptr) require_values("variance", variance, rows.count);
  require_values("rstd", rstd, rows.count);
  Machine::Impl& impl = master::impl_of(machine);
  if (rows.count == 0) return;
  if (rows.is_empty()) {
    for (float* const values : {mean, variance, rstd}) {
      if (values != nullptr) std::fill(values, values + rows.count, NAN);
    }
    return;
  }
  // The rows of a group follow each other, and are one row here.
  const Matrix all{x.data, x.rows / rows.in_group, x.columns * rows.in_group,
                   x.dtype};
  auto* const sums =
      Workspace::of_this_thread().row_values<double>(2 * all.rows + rows.count);
  auto* const shifts = reinterpret_cast<float*>(sums + all.rows);
  double* const totals = sums + 2 * all.rows;
  rows.for_blocks(impl, 1, rows.in_group, [&](const RowBlock& block) {
    // totals[k] becomes the sum of sums[r] over the rows of statistic k.
    const auto add_up = [&] {
      std::fill_n(totals + block.first, block.count, 0.0);
      block.for_rows([&](std::size_t r, std::size_t k, std::size_t) {
        totals[k] += sums[r];
      });
    };
    run_sums(impl, all, shape, block, false, nullptr, nullptr, sums);
    add_up();
    for (std::size_t k = block.first; k < block.first + block.count; ++k) {
      mean[k] = static_cast<float>(totals[k] / rows.elements);
    }
    block.for_rows([&](std::size_t r, std::size_t k, std::size_t) {
      shifts[r] = mean[k];
    });
    run_sums(impl, all, shape, block, true, nullptr, shifts, sums);
    add_up();
    for (std::size_t k = block.first; k < block.first + block.count; ++k) {
      const double square = totals[k] / rows.elements;
      if (variance != nullptr) variance[k] = static_cast<float>(square);
      rstd[k] = static_cast<float>(1.0 / std::sqrt(square + eps));
    }
  });
}

void channel_norm(const Matrix& x, const ChannelShape& shape, const float* mean,
                  const float* rstd, const float* weight, const float* bias,
                  const Matrix& y, Machine* machine) {
  const Rows rows(x, shape);
  master::require_like("y", y, "x", x);
  require_values("mean", mean, rows.count);
  require_values("rstd", rstd, rows.count);
  if (weight != nullptr) require_values("weight", weight, shape.channels);
  if (bias != nullptr) require_values("bias", bias, shape.channels);
  Machine::Impl& impl = master::impl_of(machine);
  if (rows.is_empty()) return;
  auto* const factors =
      Workspace::of_this_thread().row_values<RowFactors>(x.rows);
  rows.all().for_rows([&](std::size_t r, std::size_t k, std::size_t c) {
    factors[r] = {mean[k], rstd[k] * value_of(weight, c, 1),
                  value_of(bias, c, 0), 0};
  });
  run_affine(impl, x, shape, rows.all(), nullptr, factors, y);
}

void channel_norm_backward(const Matrix& gradient, const Matrix& x,
                           const ChannelShape& shape, const float* mean,
                           const float* rstd, const float* weight,
                           bool is_fixed, const Matrix& dx, float* dweight,
                           float* dbias, Machine* machine) {
  const Rows rows(x, shape);
  master::require_like("gradient", gradient, "x", x);
  if (dx.data != nullptr) master::require_like("dx", dx, "x", x);
  require_values("mean", mean, rows.count);
  require_values("rstd", rstd, rows.count);
  if (weight != nullptr) require_values("weight", weight, shape.channels);
  if (dweight != nullptr) require_values("dweight", dweight, shape.channels);
  if (dbias != nullptr) require_values("dbias", dbias, shape.channels);
  Machine::Impl& impl = master::impl_of(machine);
  if (rows.is_empty()) {
    for (float* const values : {dweight, dbias}) {
      if (values != nullptr) std::fill(values, values + shape.channels, 0.0f);
    }
    return;
  }
  // Of a row the sums of gradient and gradient * (x - mean), of a statistic
  // those of both times weight, and of a channel those of both.
  auto* const memory = Workspace::of_this_thread().row_values<double>(
      5 * x.rows + 4 * rows.count + 2 * shape.channels);
  double *const sums = memory, *const products = sums + x.rows,
                *const sum_of = products + x.rows,
                *const product_of = sum_of + rows.count,
                *const dbias_of = product_of + rows.count,
                *const dweight_of = dbias_of + shape.channels;
  auto* const factors =
      reinterpret_cast<RowFactors*>(dweight_of + shape.channels);
  RowFactors* const of = factors + x.rows;  // a statistic
  auto* const shifts = reinterpret_cast<float*>(of + rows.count);
  std::fill(sum_of, sum_of + 2 * rows.count + 2 * shape.channels, 0.0);
  rows.for_blocks(impl, 2, 1, [&](const RowBlock& block) {
    block.for_rows([&](std::size_t r, std::size_t k, std::size_t) {
      shifts[r] = mean[k];
    });
    run_sums(impl, x, shape, block, false, gradient.data, shifts, products,
             sums);
    block.for_rows([&](std::size_t r, std::size_t k, std::size_t c) {
      const double w = static_cast<double>(value_of(weight, c, 1));
      sum_of[k] += w * sums[r];
      product_of[k] += w * products[r];
      dbias_of[c] += sums[r];
      dweight_of[c] += static_cast<double>(rstd[k]) * products[r];
    });
    if (dx.data == nullptr) return;
    for (std::size_t k = block.first; k < block.first + block.count; ++k) {
      const double by = static_cast<double>(rstd[k]);
      const double x_factor = by * by * by * product_of[k] / rows.elements,
                   addend = by * sum_of[k] / rows.elements;
      of[k] = {mean[k], static_cast<float>(-x_factor),
               static_cast<float>(-addend), 0};
    }
    block.for_rows([&](std::size_t r, std::size_t k, std::size_t c) {
      const float factor = rstd[k] * value_of(weight, c, 1);
      factors[r] = of[k];
      factors[r].gradient_factor = factor;
      if (is_fixed) factors[r] = {0, factor, 0, 0};
    });
    if (is_fixed) {
      run_affine(impl, gradient, shape, block, nullptr, factors, dx);
    } else {
      run_affine(impl, x, shape, block, gradient.data, factors, dx);
    }
  });
  for (std::size_t c = 0; c < shape.channels; ++c) {
    if (dweight != nullptr) dweight[c] = static_cast<float>(dweight_of[c]);
    if (dbias != nullptr) dbias[c] = static_cast<float>(dbias_of[c]);
  }
}

}  // namespace swamp
