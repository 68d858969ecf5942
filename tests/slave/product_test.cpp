// The kernels of matrix products: the bits of the reference on every ISA, for
// all layouts, blocks and kinds of numbers, without one byte read or written
// outside of the operands.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>

#include "row_cases.h"
#include "slave/product_args.h"
#include "support/guarded_pages.h"

namespace swamp::test {
namespace {

using slave::kProductLanes;
using slave::ProductArgs;
using slave::ProductLines;
using slave::ProductPackArgs;
using slave::ScaledProductArgs;

// Array is a matrix that ends at a protected page, or begins after one.
struct Array {
  GuardedPages pages;
  std::byte* data;
  std::int64_t row, column;  // steps
  std::size_t bytes;

  Array(std::size_t rows, std::size_t columns, ScalarType type, int layout,
        bool at_end)
      : pages(rows * columns * kFloatFormats[type].bytes * 2 + 8),
        row(static_cast<std::int64_t>(columns)),
        column(1) {
    bytes = rows * columns * kFloatFormats[type].bytes;
    if (layout == 1) row = 1, column = static_cast<std::int64_t>(rows);
    if (layout == 2) {  // every other element
      row *= 2, column *= 2, bytes *= 2;
      if (bytes != 0) bytes -= kFloatFormats[type].bytes;
    }
    data = at_end ? pages.end() - bytes : pages.begin();
  }
};

struct Case {
  std::size_t rows, columns, terms;
  ScalarType in, out;
  int a_layout, b_layout, out_layout;
  bool pairs, adds;
  float alpha;
  // 0: ordinary, 1: any, 2: products are subnormal, 3: only differences of
  // products are, 4: products of the first terms, with which the others, of the
  // least exponent that the instruction takes, begin
  int numbers;
  bool has_scales = false;
  std::uint32_t scale_terms = 0;
};

std::vector<Case> make_cases() {
  constexpr std::size_t shapes[][3] = {{1, 1, 1},    {5, 33, 2},  {12, 32, 8},
                                       {13, 70, 31}, {29, 64, 7}, {8, 96, 40},
                                       {2, 64, 67},  {1, 50, 16}, {3, 31, 0},
                                       {4, 64, 83},  {1, 96, 33}};
  std::vector<Case> cases;
  for (const auto& shape : shapes) {
    for (const ScalarType type : kRowTypes) {
      for (int i = 0; i < 20; ++i) {
        cases.push_back({shape[0], shape[1], shape[2], type,
                         i % 2 == 0 ? type : kFloat32, i % 3, (i + i / 3) % 3,
                         i % 5 % 3, type == kBFloat16 && i % 4 > 1, i % 3 == 1,
                         i % 4 == 1 ? 0.3f : 1.0f, i / 4});
        if (i % 3 != 0) continue;
        cases.push_back(cases.back());
        cases.back().has_scales = true;
        if (i % 2 == 0) continue;
        cases.back().scale_terms = shape[2] <= 30 ? 16u : i % 4 == 3 ? 6u : 2u;
      }
    }
  }
  return cases;
}

// can_take() returns whether the kernels of a table may be given the pairs.
bool can_take(const KernelTable& table, bool pairs) {
  return !pairs || std::strcmp(table.isa, "avx512") != 0 ||
         slave::has_bfloat16_pairs(table.isa);
}

// set_lines() sets the step of an operand's lines, which go along the dimension
// with the smaller step, and returns their description.
ProductLines set_lines(Operand& operand, std::int64_t row, std::int64_t column,
                       ScalarType type) {
  const bool by_column = row < column;
  operand.line_step = static_cast<std::size_t>(by_column ? column : row) *
                      kFloatFormats[type].bytes;
  return {by_column ? row : column, by_column ? 1u : 0u, 0};
}

// Way is how a case is computed: by `product`, with packed rows, or by
// `product_rows`.
enum class Way { product, packed_rows, few };

// run() computes a case with a table and returns the memory of the result.
std::vector<std::byte> run(const Case& one, const KernelTable& table, Way way,
                           bool at_end) {
  Array a(one.rows, one.terms, one.in, one.a_layout, at_end),
      b(one.terms, one.columns, one.in, one.b_layout, at_end),
      self(one.rows, one.columns, one.out, one.out_layout, at_end),
      out(one.rows, one.columns, one.out, one.out_layout, at_end);
  Random random(one.terms + 100 * one.columns);
  for (Array* x : {&a, &b, &self, &out}) {
    const Format& format = format_of(x == &a || x == &b ? one.in : one.out);
    const std::size_t count = x->bytes / format.bytes;
    if (one.numbers == 1) {
      fill_any(format, x->data, count, random);
      continue;
    }
    fill_ordinary(format, x->data, count, random);
    if (one.numbers == 0 || x == &self) continue;
    for (std::size_t i = 0; i < count; ++i) {
      double value = value_of(format, load_bits(format, x->data, i)) * 0x1p-66;
      if (one.numbers > 2) {  // two mantissas, so that sums cancel
        value = 1 + static_cast<double>(random.below(2)) / 128;
        if (random.below(2) == 0) value = -value;
        const bool is_first = one.numbers == 4 && x == &a && i < count / 5;
        value *= one.numbers == 3 ? 0x1p-59 : is_first ? 0x1p-75 : 0x1p-56;
      }
      store_bits(format, x->data, i,
                 bits_of(format, static_cast<float>(value)));
    }
  }
  const auto pack = [&](void* from, std::int64_t lane_step,
                        std::int64_t term_step, std::size_t lanes,
                        std::size_t width, std::byte* panel,
                        std::size_t terms) {
    ProductPackArgs args{};
    args.terms = terms;
    args.lanes = static_cast<std::uint32_t>(lanes);
    args.width = static_cast<std::uint32_t>(width);
    args.pairs = one.pairs;
    using At = slave::ProductPackOperand;
    Operand layout[At::count] = {};
    args.x = set_lines(layout[At::x], term_step, lane_step, one.in);
    run_rows(table, kernel_of(F::product_pack, {one.in}), &args, {from, panel},
             1, 0, nullptr, false, nullptr, nullptr, layout);
  };
  ProductArgs args{};
  args.terms = one.terms;
  args.columns = one.columns;
  args.alpha = one.alpha;
  args.beta = 0.7f;
  args.first = args.last = 1;
  args.pairs = one.pairs;
  args.rows = static_cast<std::uint32_t>(one.rows);
  args.scale_terms = one.scale_terms;
  void* const added = one.adds ? self.data : nullptr;
  const std::size_t steps =
      one.scale_terms == 0
          ? 1
          : (one.terms + one.scale_terms - 1) / one.scale_terms;
  Array a_scales(one.rows, steps, kFloat32, 0, at_end),
      b_scales(steps, one.columns, kFloat32, 0, at_end);
  for (Array* x : {&a_scales, &b_scales}) {
    fill_ordinary(format_of(kFloat32), x->data, x->bytes / 4, random);
    if (!one.has_scales) x->data = nullptr;
  }
  if (way == Way::few) {
    const std::size_t width = slave::product_rows_width(one.rows);
    GuardedPages packed(
        slave::product_panel_bytes(one.terms, width, one.pairs));
    std::byte* const sliver =
        packed.end() - slave::product_panel_bytes(one.terms, width, one.pairs);
    pack(a.data, a.row, a.column, one.rows, width, sliver, one.terms);
    using At = slave::ProductRowsOperand;
    Operand layout[At::count] = {};
    args.in = set_lines(layout[At::b], b.row, b.column, one.in);
    args.self = set_lines(layout[At::self], self.row, self.column, one.out);
    args.out = set_lines(layout[At::out], out.row, out.column, one.out);
    for (const auto& [s, column, type] :
         {std::tuple(At::b, b.column, one.in),
          std::tuple(At::self, self.column, one.out),
          std::tuple(At::out, out.column, one.out)}) {
      layout[s].unit_step = kProductLanes * static_cast<std::size_t>(column) *
                            kFloatFormats[type].bytes;
    }
    args.block_terms = 6;
    GuardedPages scratch(slave::product_rows_scratch_bytes(args.block_terms));
    run_rows(table, kernel_of(F::product_rows, {one.in, one.out}), &args,
             {b.data, sliver, added, out.data, a_scales.data, b_scales.data},
             (one.columns - 1) / kProductLanes + 1, 0, nullptr, at_end,
             reinterpret_cast<float*>(scratch.begin()), nullptr, layout);
    return {out.data, out.data + out.bytes};
  }
  const std::size_t panels = (one.columns - 1) / kProductLanes + 1;
  args.block_terms = one.terms > 30 ? 6 : 64;
  // Returns all lanes of a matrix, in panels that are `width` wide.
  const auto pack_all = [&](const Array& x, std::int64_t lane_step,
                            std::int64_t term_step, std::size_t lanes,
                            std::size_t width) {
    const std::size_t count = (lanes - 1) / width + 1;
    const std::size_t step = slave::product_packed_bytes(
        one.terms, args.block_terms, width, one.pairs);
    auto packed = std::make_unique<GuardedPages>(count * step);
    for (std::size_t p = 0; p < count; ++p) {
      const std::size_t lane = p * width;
      std::byte* panel = packed->end() - (count - p) * step;
      std::size_t term = 0;
      do {  // once without terms
        const std::size_t terms =
            std::min<std::size_t>(args.block_terms, one.terms - term);
        pack(x.data + (static_cast<std::size_t>(lane_step) * lane +
                       static_cast<std::size_t>(term_step) * term) *
                          kFloatFormats[one.in].bytes,
             lane_step, term_step, std::min(width, lanes - lane), width, panel,
             terms);
        panel += slave::product_panel_bytes(terms, width, one.pairs);
        term += terms;
      } while (term < one.terms);
    }
    return packed;
  };
  const std::size_t packed_bytes = slave::product_packed_bytes(
      one.terms, args.block_terms, kProductLanes, one.pairs);
  const auto packed = pack_all(b, b.column, b.row, one.columns, kProductLanes);
  std::byte* const first = packed->end() - panels * packed_bytes;
  // The columns of a row are elements of its line, or lines.
  using At = slave::ProductOperand;
  Operand layout[At::count] = {};
  const auto set_row = [&](std::size_t s, const Array& x, ScalarType type) {
    const ProductLines lines = set_lines(
        layout[s], x.column - static_cast<std::int64_t>((s + one.rows) % 2),
        x.column, type);
    layout[s].unit_step =
        static_cast<std::size_t>(x.row) * kFloatFormats[type].bytes;
    return lines;
  };
  args.in = set_row(At::a, a, one.in);
  args.self = set_row(At::self, self, one.out);
  args.out = set_row(At::out, out, one.out);
  args.block_rows = 13;
  layout[At::sums].line_step = one.rows * kProductLanes * sizeof(float);
  const std::size_t sum_bytes = panels * layout[At::sums].line_step;
  GuardedPages sums(sum_bytes);

  layout[At::a_scales].unit_step = steps * sizeof(float);
  layout[At::b_scales].line_step = one.columns * sizeof(float);
  GuardedPages scratch(
      slave::product_scratch_bytes(args.block_rows, args.block_terms, 0) +
      (one.scale_terms == 0 ? 0 : slave::kProductTileBytes));
  const bool has_sums = one.terms > args.block_terms;
  constexpr std::size_t kRows = slave::kMaxProductRows;
  const auto packed_rows = pack_all(a, a.row, a.column, one.rows, kRows);
  std::byte* rows = a.data;
  if (way == Way::packed_rows) {
    args.packed_rows = 1;
    rows = packed_rows->end() -
           ((one.rows - 1) / kRows + 1) *
               slave::product_packed_bytes(one.terms, args.block_terms, kRows,
                                           one.pairs);
  }
  run_rows(table, kernel_of(F::product, {one.in, one.out}), &args,
           {rows, first, has_sums ? sums.end() - sum_bytes : nullptr, added,
            out.data, a_scales.data, b_scales.data},
           one.rows, 0, nullptr, at_end,
           reinterpret_cast<float*>(scratch.begin()), nullptr, layout);
  return {out.data, out.data + out.bytes};
}

TEST(ProductKernels, BitsOfReference) {
  for (const Case& one : make_cases()) {
    SCOPED_TRACE(testing::Message()
                 << format_of(one.in).name << " -> " << format_of(one.out).name
                 << ", " << one.rows << " x " << one.columns << " x "
                 << one.terms << ", layouts " << one.a_layout << one.b_layout
                 << one.out_layout << ", numbers " << one.numbers
                 << (one.pairs ? ", pairs" : "")
                 << (one.has_scales ? ", scales of " : ", ")
                 << one.scale_terms);
    const std::vector<std::byte> expected =
        run(one, row_tables()[0], Way::product, true);
    for (const KernelTable& table : row_tables()) {
      if (!can_take(table, one.pairs)) continue;
      for (const bool at_end : {true, false}) {
        for (const Way way : {Way::product, Way::packed_rows, Way::few}) {
          if (way == Way::few &&
              (one.rows > slave::kFewProductRows || one.scale_terms != 0)) {
            continue;
          }
          EXPECT_TRUE(run(one, table, way, at_end) == expected)
              << table.isa << static_cast<int>(way);
        }
      }
    }
    if (HasFailure()) return;
  }
}

// Sums that fit into a double, and sums that need two.
TEST(ScaledProductKernels, BitsOfReference) {
  struct Scaled {
    std::size_t rows, columns, terms, block;
    std::uint32_t wide;
    ScalarType out;
  };
  const Scaled cases[] = {
      {1, 1, 1, 0, 0, kFloat32},      {13, 32, 600, 0, 0, kBFloat16},
      {25, 31, 140, 32, 0, kFloat32}, {12, 20, 77, 16, 2, kFloat16},
      {5, 32, 900, 0, 2, kFloat32},   {14, 32, 300, 0, 1, kFloat32},
      {3, 32, 0, 0, 0, kFloat32}};
  Random random(5);
  for (const Scaled& one : cases) {
    SCOPED_TRACE(one.terms);
    const std::size_t steps =
        one.block == 0 ? 1 : (one.terms + one.block - 1) / one.block;
    // Values of 4 bits; if wide, of very different exponents.
    const auto value = [&](std::uint32_t wide) {
      const int exponent = wide != 0 ? static_cast<int>(random.below(36)) - 20
                                     : static_cast<int>(random.below(8)) - 4;
      const auto bits = static_cast<float>(random.below(16)) - 8;
      return std::ldexp(bits, exponent);
    };
    std::vector<std::uint16_t> a(one.rows * one.terms);
    for (auto& x : a) x = bfloat16_from_float(value(one.wide));
    std::vector<float> panel(16 + one.terms * kProductLanes),
        a_scales(one.rows * steps), b_scales(steps * kProductLanes);
    for (std::size_t i = 16; i < panel.size(); ++i)
      panel[i] = value(one.wide / 2);
    for (float& x : a_scales)
      x = 1 + static_cast<float>(random.below(999)) / 999;
    for (float& x : b_scales)
      x = 1 + static_cast<float>(random.below(999)) / 999;
    ScaledProductArgs args{one.terms,
                           one.block,
                           static_cast<std::uint32_t>(one.columns),
                           static_cast<std::uint32_t>(steps),
                           one.wide,
                           1,
                           1,
                           0.7f,
                           0};
    using At = slave::ScaledProductOperand;
    Operand layout[At::count] = {};
    layout[At::a].unit_step = one.terms * 2;
    layout[At::a_scales].unit_step = steps * sizeof(float);
    layout[At::out].unit_step = kProductLanes * kFloatFormats[one.out].bytes;
    const std::size_t bytes = ((one.rows - 1) * kProductLanes + one.columns) *
                              kFloatFormats[one.out].bytes;
    GuardedPages scratch(slave::scaled_product_scratch_bytes());
    const auto run_one = [&](const KernelTable& table, std::byte* out) {
      std::memset(out, 1, bytes);
      run_rows(table, kernel_of(F::scaled_product, {one.out}), &args,
               {a.data(), panel.data(), nullptr, a_scales.data(),
                b_scales.data(), out},
               one.rows, 0, nullptr, false,
               reinterpret_cast<float*>(scratch.begin()), nullptr, layout);
      return std::vector<std::byte>(out, out + bytes);
    };
    GuardedPages out(bytes);
    const std::vector<std::byte> expected =
        run_one(row_tables()[0], out.end() - bytes);
    for (const KernelTable& table : row_tables()) {
      EXPECT_TRUE(run_one(table, out.end() - bytes) == expected) << table.isa;
    }
  }
}

}  // namespace
}  // namespace swamp::test
