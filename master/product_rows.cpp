// Products with few rows, or of float32 with at most 512 terms, which are
// computed from b as it lies in memory: only the rows of a are packed.
#include <algorithm>

#include "master/product.h"
#include "master/row_launch.h"

namespace swamp::master {

using slave::kProductLanes;
using slave::ProductArgs;

namespace {

// reads_rows() returns whether the rows of b are read as they are for many rows
// of a, too: there are so few terms that b's part for some columns stays in the
// caches, enough columns for all slaves, whole vectors of them, and nothing is
// done to the sums. Rows of b that are large powers of two apart would share a
// few sets of a CPU's caches.
bool reads_rows(const ProductCall& call) {
  constexpr std::size_t kMostTerms = 512, kBytes = 512;
  const std::size_t columns = call.out.columns, panels = panels_of(columns);
  return call.a.dtype == kFloat32 && call.b.column_step == 1 &&
         call.out.column_step == 1 && call.terms() <= kMostTerms &&
         call.b.row_step * call.bytes() % kBytes != 0 &&
         columns % 16 == 0 && !call.adds() && call.scales.a == nullptr &&
         call.alpha == 1 &&
         call.out.batch * panels >=
             4 * static_cast<std::size_t>(call.machine.slaves());
}

}  // namespace

std::size_t most_few_rows(const ProductCall& call) {
  // Packing all of b pays for more rows. It also divides rows between slaves,
  // which a factor that few slaves read is not worth.
  const std::size_t columns = call.out.columns;
  const bool has_columns =
      columns / kProductLanes >=
          4 * static_cast<std::size_t>(call.machine.slaves()) ||
      call.terms() * columns <= (std::size_t{1} << 16);
  if (reads_rows(call)) {
    // Packed rows of a, and their sums, stay in a slave's caches.
    constexpr std::size_t kMostRows = 2048, kMostWords = std::size_t{1} << 18;
    return std::min(kMostRows,
                    kMostWords / std::max<std::size_t>(call.terms(), 1));
  }
  return !has_columns              ? slave::kFewProductRows
         : call.b.column_step == 1 ? 64
                                   : 32;
}

bool product_of_few_rows(const ProductCall& call) {
  const Matrices &out = call.out, &a = call.a, &b = call.b, &self = call.self;
  const std::size_t terms = call.terms();
  // The rows are lines, or the columns are.
  const bool is_few = out.rows <= most_few_rows(call) &&
                      terms <= std::size_t{1} << 20 &&
                      (out.rows == 1 || out.columns == 1 || out.row_step == 1 ||
                       out.column_step == 1);
  if (!is_few) return false;
  constexpr std::size_t kFewWords = 256;  // of a panel that fits into L1
  const std::size_t width = slave::product_rows_width(out.rows);
  // Rows of b are read as they are, without pairs.
  const bool pairs = call.pairs && b.column_step != 1;
  const std::size_t slivers = (out.rows + width - 1) / width,
                    bytes = slivers *
                            slave::product_panel_bytes(terms, width, pairs);
  // Whole panels, and the last one if it is narrower.
  struct Group {
    std::size_t column, columns;
    ProductArgs args;
  } parts[2];
  Operation operations[2];
  std::size_t count = 0;
  for (std::size_t column = 0; column < out.columns; ++count) {
    const std::size_t left = out.columns - column;
    const std::size_t lanes = std::min(left, kProductLanes);
    Group& now = parts[count];
    now = {column, left - left % lanes, call.common_args()};
    now.args.columns = now.columns;
    now.args.pairs = pairs;
    now.args.rows = static_cast<std::uint32_t>(out.rows);
    now.args.block_terms =
        call.block_terms_of(terms, kFewWords * (pairs ? 2 : 1));
    Operation& operation = operations[count];
    using At = slave::ProductRowsOperand;
    operation = Operation(call.kernel(KernelFamily::product_rows), &now.args);
    const auto set = [&](int s, const Matrices& x, std::size_t rows) {
      return set_unit(operation, s, x, rows, lanes,
                      kProductLanes * x.column_step);
    };
    now.args.in = set(At::b, b, terms);
    operation.set_unit_bytes(At::a, bytes);
    now.args.self = set(At::self, self, call.adds() ? out.rows : 0);
    now.args.out = set(At::out, out, out.rows);
    const std::size_t scale_bytes = call.steps_of(terms) * sizeof(float);
    operation.set_unit_bytes(At::a_scales, out.rows * scale_bytes);
    operation.set_unit_bytes(At::b_scales, lanes * scale_bytes);
    operation.scratch_bytes = static_cast<std::uint32_t>(
        slave::product_rows_scratch_bytes(out.rows, now.args.block_terms));
    // 3 operations take about as long as the transfer of a byte.
    operation.traffic_bytes = static_cast<std::uint32_t>(
        1 + kProductLanes * terms * std::max(call.bytes(), out.rows * 2 / 3));
    if (!call.fits(operation)) return false;
    column += now.columns;
  }
  slave::ProductPackArgs pack = pack_args(terms, width, width, pairs);
  if (!call.fits(pack_operation(pack, a.transposed()))) return false;

  const bool is_shared = a.batch_step == 0;
  const std::size_t most =
      is_shared ? out.batch
                : std::clamp<std::size_t>(kPackedBytes / bytes, 1, out.batch);
  Workspace& workspace = Workspace::of_this_thread();
  std::byte* const packed =
      workspace.row_values<std::byte>(bytes * (is_shared ? 1 : most));
  for (std::size_t first = 0; first < out.batch; first += most) {
    const std::size_t batch = std::min(most, out.batch - first);
    const PackedLanes lanes{part(a, first, 0, 0).transposed(),
                            is_shared ? 1 : batch, out.rows, width, packed};
    pack_panels(call.machine, &lanes, 1, terms, terms, pairs);
    RowTable table(operations, count, count * batch, false,
                   {1, ~std::size_t{0}}, workspace.segments());
    for (std::size_t i = 0; i < batch; ++i) {
      for (std::size_t p = 0; p < count; ++p) {
        const std::size_t column = parts[p].column;
        table.add(panels_of(parts[p].columns),
                  {part(b, first + i, 0, column).data,
                   packed + (is_shared ? 0 : i * bytes),
                   part(self, first + i, 0, column).data,
                   part(out, first + i, 0, column).data, call.scales.a,
                   call.place(call.scales.b, column)},
                  p);
      }
    }
    workspace.run(call.machine, table.list());
  }
  return true;
}

}  // namespace swamp::master
