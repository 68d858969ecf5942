// Validation of matrix products, and the choice of a way. All ways compute the
// same bits.
#include "swamp/product.h"

#include <algorithm>
#include <string>
#include <utility>

#include "master/product.h"
#include "master/row_launch.h"
#include "master/text.h"
#include "runtime/float_environment.h"
#include "slave/product_args.h"

namespace swamp {

using master::Checker;

namespace {

// require_matrices() throws Error unless the dtype is one of the three and the
// data are aligned, not null and of a possible size.
void require_matrices(const char* name, const Matrices& x) {
  const Checker check(name);
  check.dtype(x.dtype, master::kRowTypes);
  if (x.batch == 0 || x.rows == 0 || x.columns == 0) return;
  // The largest index of an element, as long as it is possible.
  std::size_t index = 0;
  const auto extend = [&](const char* text, std::size_t size, std::size_t step,
                          std::size_t most_step) {
    if (size == 1) return;
    const std::size_t most = master::kMaxBytes / 4 - index;
    check.at_most(text, step, most_step);
    if (step != 0 && size - 1 > most / step) {
      master::refuse(std::string(name) + "." + text, std::to_string(step),
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
  if (gather == nullptr || gather->b_rows.begins == nullptr) {
    require_matrices("b", b);
  } else {
    const Runs& runs = gather->b_rows;
    Matrices run = b;
    run.rows = std::min(b.rows, runs.length);
    require_matrices("b", run);
    if (runs.length == 0 || runs.length % 2 != 0) {
      master::refuse("gather.b_rows.length", std::to_string(runs.length),
                     "an even number, at least 2");
    }
  }
  Checker("b")
      .dtype(b.dtype, a.dtype, "a")
      .same("rows", b.rows, a.columns, "a", " columns")
      .same("batch", b.batch, a.batch, "a");
  Checker("out")
      .dtype(out.dtype, a.dtype, "a", true)
      .same("batch", out.batch, a.batch, "a")
      .same("rows", out.rows, a.rows, "a")
      .same("columns", out.columns, b.columns, "b");
  if (out.batch != 0 && out.rows != 0 && out.columns != 0) {
    require_no_repeat(out);
  }
  if (self == nullptr) return;
  require_matrices("self", *self);
  Checker("self")
      .dtype(self->dtype, out.dtype, "out")
      .same("batch", self->batch, out.batch, "out")
      .same("rows", self->rows, out.rows, "out")
      .same("columns", self->columns, out.columns, "out");
}

void require_sums(const Matrices& out, const Matrices& a,
                  const ProductOptions& options) {
  const PartialSums& sums = *options.sums;
  if (out.batch > 1 || options.gather != nullptr) {
    master::refuse("options.sums", "partial sums",
                   "null with a batch or a gather");
  }
  master::require_array("options.sums.data", sums.data, alignof(float),
                        product_sums_count(out.rows, out.columns));
  if (!sums.ends && a.columns % 2 != 0) {
    master::refuse("a.columns", std::to_string(a.columns),
                   "an even number if options.sums.ends is false");
  }
}

void require_scales(const Matrices& out, const Matrices& a,
                    const ProductOptions& options) {
  const ProductScales& scales = *options.scales;
  if (out.batch > 1 || options.gather != nullptr || options.sums != nullptr) {
    master::refuse("options.scales", "scales",
                   "null with a batch, a gather or partial sums");
  }
  if (scales.terms % 2 != 0 || scales.terms > ProductScales::kMaxTerms) {
    master::refuse(
        "options.scales.terms", std::to_string(scales.terms),
        "an even number, at most " + std::to_string(ProductScales::kMaxTerms));
  }
  const std::size_t blocks = scales.blocks(a.columns);
  master::require_array("options.scales.a", scales.a, alignof(float),
                        out.rows * blocks);
  master::require_array("options.scales.b", scales.b, alignof(float),
                        out.columns * blocks);
}

}  // namespace

void product(const Matrices& out, const Matrices& a, const Matrices& b,
             const ProductOptions& options, Machine* machine) {
  const Matrices* const self = options.beta == 0 ? nullptr : options.self;
  require_product(out, a, b, self, options.gather);
  if (options.sums != nullptr) require_sums(out, a, options);
  if (options.scales != nullptr) require_scales(out, a, options);
  if (out.batch == 0 || out.rows == 0 || out.columns == 0) return;
  Machine::Impl& where = master::impl_of(machine);
  master::ProductCall call{
      where,
      out,
      a,
      b,
      self == nullptr ? Matrices{} : *self,
      options.alpha,
      options.beta,
      options.gather,
      options.sums,
      options.scales == nullptr ? ProductScales{} : *options.scales,
      false};
  call.pairs = a.dtype == kBFloat16 && runtime::rounds_to_nearest() &&
               slave::has_bfloat16_pairs(where.kernels->isa);
  if (options.gather == nullptr && options.sums == nullptr &&
      call.scales.terms == 0) {
    // The transpose of the result is the product of the transposes. A panel of
    // b has more columns than few.
    constexpr std::size_t kFewColumns = 24, kManyRows = 64;
    const bool by_columns = out.column_step != 1 && out.row_step == 1;
    const std::size_t few = slave::kFewProductRows;
    const auto are_few = [&] {
      if (out.columns <= few) return true;
      if (out.rows <= kManyRows || out.columns > kFewColumns) return false;
      master::ProductCall transposed = call;
      transposed.transpose();
      return out.columns <= master::most_few_rows(transposed);
    };
    if (out.rows > few && (by_columns || are_few())) {
      call.transpose();
    }
    if (product_of_few_rows(call)) return;
  }
  product_by_panels(call);
}

bool is_product_fast(Machine* machine) {
  return slave::has_fma(master::impl_of(machine).kernels->isa);
}

}  // namespace swamp
