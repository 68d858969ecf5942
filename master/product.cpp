// Matrix products. In transfer mode view the matrices stay where they are: one
// launch packs a part of b that fits into the caches, in panels of columns, and
// one computes rows of the result with it. The rows of a are packed by the
// slave that needs them, and gathered before. Few rows are computed from b as
// it lies in memory. In the other modes the units of a launch must be dense:
// the master copies parts of the matrices, which a slave's LDM bounds, and the
// sums stay in main memory between the launches. All ways compute the same
// bits.
#include "swamp/product.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "master/product.h"
#include "master/row_launch.h"
#include "master/text.h"
#include "runtime/float_environment.h"
#include "slave/product_args.h"

namespace swamp {

using master::kPackedBytes;
using master::pack_panels;
using master::panels_of;
using master::part;
using master::require_size;
using master::RowTable;
using master::Workspace;
using slave::kProductLanes;
using slave::ProductArgs;
using slave::ProductPackArgs;

namespace {

// ---- Validation

// require_matrices() throws Error unless the dtype is one of the three and the
// data are aligned, not null and of a possible size.
void require_matrices(const char* name, const Matrices& x) {
  const auto field = [&](const char* text) {
    return std::string(name) + "." + text;
  };
  master::require_row_dtype(name, x.dtype);
  if (x.batch == 0 || x.rows == 0 || x.columns == 0) return;
  // The largest index of an element, as long as it is possible.
  std::size_t index = 0;
  const auto extend = [&](const char* text, std::size_t size, std::size_t step,
                          std::size_t most_step) {
    if (size == 1) return;
    const std::size_t most = master::kMaxBytes / 4 - index;
    if (step > most_step) {
      master::refuse(field(text), std::to_string(step),
                     "at most " + std::to_string(most_step));
    }
    if (step != 0 && size - 1 > most / step) {
      master::refuse(field(text), std::to_string(step),
                     "a step with which " + std::to_string(size) +
                         " elements fit into memory");
    }
    index += (size - 1) * step;
  };
  extend("column_step", x.columns, x.column_step, Matrices::kMaxStep);
  extend("row_step", x.rows, x.row_step, Matrices::kMaxStep);
  extend("batch_step", x.batch, x.batch_step, ~std::size_t{0});
  master::require_data(name, {x.data, x.rows, x.columns, x.dtype});
}

// require_no_repeat() throws unless each step of `out` is larger than the
// extent of the dimensions with smaller steps, so that no element has two
// indices.
void require_no_repeat(const Matrices& out) {
  struct Dimension {
    const char* name;
    std::size_t size, step;
  } dimensions[] = {{"out.batch_step", out.batch, out.batch_step},
                    {"out.row_step", out.rows, out.row_step},
                    {"out.column_step", out.columns, out.column_step}};
  std::sort(
      std::begin(dimensions), std::end(dimensions),
      [](const Dimension& x, const Dimension& y) { return x.step < y.step; });
  std::size_t extent = 1;  // of the dimensions with smaller steps
  for (const Dimension& dimension : dimensions) {
    if (dimension.size == 1) continue;
    if (dimension.step < extent) {
      master::refuse(dimension.name, std::to_string(dimension.step),
                     "at least " + std::to_string(extent) +
                         ", the extent of the dimensions with smaller steps");
    }
    extent += (dimension.size - 1) * dimension.step;
  }
}

// require_runs() throws unless the runs have a length and, if there are any,
// begins.
void require_runs(const std::string& name, const Runs& runs,
                  std::size_t count) {
  if (runs.length == 0) master::refuse(name + ".length", "0", "at least 1");
  if (runs.begins == nullptr && count != 0) {
    master::refuse(name + ".begins", "null", "an array of places");
  }
}

void require_product(const Matrices& out, const Matrices& a, const Matrices& b,
                     const Matrices* self, const Gather* gather) {
  require_matrices("out", out);
  if (gather == nullptr) {
    require_matrices("a", a);
  } else {
    Matrices places = a;
    places.row_step = places.column_step = 0;
    require_matrices("a", places);
    require_runs("gather.rows", gather->rows, a.rows);
    require_runs("gather.columns", gather->columns, a.columns);
  }
  require_matrices("b", b);
  if (b.dtype != a.dtype) {
    master::refuse("b.dtype", kFloatFormats[b.dtype].name,
                   std::string(kFloatFormats[a.dtype].name) + " (as a has)");
  }
  if (out.dtype != a.dtype && out.dtype != kFloat32) {
    master::refuse(
        "out.dtype", kFloatFormats[out.dtype].name,
        std::string(kFloatFormats[a.dtype].name) + " (as a has) or float32");
  }
  require_size("b.rows", b.rows, a.columns, "as a has columns");
  require_size("b.batch", b.batch, a.batch, "as a has");
  require_size("out.batch", out.batch, a.batch, "as a has");
  require_size("out.rows", out.rows, a.rows, "as a has");
  require_size("out.columns", out.columns, b.columns, "as b has");
  if (out.batch != 0 && out.rows != 0 && out.columns != 0) {
    require_no_repeat(out);
  }
  if (self == nullptr) return;
  require_matrices("self", *self);
  if (self->dtype != out.dtype) {
    master::refuse(
        "self.dtype", kFloatFormats[self->dtype].name,
        std::string(kFloatFormats[out.dtype].name) + " (as out has)");
  }
  require_size("self.batch", self->batch, out.batch, "as out has");
  require_size("self.rows", self->rows, out.rows, "as out has");
  require_size("self.columns", self->columns, out.columns, "as out has");
}

// ---- Parts

slave::ProductRuns runs_of(const Runs& runs) {
  return {runs.begins, runs.length};
}

// Two operations: [0] of whole panels or blocks of columns, [1] of the last one
// of a matrix, if that is smaller.
template <class Args>
struct Operations {
  Args args[2];
  Operation operations[2];

  Operations(const KernelInfo& kernel, const Args& whole, const Args& last)
      : args{whole, last},
        operations{Operation(kernel, &args[0]), Operation(kernel, &args[1])} {}
  Operations(const Operations&) = delete;
};

// Product is one call, after validation.
struct Product {
  Machine::Impl& machine;
  Matrices out, a, b, self;  // self.data is null: nothing is added
  float alpha, beta;
  const Gather* gather;  // null: a is at steps
  bool pairs;

  std::size_t terms() const { return a.columns; }
  std::size_t bytes() const { return kScalarTypeBytes[a.dtype]; }
  bool adds() const { return self.data != nullptr; }

  const KernelInfo& kernel(KernelFamily family) const {
    return slave::kKernels[slave::kernel_of(family, {a.dtype, out.dtype})];
  }

  ProductArgs common_args() const {
    ProductArgs args{};
    args.a_row = static_cast<std::int64_t>(a.row_step);
    args.a_term = static_cast<std::int64_t>(a.column_step);
    args.self_row = static_cast<std::int64_t>(self.row_step);
    args.self_column = static_cast<std::int64_t>(self.column_step);
    args.out_row = static_cast<std::int64_t>(out.row_step);
    args.out_column = static_cast<std::int64_t>(out.column_step);
    args.alpha = alpha;
    args.beta = beta;
    args.first = args.last = 1;
    args.pairs = pairs ? 1 : 0;
    return args;
  }

  // set_operand() sets the bytes between the units of an operand. Units that do
  // not move are a constant.
  static void set_operand(Operation& operation, int s, std::size_t unit_bytes,
                          bool exists = true) {
    operation.set_unit_bytes(s, 0);
    if (exists && unit_bytes == 0)
      operation.operands[s].access = Access::constant;
    if (exists)
      operation.set_unit_bytes(s, std::max<std::size_t>(1, unit_bytes));
  }

  // ---- Transfer mode view

  // All rows of a block of terms of one matrix, and so many columns, are
  // computed with one packed part of b.
  static constexpr std::size_t kMostTerms = 4096;
  static constexpr std::size_t kSumsBytes = std::size_t{32} << 20;
  static constexpr std::size_t kBlockWords = 768;
  static constexpr std::size_t kBlockRows = 96;

  std::size_t block_terms() const { return kBlockWords * (pairs ? 2 : 1); }

  // Part is what one launch computes.
  struct Part {
    std::size_t batch, batches;
    std::size_t row, rows;
    std::size_t column, columns;
    std::size_t term, terms;
  };

  void in_view() {
    const std::size_t part_terms = std::min(terms(), kMostTerms);
    const std::size_t panel_bytes =
        slave::product_panel_bytes(part_terms, kProductLanes, pairs);
    const std::size_t part_panels =
        std::min(std::max<std::size_t>(1, kPackedBytes / panel_bytes),
                 panels_of(out.columns));
    const std::size_t part_columns = part_panels * kProductLanes;
    const bool has_sums = terms() > block_terms();
    // With parts of terms, each part of b is packed for each part of the rows.
    std::size_t part_rows = out.rows, part_batch = 1;
    const std::size_t columns = std::min(out.columns, part_columns);
    const std::size_t row_bytes = panels_of(columns) * kProductLanes * 4;
    if (has_sums) {
      part_rows =
          std::min(part_rows, std::max(kSumsBytes / row_bytes, kBlockRows));
    }
    if (part_columns >= out.columns && terms() == part_terms) {
      const std::size_t packed = part_panels * panel_bytes;
      part_batch = b.batch_step == 0 ? out.batch : kPackedBytes / packed;
      if (has_sums) {
        part_batch =
            part_rows < out.rows
                ? 1
                : std::min(part_batch, kSumsBytes / (row_bytes * out.rows));
      }
      part_batch = std::clamp<std::size_t>(part_batch, 1, out.batch);
    }
    const std::size_t packed_bytes =
        part_panels * panel_bytes * (b.batch_step == 0 ? 1 : part_batch);
    std::byte* const packed = Workspace::of_this_thread().row_values<std::byte>(
        packed_bytes + (has_sums ? part_batch * part_rows * row_bytes : 0));
    auto* const sums =
        has_sums ? reinterpret_cast<float*>(packed + packed_bytes) : nullptr;

    Part now{};
    for (now.batch = 0; now.batch < out.batch; now.batch += part_batch) {
      now.batches = std::min(part_batch, out.batch - now.batch);
      for (now.column = 0; now.column < out.columns;
           now.column += part_columns) {
        now.columns = std::min(part_columns, out.columns - now.column);
        for (now.row = 0; now.row < out.rows; now.row += part_rows) {
          now.rows = std::min(part_rows, out.rows - now.row);
          now.term = 0;
          do {  // once without terms
            now.terms = std::min(part_terms, terms() - now.term);
            if (now.row == 0 || part_terms < terms()) {
              pack_panels(machine, part(b, now.batch, now.term, now.column),
                          b.batch_step == 0 ? 1 : now.batches, now.columns,
                          now.terms, kProductLanes, pairs, packed);
            }
            run_part(now, packed, sums);
            now.term += now.terms;
          } while (now.term < terms());
        }
      }
    }
  }

  // run_part() launches the rows of a part. The columns are divided too if
  // there are few rows for each slave.
  void run_part(const Part& now, const std::byte* packed, float* sums) const {
    const std::size_t panel_bytes =
        slave::product_panel_bytes(now.terms, kProductLanes, pairs);
    const std::size_t panels = panels_of(now.columns);
    const std::size_t grains =
        now.batches * ((now.rows - 1) / slave::kMaxProductRows + 1);
    const std::size_t wanted = 8 * static_cast<std::size_t>(machine.slaves());
    const std::size_t blocks =
        std::clamp<std::size_t>((wanted + grains - 1) / grains, 1, panels);
    const std::size_t block_panels = (panels + blocks - 1) / blocks;
    const std::size_t block_columns =
        std::min(block_panels * kProductLanes, now.columns);
    ProductArgs args = common_args();
    args.terms = now.terms;
    args.columns = block_columns;
    args.sums_panel = now.rows * kProductLanes;
    args.block_rows =
        static_cast<std::uint32_t>(std::min(kBlockRows, now.rows));
    args.block_terms = static_cast<std::uint32_t>(std::clamp<std::size_t>(
        (now.terms + 1) & ~std::size_t{1}, 2, block_terms()));
    args.first = now.term == 0 ? 1 : 0;
    args.last = now.term + now.terms == terms() ? 1 : 0;
    if (gather != nullptr) {
      args.row_runs = runs_of(gather->rows);
      args.term_runs = runs_of(gather->columns);
      args.first_row = now.row;
      args.first_term = now.term;
    }
    ProductArgs last = args;
    if (now.columns % block_columns != 0) {
      last.columns = now.columns % block_columns;
    }
    Operations<ProductArgs> product(kernel(KernelFamily::product), args, last);
    for (int i = 0; i < 2; ++i) {
      Operation& operation = product.operations[i];
      const std::size_t out_bytes = kScalarTypeBytes[out.dtype];
      set_operand(operation, 0, gather != nullptr ? 0 : a.row_step * bytes(),
                  now.terms != 0);
      set_operand(operation, 1, 0, true);
      set_operand(operation, 2, kProductLanes * sizeof(float), sums != nullptr);
      set_operand(operation, 3, self.row_step * out_bytes, adds());
      set_operand(operation, 4, out.row_step * out_bytes);
      operation.scratch_bytes = static_cast<std::uint32_t>(
          slave::product_scratch_bytes(args.block_rows, args.block_terms,
                                       gather != nullptr ? bytes() : 0));
      // Its time is that of the arithmetic, of which 3 flops take about as long
      // as the transfer of a byte.
      operation.traffic_bytes = static_cast<std::uint32_t>(
          1 + 2 * now.terms * product.args[i].columns / 3);
    }
    Workspace& workspace = Workspace::of_this_thread();
    RowTable table(product.operations, 2, now.batches * blocks, false,
                   {slave::kMaxProductRows, ~std::size_t{0}},
                   workspace.segments());
    for (std::size_t i = 0; i < now.batches; ++i) {
      const std::byte* const matrix =
          packed + (b.batch_step == 0 ? 0 : i * panels * panel_bytes);
      for (std::size_t c = 0; c < now.columns; c += block_columns) {
        const std::size_t batch = now.batch + i, column = now.column + c;
        table.add(now.rows,
                  {gather != nullptr ? part(a, batch, 0, 0).data
                                     : part(a, batch, now.row, now.term).data,
                   matrix + c / kProductLanes * panel_bytes,
                   sums == nullptr
                       ? nullptr
                       : sums + (i * panels * kProductLanes + c) * now.rows,
                   part(self, batch, now.row, column).data,
                   part(out, batch, now.row, column).data},
                  now.columns - c < block_columns ? 1 : 0);
      }
    }
    master::SegmentList list = table.list();
    list.memory_bytes =
        out.batch * out.rows *
        (terms() * bytes() + out.columns * kScalarTypeBytes[out.dtype]);
    workspace.run(machine, list);
  }

  // few_rows() computes columns of the result from b as it lies in memory.
  void few_rows() const {
    constexpr std::size_t kFewWords = 256;  // of a panel that fits into L1
    ProductArgs args = common_args();
    args.terms = terms();
    args.columns = out.columns;
    args.rows = static_cast<std::uint32_t>(out.rows);
    args.a_row = static_cast<std::int64_t>(b.column_step);
    args.a_term = static_cast<std::int64_t>(b.row_step);
    args.block_terms = kFewWords * (pairs ? 2 : 1);
    Operation operation(kernel(KernelFamily::product_rows), &args);
    const std::size_t out_bytes = kScalarTypeBytes[out.dtype];
    set_operand(operation, 0, kProductLanes * b.column_step * bytes(),
                terms() != 0);
    set_operand(operation, 1, 0);
    set_operand(operation, 2, kProductLanes * self.column_step * out_bytes,
                adds());
    set_operand(operation, 3, kProductLanes * out.column_step * out_bytes);
    operation.scratch_bytes = static_cast<std::uint32_t>(
        slave::product_rows_scratch_bytes(args.block_terms));
    operation.traffic_bytes =
        static_cast<std::uint32_t>(1 + kProductLanes * terms() * bytes());

    const std::size_t width = slave::product_rows_width(out.rows);
    const std::size_t sliver =
        slave::product_panel_bytes(terms(), width, pairs);
    const std::size_t most =
        std::clamp<std::size_t>(kPackedBytes / sliver, 1, out.batch);
    Workspace& workspace = Workspace::of_this_thread();
    std::byte* const packed = workspace.row_values<std::byte>(sliver * most);
    for (std::size_t first = 0; first < out.batch; first += most) {
      const std::size_t batch = std::min(most, out.batch - first);
      pack_panels(machine, part(a, first, 0, 0).transposed(), batch, out.rows,
                  terms(), width, pairs, packed);
      RowTable table(operation, batch, false, {1, ~std::size_t{0}},
                     workspace.segments());
      for (std::size_t i = 0; i < batch; ++i) {
        table.add(panels_of(out.columns),
                  {part(b, first + i, 0, 0).data, packed + i * sliver,
                   part(self, first + i, 0, 0).data,
                   part(out, first + i, 0, 0).data});
      }
      workspace.run(machine, table.list());
    }
  }

  // ---- Other transfer modes

  // copy() copies the elements of a matrix, which the master does for its
  // slaves: a unit of a launch is dense.
  static void copy(const Matrices& to, const Matrices& from) {
    const std::size_t size = kScalarTypeBytes[to.dtype];
    for (std::size_t r = 0; r < from.rows; ++r) {
      for (std::size_t c = 0; c < from.columns; ++c) {
        std::memcpy(part(to, 0, r, c).data, part(from, 0, r, c).data, size);
      }
    }
  }

  // copy_gathered() is copy() of the terms of a gathered a from `term` on.
  void copy_gathered(const Matrices& to, std::size_t term) const {
    const slave::ProductRuns rows = runs_of(gather->rows),
                             columns = runs_of(gather->columns);
    Matrices elements = a;
    elements.row_step = elements.column_step = 1;
    for (std::size_t r = 0; r < to.rows; ++r) {
      for (std::size_t c = 0; c < to.columns; ++c) {
        std::memcpy(
            part(to, 0, r, c).data,
            part(elements, 0, rows.place(r), columns.place(term + c)).data,
            bytes());
      }
    }
  }

  // dense_operation() computes rows of a panel, with `count` terms.
  Operation dense_operation(const ProductArgs& args) const {
    Operation operation(kernel(KernelFamily::product), &args);
    const std::size_t row = kProductLanes * kScalarTypeBytes[out.dtype];
    set_operand(operation, 0, args.terms * bytes(), args.terms != 0);
    operation.operands[1].access = Access::constant;
    operation.set_unit_bytes(
        1, slave::product_panel_bytes(args.terms, kProductLanes, pairs));
    operation.set_unit_bytes(2, kProductLanes * sizeof(float));
    operation.set_unit_bytes(3, args.last != 0 && adds() ? row : 0);
    operation.set_unit_bytes(4, args.last != 0 ? row : 0);
    operation.scratch_bytes = static_cast<std::uint32_t>(
        slave::product_scratch_bytes(args.block_rows, args.block_terms, 0));
    return operation;
  }

  // fits() returns whether LDM is large enough for so many terms.
  bool fits(const ProductArgs& args) const {
    ProductPackArgs pack_args{};
    pack_args.terms = args.terms;
    pack_args.lanes = pack_args.width = kProductLanes;
    pack_args.by_term = 1;
    pack_args.step = 1;
    pack_args.pairs = args.pairs;
    const Operation pack =
        master::pack_operation(pack_args, a.dtype, kProductLanes * bytes());
    return runtime::ldm_need(machine, dense_operation(args), 0).fits() &&
           runtime::ldm_need(machine, pack, 0).fits();
  }

  // through_ldm() computes one matrix. A unit is a row of a panel of the
  // result; the terms are divided so that LDM holds a panel of b.
  void through_ldm() const {
    ProductArgs args = common_args();
    args.columns = kProductLanes;
    args.a_term = args.self_column = args.out_column = 1;
    args.self_row = args.out_row = kProductLanes;
    args.block_rows = slave::kMaxProductRows;
    for (args.terms = std::min<std::size_t>(512, terms());; args.terms /= 2) {
      args.terms = (args.terms + 1) & ~std::uint64_t{1};
      args.block_terms = static_cast<std::uint32_t>(args.terms);
      if (fits(args)) break;
      if (args.terms <= 2) {
        master::refuse("a", "a product",
                       "more LDM than " + std::to_string(machine.ldm_bytes) +
                           " bytes (SWAMP_LDM_BYTES)",
                       SWAMP_UNSUPPORTED);
      }
    }
    const std::size_t most = std::max<std::size_t>(2, args.terms);
    args.block_terms = static_cast<std::uint32_t>(most);

    const std::size_t panels = panels_of(out.columns);
    const std::size_t tile = out.rows * kProductLanes;  // elements
    const std::size_t panel_bytes =
        slave::product_panel_bytes(most, kProductLanes, pairs);
    Workspace& workspace = Workspace::of_this_thread();
    std::size_t used = 0;
    const auto reserve = [&](std::size_t bytes_each, std::size_t count) {
      const std::size_t at = used;
      used += (bytes_each * count + 127) / 128 * 128;
      return at;
    };
    const std::size_t at_sums = reserve(tile * sizeof(float), panels),
                      at_out = reserve(tile * sizeof(float), panels),
                      at_self = reserve(tile * sizeof(float), panels),
                      at_packed = reserve(panel_bytes, panels),
                      at_b = reserve(most * kProductLanes * bytes(), panels),
                      at_a = reserve(most * bytes(), out.rows);
    std::byte* const memory = workspace.row_values<std::byte>(used);
    const auto panel_of = [&](std::size_t at, std::size_t p, ScalarType dtype) {
      return Matrices::dense(memory + at + p * tile * kScalarTypeBytes[dtype],
                             1, out.rows, kProductLanes, dtype);
    };
    // The columns of a panel of x, at most kProductLanes.
    const auto columns_of = [&](const Matrices& x, std::size_t p) {
      Matrices columns = part(x, 0, 0, p * kProductLanes);
      columns.columns = std::min(kProductLanes, x.columns - p * kProductLanes);
      return columns;
    };
    if (adds()) {
      std::memset(memory + at_self, 0, at_packed - at_self);
      for (std::size_t p = 0; p < panels; ++p) {
        copy(panel_of(at_self, p, out.dtype), columns_of(self, p));
      }
    }
    std::size_t term = 0;
    do {  // once without terms
      args.terms = std::min(most, terms() - term);
      args.a_row = static_cast<std::int64_t>(args.terms);
      args.first = term == 0 ? 1 : 0;
      args.last = term + args.terms == terms() ? 1 : 0;
      Matrices dense_b = Matrices::dense(memory + at_b, panels, args.terms,
                                         kProductLanes, b.dtype);
      std::memset(memory + at_b, 0, at_a - at_b);
      for (std::size_t p = 0; p < panels; ++p) {
        Matrices columns = columns_of(part(b, 0, term, 0), p);
        columns.rows = args.terms;
        copy(part(dense_b, p, 0, 0), columns);
      }
      const Matrices dense_a =
          Matrices::dense(memory + at_a, 1, a.rows, args.terms, a.dtype);
      if (gather != nullptr) {
        copy_gathered(dense_a, term);
      } else {
        Matrices rows = part(a, 0, 0, term);
        rows.columns = args.terms;
        copy(dense_a, rows);
      }
      pack_panels(machine, dense_b, panels, kProductLanes, args.terms,
                  kProductLanes, pairs, memory + at_packed);

      const Operation operation = dense_operation(args);
      RowTable table(operation, panels, false,
                     {slave::kMaxProductRows, ~std::size_t{0}},
                     workspace.segments());
      const std::size_t step =
          slave::product_panel_bytes(args.terms, kProductLanes, pairs);
      for (std::size_t p = 0; p < panels; ++p) {
        table.add(out.rows, {memory + at_a, memory + at_packed + p * step,
                             panel_of(at_sums, p, kFloat32).data,
                             panel_of(at_self, p, out.dtype).data,
                             panel_of(at_out, p, out.dtype).data});
      }
      workspace.run(machine, table.list());
      term += args.terms;
    } while (term < terms());
    for (std::size_t p = 0; p < panels; ++p) {
      Matrices computed = panel_of(at_out, p, out.dtype);
      computed.columns = columns_of(out, p).columns;
      copy(columns_of(out, p), computed);
    }
  }
};

}  // namespace

namespace master {

Matrices part(const Matrices& x, std::size_t batch, std::size_t row,
              std::size_t column) {
  Matrices rest = x;
  if (x.data == nullptr) return rest;
  rest.data =
      static_cast<std::byte*>(x.data) +
      (batch * x.batch_step + row * x.row_step + column * x.column_step) *
          kScalarTypeBytes[x.dtype];
  return rest;
}

void require_size(const char* name, std::size_t got, std::size_t expected,
                  const char* why) {
  if (got == expected) return;
  refuse(name, std::to_string(got),
         std::to_string(expected) + " (" + why + ")");
}

Operation pack_operation(const ProductPackArgs& args, ScalarType dtype,
                         std::size_t line_step) {
  Operation pack(row_kernel<KernelFamily::product_pack, 2>(dtype), &args);
  const std::size_t lines = args.by_term != 0 ? args.terms : args.lanes;
  const std::size_t width = args.by_term != 0 ? args.lanes : args.terms;
  const std::size_t extent =
      width == 0 ? 0 : (width - 1) * static_cast<std::size_t>(args.step) + 1;
  pack.set_lines(0, extent == 0 ? 0 : lines, extent * kScalarTypeBytes[dtype],
                 line_step, lines * line_step);
  pack.set_unit_bytes(
      1, slave::product_panel_bytes(args.terms, args.width, args.pairs != 0));
  return pack;
}

void pack_panels(Machine::Impl& machine, const Matrices& x, std::size_t batch,
                 std::size_t lanes, std::size_t terms, std::size_t width,
                 bool pairs, std::byte* panels) {
  const std::size_t step = slave::product_panel_bytes(terms, width, pairs);
  ProductPackArgs args{};
  args.terms = terms;
  // The elements of a line are the closest.
  args.by_term = x.column_step < x.row_step ? 1 : 0;
  args.step = static_cast<std::int64_t>(std::min(x.column_step, x.row_step));
  const std::size_t line_step =
      std::max(x.column_step, x.row_step) * kScalarTypeBytes[x.dtype];
  args.lanes = static_cast<std::uint32_t>(std::min(width, lanes));
  args.width = static_cast<std::uint32_t>(width);
  args.pairs = pairs ? 1 : 0;
  ProductPackArgs last = args;
  if (lanes % width != 0) {
    last.lanes = static_cast<std::uint32_t>(lanes % width);
  }
  const Operation operations[] = {pack_operation(args, x.dtype, line_step),
                                  pack_operation(last, x.dtype, line_step)};
  const std::size_t panel_count = (lanes + width - 1) / width;
  Workspace& workspace = Workspace::of_this_thread();
  RowTable table(operations, 2, batch * panel_count, false,
                 {1, ~std::size_t{0}}, workspace.segments());
  for (std::size_t i = 0; i < batch; ++i) {
    for (std::size_t p = 0; p < panel_count; ++p, panels += step) {
      table.add(1, {part(x, i, 0, p * width).data, panels},
                (p + 1) * width > lanes ? 1 : 0);
    }
  }
  workspace.run(machine, table.list());
}

}  // namespace master

void product(const Matrices& out, const Matrices& a, const Matrices& b,
             const ProductOptions& options, Machine* machine) {
  const Matrices* const self = options.beta == 0 ? nullptr : options.self;
  require_product(out, a, b, self, options.gather);
  if (out.batch == 0 || out.rows == 0 || out.columns == 0) return;
  Machine::Impl& where = master::impl_of(machine);
  Product call{where,
               out,
               a,
               b,
               self == nullptr ? Matrices{} : *self,
               options.alpha,
               options.beta,
               options.gather,
               false};
  call.pairs = a.dtype == kBFloat16 && runtime::rounds_to_nearest() &&
               slave::has_bfloat16_pairs(where.kernels->isa);
  if (where.transfer == runtime::Transfer::view && call.gather != nullptr) {
    return call.in_view();
  }
  if (where.transfer == runtime::Transfer::view) {
    const bool by_columns = out.column_step != 1 && out.row_step == 1;
    const std::size_t few = slave::kFewProductRows;
    if (out.rows > few && (by_columns || out.columns <= few)) {
      // The transpose of the result is the product of the transposes.
      call.out = out.transposed();
      call.a = b.transposed();
      call.b = a.transposed();
      call.self = call.self.transposed();
    }
    const bool is_few =
        call.out.rows <= few && call.terms() <= std::size_t{1} << 20 &&
        std::max({call.b.column_step, call.self.column_step,
                  call.out.column_step}) <= std::size_t{1} << 24;
    return is_few ? call.few_rows() : call.in_view();
  }
  for (std::size_t i = 0; i < out.batch; ++i) {
    Product matrix = call;
    matrix.out = part(out, i, 0, 0);
    matrix.a = part(a, i, 0, 0);
    matrix.b = part(b, i, 0, 0);
    matrix.self = part(call.self, i, 0, 0);
    matrix.through_ldm();
  }
}

bool is_product_fast(Machine* machine) {
  return slave::has_fma(master::impl_of(machine).kernels->isa);
}

}  // namespace swamp
