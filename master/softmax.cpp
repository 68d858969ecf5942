// Softmax of rows, or its log, and its gradient. Rows that fit into LDM take
// one launch whose units are rows. A longer row takes two launches whose units
// are its columns: Pass::sum gives the maximum and the sum of each chunk of
// 4096 columns, from which this file computes a factor for each chunk, and
// Pass::map writes the row with them. The formulas and the order of sums are in
// slave/row_args.h; both ways give the same bits.
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
using slave::SoftmaxArgs;
using slave::SoftmaxBackwardArgs;
using slave::SoftmaxChunk;
using slave::SoftmaxFactor;

namespace {

// ValidColumns holds the number of columns that count in each row, from where
// passes on columns read it. Row i is the same as row i % causal_rows.
class ValidColumns {
 public:
  ValidColumns(std::size_t columns, std::size_t causal_rows)
      : valid_(std::max<std::size_t>(1, causal_rows), columns) {
    for (std::size_t i = 0; i < causal_rows; ++i) {
      valid_[i] = std::min<std::size_t>(columns, i + 1);
    }
  }
  const std::uint64_t& operator[](std::size_t row) const noexcept {
    return valid_[row % valid_.size()];
  }

 private:
  std::vector<std::uint64_t> valid_;
};

// Softmax is one call, after validation.
struct Softmax {
  Machine::Impl& machine;
  const Matrix& x;
  const Matrix& y;
  const SoftmaxOptions& options;
  SoftmaxArgs args;

  bool masked() const { return options.mask.data != nullptr; }
  // mask_row() returns the mask's bytes for row i; null without a mask.
  const std::uint8_t* mask_row(std::size_t i, std::size_t column = 0) const {
    const SoftmaxMask& mask = options.mask;
    if (!masked()) return nullptr;
    const std::size_t batch = i / mask.query_rows / mask.heads % mask.batches;
    return mask.data +
           (batch * mask.query_rows + i % mask.query_rows) * x.columns + column;
  }

  // operation() is an operation of whole rows, or a pass on columns.
  template <class Units>
  Operation operation(Units units) const {
    Operation result(
        master::row_kernel<KernelFamily::scaled_softmax, 5>(x.dtype), &args,
        units);
    if (!masked()) result.remove_operand(1);
    if (result.pass != Pass::map) result.remove_operand(3);
    if (result.pass == Pass::rows) result.remove_operand(4);
    return result;
  }

  // run() computes whole rows if they fit into LDM, else pieces in two passes.
  void run() {
    Operation whole = operation(x.columns);
    // The exponentials of a row of one chunk are kept: in scratch memory, or,
    // for float32, in the output.
    if (args.log == 0 && x.dtype != kFloat32 && x.columns <= kChunkColumns) {
      whole.scratch_bytes =
          static_cast<std::uint32_t>(x.columns * sizeof(float));
    }
    if (!master::fits_rows(machine, x, whole)) {
      run_passes();
      return;
    }
    Workspace& workspace = Workspace::of_this_thread();
    const std::size_t segment_rows =
        masked() ? options.mask.query_rows : x.rows;
    RowTable table(whole, x.rows / segment_rows, false,
                   master::row_grains(x.columns), workspace.segments());
    for (std::size_t i = 0; i < x.rows; i += segment_rows) {
      table.add(segment_rows,
                {row_of(x, i), mask_row(i), row_of(y, i), nullptr, nullptr});
    }
    workspace.run(machine, table.list());
  }

  // run_passes() reads the rows once for the maximum and the sum of each chunk,
  // and a second time to compute y.
  void run_passes() {
    Operation sum = operation(Pass::sum);
    sum.tile_step = master::chunk_step(x.columns);
    const ValidColumns valid(x.columns, options.causal_rows);
    const std::size_t chunks = master::chunks_of(x.columns);
    const auto* sums = master::sum_columns<SoftmaxChunk>(
        machine, "x", x, sum, [&](RowTable& table, std::size_t i) {
          table.add(x.columns,
                    {row_of(x, i), mask_row(i), nullptr, nullptr, &valid[i]});
        });
    std::vector<SoftmaxFactor> factors(x.rows * chunks);
    std::vector<std::uint64_t> chunk_valid(x.rows * chunks);
    const auto add = [&](RowTable& table, std::size_t i) {
      const slave::SoftmaxTotal total =
          slave::combine_chunks(sums + i * chunks, chunks);
      for (std::size_t c = 0; c < chunks; ++c) {
        const std::size_t at = i * chunks + c;
        const std::size_t begin = c * kChunkColumns;
        factors[at] = slave::softmax_factor(args, sums[at].max, total);
        chunk_valid[at] = valid[i] > begin ? valid[i] - begin : 0;
        table.add(std::min(kChunkColumns, x.columns - begin),
                  {row_of(x, i, begin), mask_row(i, begin), row_of(y, i, begin),
                   &factors[at], &chunk_valid[at]});
      }
    };
    master::map_columns(machine, "x", x, operation(Pass::map), add, chunks);
  }
};

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
void backward(Machine::Impl& impl, const Matrix& gradient, const Matrix& y,
              const Matrix& dx, const SoftmaxBackwardArgs& args) {
  const KernelInfo& kernel =
      master::row_kernel<KernelFamily::softmax_backward, 5>(y.dtype);
  Operation whole(kernel, &args, y.columns);
  whole.remove_operand(3);
  whole.remove_operand(4);
  if (runtime::ldm_need(impl, whole, 0).fits()) {
    master::run_rows(impl, whole, y,
                     {gradient.data, y.data, dx.data, nullptr, nullptr});
    return;
  }

  // Two passes: the sum of the terms by chunk, then dx.
  Operation sum(kernel, &args, Pass::sum);
  sum.tile_step = slave::kChains;
  sum.remove_operand(3);
  const ValidColumns valid(y.columns, args.causal_rows);
  const std::size_t chunks = master::chunks_of(y.columns);
  const auto* sums = master::sum_columns<slave::ChainSums>(
      impl, "y", y, sum, [&](RowTable& table, std::size_t i) {
        table.add(y.columns, {row_of(gradient, i), row_of(y, i), nullptr,
                              nullptr, &valid[i]});
      });
  std::vector<float> dots(y.rows);
  const auto add = [&](RowTable& table, std::size_t i) {
    double dot = 0;
    for (std::size_t c = 0; c < chunks; ++c) {
      dot += static_cast<double>(sums[i * chunks + c].total());
    }
    dots[i] = static_cast<float>(dot);
    table.add(y.columns, {row_of(gradient, i), row_of(y, i), row_of(dx, i),
                          &dots[i], &valid[i]});
  };
  master::map_columns(impl, "y", y, Operation(kernel, &args, Pass::map), add);
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
  Softmax{impl, x, y, options, args}.run();
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
  const SoftmaxOptions options;
  Softmax{impl, x, y, options, args}.run();
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
