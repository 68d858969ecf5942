// Products of codes with scales. Codes become bfloat16, which has all their
// values, and b is packed as in other products; a unit is a row of 32 columns
// of the result. In transfer modes copy and check LDM bounds the terms of a
// launch, and the master copies parts of the matrices.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "master/float8.h"
#include "master/product.h"
#include "master/row_launch.h"
#include "master/text.h"

namespace swamp {

using master::Checker;
using master::divided;
using master::panels_of;
using master::RowTable;
using master::Workspace;
using slave::kProductLanes;
using slave::ScaledProductArgs;

namespace {

// ---- Validation

// Scales says which scale an element has.
struct Scales {
  std::size_t row_size, block, steps;  // rows and elements of one, and of a row

  explicit Scales(const ScaledMatrix& x) : row_size(1), block(x.block) {
    steps = block == 0 ? 1 : divided(x.columns, block);
    if (x.scales.count == 1) {
      row_size = std::max<std::size_t>(1, x.rows);
      block = 0, steps = 1;
    } else if (x.square && x.scales.dtype == kFloat32) {
      row_size = block;
    }
  }
  std::size_t count(const ScaledMatrix& x) const {
    return divided(x.rows, row_size) * steps;
  }
  std::size_t at(std::size_t row, std::size_t column) const {
    return row / row_size * steps + (block == 0 ? 0 : column / block);
  }
};

void require_scaled(const std::string& name, const ScaledMatrix& x) {
  const FloatFormat& format =
      master::require_code_format(name + ".codes.dtype", x.codes);
  master::require_whole_codes(name + ".columns", x.columns, format);
  const Checker check(name), scales(name + ".scales");
  // A panel is a unit of less than 4 GiB.
  check.at_most("columns", x.columns, std::size_t{1} << 24)
      .rows(x.rows, x.columns,
            std::numeric_limits<std::size_t>::max() / sizeof(float));
  master::require_codes(name + ".codes", x.codes, format, x.rows * x.columns,
                        name);
  // The block of a narrow matrix of quantize_blocks() may be longer than a row.
  const std::size_t most_block = std::max(slave::kMaxBlock, x.columns);
  if (x.block % 2 != 0 || x.block > most_block) {
    master::refuse(name + ".block", std::to_string(x.block),
                   "an even number of elements, at most " +
                       std::to_string(most_block) + ", or 0 for a row");
  }
  constexpr std::uint32_t kScales =
      1u << kFloat32 | 1u << kFloat8E8M0FNU | 1u << kFloat8E4M3FN;
  scales.dtype(x.scales.dtype, kScales);
  if (x.square && x.block == 0) {
    master::refuse(name + ".block", "0", "the rows of a square block");
  }
  const std::size_t count = Scales(x).count(x);
  if (x.scales.count != count && x.scales.count != 1) {
    master::refuse(name + ".scales.count", std::to_string(x.scales.count),
                   std::to_string(count) + ", or 1 for all");
  }
  scales.data(x.scales.data, kScalarTypeBytes[x.scales.dtype], x.scales.count);
  if (x.scales.dtype == kFloat8E4M3FN) check.tensor_amax(x.tensor_amax);
}

// Span is the binary exponents of a format's values: all are multiples of
// 2^least and less than 2^end, and those from 1 on multiples of 2^-mantissa.
struct Span {
  int least = 1000, end = -1000, mantissa;

  explicit Span(ScalarType format)
      : mantissa(static_cast<int>(kFloatFormats[format].mantissa_bits)) {
    for (const float code : master::code_values(kFloatFormats[format])) {
      const float value = std::abs(code);
      if (!(value > 0) || std::isinf(value)) continue;
      least = std::min(least, std::ilogb(value));
      end = std::max(end, std::ilogb(value) + 1);
    }
  }
};

// wide_of() is ScaledProductArgs::wide, for sums of so many products, a number
// that `name` gives. Throws if two doubles are not enough.
std::uint32_t wide_of(const ScaledMatrix& a, const ScaledMatrix& b,
                      std::size_t terms, const char* name) {
  const Span x(a.codes.dtype), y(b.codes.dtype);
  const int least = x.least + y.least, end = x.end + y.end;
  constexpr int kBits = std::numeric_limits<double>::digits;
  const auto fits = [&](int bits) {
    return bits < kBits && terms <= std::size_t{1} << (kBits - bits);
  };
  if (fits(end - least)) return 0;
  // Elements of a that are left out are 0, whose product with inf is nan.
  const int split = std::ilogb(slave::kSplit);
  if (!kFloatFormats[b.codes.dtype].has_infinity() &&
      fits(std::max(x.end - split + x.mantissa, split - x.least) + y.end -
           y.least)) {
    return 1;
  }
  const int unit = std::ilogb(slave::kProductUnit);
  const int bits = std::max(end - unit, unit - least);
  if (!fits(bits)) {
    master::refuse(name, std::to_string(terms),
                   "at most " +
                       std::to_string(std::size_t{1} << (kBits - bits)) +
                       ", for exact sums of these formats");
  }
  return 2;
}

struct Problem {
  const Matrix& out;
  const ScaledMatrix &a, &b;
  ScaledProductArgs args;

  std::size_t terms() const { return a.columns; }
  std::size_t out_bytes() const { return kScalarTypeBytes[out.dtype]; }
  std::size_t steps(std::size_t count) const {
    return args.block == 0 ? 1 : divided(count, args.block);
  }
};

Problem require_problem(const Matrix& out, const ScaledMatrix& a,
                        const ScaledMatrix& b) {
  master::require_matrix("out", out);
  require_scaled("a", a);
  require_scaled("b", b);
  Checker("b").same("columns", b.columns, a.columns, "a");
  Checker("out")
      .same("rows", out.rows, a.rows, "a")
      .same("columns", out.columns, b.rows, "b", " rows");
  const Scales x(a), y(b);
  if (x.block != 0 && y.block != 0) {
    Checker("b").same("block", y.block, x.block, "a");
  }
  const bool nvfp4 = a.scales.dtype == kFloat8E4M3FN;
  if (nvfp4 != (b.scales.dtype == kFloat8E4M3FN)) {
    master::refuse("b.scales.dtype", kFloatFormats[b.scales.dtype].name,
                   "float8_e4m3fn for both or for none");
  }
  ScaledProductArgs args{};
  args.block = std::max(x.block, y.block);
  const bool by_block = args.block != 0 && args.block < a.columns;
  args.wide = wide_of(a, b, by_block ? args.block : a.columns,
                      !by_block      ? "a.columns"
                      : x.block != 0 ? "a.block"
                                     : "b.block");
  args.factor = nvfp4 ? nvfp4_factor(a.tensor_amax, b.tensor_amax) : 1;
  return {out, a, b, args};
}

// ---- Launches

// write_scales() writes the scales of `count` rows from `row` on, as floats:
// element (i, s) is to[i * row_step + s * step].
void write_scales(const ScaledMatrix& x, std::size_t block, std::size_t row,
                  std::size_t count, std::size_t steps, std::size_t row_step,
                  std::size_t step, float* to) {
  const Scales scales(x);
  const bool coded = x.scales.dtype != kFloat32;
  const std::array<float, 256>* const values =
      coded ? &master::code_values(kFloatFormats[x.scales.dtype]) : nullptr;
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t s = 0; s < steps; ++s) {
      const std::size_t at = scales.at(row + i, s * block);
      to[i * row_step + s * step] =
          coded ? (*values)[static_cast<const std::uint8_t*>(x.scales.data)[at]]
                : static_cast<const float*>(x.scales.data)[at];
    }
  }
}

// decode() makes bfloat16 of `count` rows from `row` on.
void decode(const ScaledMatrix& x, std::size_t row, std::size_t count,
            void* values, Machine* machine) {
  const std::size_t elements =
      master::code_elements(kFloatFormats[x.codes.dtype]);
  Tensor codes = x.codes;
  codes.count = count * x.columns / elements;
  if (codes.count == 0) return;
  codes.data =
      static_cast<std::uint8_t*>(x.codes.data) + row * x.columns / elements;
  dequantize(codes, {values, count * x.columns, kBFloat16}, 1, machine);
}

// operation_of() computes rows of a panel. If the terms are divided between
// launches, it has a state.
Operation operation_of(const Problem& problem, const ScaledProductArgs& args,
                       bool divides) {
  using At = slave::ScaledProductOperand;
  Operation operation(slave::kKernels[slave::kernel_of(
                          KernelFamily::scaled_product, {problem.out.dtype})],
                      &args);
  const std::size_t state =
      kProductLanes * (args.block != 0  ? sizeof(float)
                       : args.wide != 0 ? 2 * sizeof(double)
                                        : sizeof(double));
  operation.set_lines(At::a, 1, args.terms * 2, 0, problem.terms() * 2);
  operation.set_unit_bytes(
      At::b, slave::product_panel_bytes(args.terms, kProductLanes, false));
  operation.set_unit_bytes(At::sums, divides ? state : 0);
  operation.set_lines(At::a_scales, 1, args.steps * sizeof(float), 0,
                      problem.steps(problem.terms()) * sizeof(float));
  operation.set_unit_bytes(At::b_scales,
                           args.steps * kProductLanes * sizeof(float));
  operation.set_lines(At::out, args.last, args.columns * problem.out_bytes(), 0,
                      problem.out.columns * problem.out_bytes());
  operation.scratch_bytes =
      static_cast<std::uint32_t>(slave::scaled_product_scratch_bytes());
  // Without this a tile would be 32 rows, so that their scales are a whole
  // line.
  operation.tile_step = slave::kMaxProductRows;
  // The arithmetic takes longer than the transfers.
  operation.traffic_bytes =
      static_cast<std::uint32_t>(1 + args.terms * kProductLanes *
                                         (args.wide == 0   ? 1
                                          : args.wide == 1 ? 2
                                                           : 6));
  return operation;
}

// part_terms() returns how many terms fit into LDM, a multiple of the block.
std::size_t part_terms(const Machine::Impl& machine, const Problem& problem) {
  ScaledProductArgs args = problem.args;
  args.columns = kProductLanes;
  args.last = 1;
  const std::size_t unit = std::max<std::size_t>(2, args.block);
  std::size_t blocks = std::max<std::size_t>(1, divided(problem.terms(), unit));
  for (;; blocks /= 2) {
    args.terms = std::min(blocks * unit, problem.terms());
    args.steps = static_cast<std::uint32_t>(problem.steps(args.terms));
    slave::ProductPackArgs pack =
        master::pack_args(args.terms, kProductLanes, kProductLanes, false);
    const Operation operations[] = {
        operation_of(problem, args, true),
        master::pack_operation(pack,
                               Matrices::dense(nullptr, 1, problem.out.columns,
                                               problem.terms(), kBFloat16)
                                   .transposed())};
    if (runtime::ldm_need(machine, operations[0], 0).fits() &&
        runtime::ldm_need(machine, operations[1], 0).fits()) {
      return args.terms;
    }
    if (blocks == 1) {
      master::refuse("a", "a product of codes",
                     "more LDM than " + std::to_string(machine.ldm_bytes) +
                         " bytes (SWAMP_LDM_BYTES)",
                     SWAMP_UNSUPPORTED);
    }
  }
}

// Memory of a call, of whole cache lines.
struct Layout {
  std::size_t bytes = 0;

  std::size_t reserve(std::size_t count, std::size_t each) {
    const std::size_t at = bytes;
    bytes += divided(count * each, 128) * 128;
    return at;
  }
};

void run(Machine::Impl& impl, Machine* machine, const Problem& problem) {
  const Matrix& out = problem.out;
  const std::size_t terms = problem.terms();
  const std::size_t most = part_terms(impl, problem);
  const std::size_t panel_bytes =
      slave::product_panel_bytes(most, kProductLanes, false);
  const std::size_t part_panels = std::clamp<std::size_t>(
      master::kPackedBytes / panel_bytes, 1, panels_of(out.columns));
  const std::size_t part_columns = part_panels * kProductLanes;
  const bool divides = most < terms;

  Layout layout;
  const std::size_t at_a = layout.reserve(out.rows * terms, 2),
                    at_b = layout.reserve(part_columns * terms, 2),
                    at_packed = layout.reserve(part_panels, panel_bytes),
                    at_sums = layout.reserve(
                        divides ? part_panels * out.rows * kProductLanes : 0,
                        2 * sizeof(double)),
                    at_a_scales =
                        layout.reserve(out.rows * problem.steps(terms), 4),
                    at_b_scales =
                        layout.reserve(part_columns * problem.steps(terms), 4);
  Workspace& workspace = Workspace::of_this_thread();
  std::byte* const memory = workspace.row_values<std::byte>(layout.bytes);
  const auto floats = [&](std::size_t at) {
    return reinterpret_cast<float*>(memory + at);
  };
  const auto at_result = [&](std::size_t column) {
    return static_cast<std::byte*>(out.data) + column * problem.out_bytes();
  };
  const std::size_t all_steps = problem.steps(terms);
  decode(problem.a, 0, out.rows, memory + at_a, machine);
  write_scales(problem.a, problem.args.block, 0, out.rows, all_steps, all_steps,
               1, floats(at_a_scales));

  for (std::size_t column = 0; column < out.columns; column += part_columns) {
    const std::size_t columns = std::min(part_columns, out.columns - column);
    const std::size_t panels = panels_of(columns);
    decode(problem.b, column, columns, memory + at_b, machine);
    std::memset(memory + at_b_scales, 0,
                part_columns * all_steps * sizeof(float));
    for (std::size_t p = 0; p < panels; ++p) {
      const std::size_t first = p * kProductLanes;
      write_scales(problem.b, problem.args.block, column + first,
                   std::min(kProductLanes, columns - first), all_steps, 1,
                   kProductLanes, floats(at_b_scales) + first * all_steps);
    }
    std::size_t term = 0;
    do {  // once without terms
      ScaledProductArgs args = problem.args;
      args.terms = std::min(most, terms - term);
      args.steps = static_cast<std::uint32_t>(problem.steps(args.terms));
      args.first = term == 0 ? 1 : 0;
      args.last = term + args.terms == terms ? 1 : 0;
      args.columns = kProductLanes;
      ScaledProductArgs last = args;
      if (columns % kProductLanes != 0) {
        last.columns = static_cast<std::uint32_t>(columns % kProductLanes);
      }
      const std::size_t step = args.block == 0 ? 0 : term / args.block;
      const Matrices b =
          Matrices::dense(memory + at_b, 1, columns, terms, kBFloat16);
      const master::PackedLanes lanes{master::part(b.transposed(), 0, term, 0),
                                      1, columns, kProductLanes,
                                      memory + at_packed};
      master::pack_panels(impl, &lanes, 1, args.terms, args.terms, false);
      const Operation operations[] = {operation_of(problem, args, divides),
                                      operation_of(problem, last, divides)};
      RowTable table(operations, 2, panels, false,
                     {slave::kMaxProductRows, ~std::size_t{0}},
                     workspace.segments());
      const std::size_t packed =
          slave::product_panel_bytes(args.terms, kProductLanes, false);
      const std::size_t tile = out.rows * kProductLanes;
      for (std::size_t p = 0; p < panels; ++p) {
        table.add(out.rows,
                  {memory + at_a + term * 2, memory + at_packed + p * packed,
                   memory + at_sums + p * tile * 2 * sizeof(double),
                   floats(at_a_scales) + step,
                   floats(at_b_scales) + (p * all_steps + step) * kProductLanes,
                   at_result(column + p * kProductLanes)},
                  (p + 1) * kProductLanes > columns ? 1 : 0);
      }
      master::SegmentList list = table.list();
      list.memory_bytes =
          out.rows * (terms * 2 + columns * problem.out_bytes());
      workspace.run(impl, list);
      term += args.terms;
    } while (term < terms);
  }
}

}  // namespace

void product(const Matrix& out, const ScaledMatrix& a, const ScaledMatrix& b,
             Machine* machine) {
  const Problem problem = require_problem(out, a, b);
  Machine::Impl& impl = master::impl_of(machine);
  if (out.rows == 0 || out.columns == 0) return;
  run(impl, machine, problem);
}

}  // namespace swamp
