// Blocks of elements with a scale each: validation, and the launches. Codes and
// scales along rows lie as x does, so that a unit is a block or a row. Codes
// along columns are those of the transpose: a unit is a stripe of rows, of
// which a kernel writes a part of every transposed row. Values lie as x does,
// along columns too. If LDM is too small for all columns of a stripe, each
// launch computes some of them.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "master/float8.h"
#include "master/row_launch.h"
#include "master/text.h"

namespace swamp {

using master::Checker;
using master::divided;
using master::RowTable;
using master::Workspace;
using slave::BlockArgs;
using slave::BlockOperand;
using slave::BlockRule;

namespace {

struct Scaling {
  const char* name;
  BlockRule rule;
  ScalarType scales;
  std::size_t block;  // the default; 0: a row
  bool skips_nan;
  bool power_of_2;
};

// Indexed by BlockScaling.
constexpr Scaling kScalings[] = {
    {"mx_floor", BlockRule::floor, kFloat8E8M0FNU, 32, false, false},
    {"mx_ceil", BlockRule::ceil, kFloat8E8M0FNU, 32, false, false},
    {"mx_even", BlockRule::even, kFloat8E8M0FNU, 32, false, false},
    {"mx_rceil", BlockRule::rceil, kFloat8E8M0FNU, 32, false, false},
    {"te_mxfp8", BlockRule::te_mx, kFloat8E8M0FNU, 32, true, false},
    {"microxcaling", BlockRule::microxcaling, kFloat8E8M0FNU, 32, false, false},
    {"te_nvfp4", BlockRule::te_nvfp4, kFloat8E4M3FN, 16, true, false},
    {"torchao_nvfp4", BlockRule::torchao_nvfp4, kFloat8E4M3FN, 16, false,
     false},
    {"te_block", BlockRule::te, kFloat32, 128, true, false},
    {"te_block_power_of_2", BlockRule::te, kFloat32, 128, true, true},
    {"torchao_float8", BlockRule::torchao, kFloat32, 0, false, false},
    {"torchao_float8_power_of_2", BlockRule::torchao, kFloat32, 0, false,
     true}};
// Of factors that are given, and of largest magnitudes.
constexpr Scaling kGiven = {"factors", BlockRule::given, kFloat32, 0, false,
                            false};
constexpr Scaling kAmax = {"amax", BlockRule::amax, kFloat32, 128, true, false};

// Call is one call, after validation of what rows and columns share.
struct Call {
  const Matrix& x;
  const BlockOptions& options;
  const Scaling& scaling;
  std::size_t block;

  std::size_t scale_bytes() const { return kScalarTypeBytes[scaling.scales]; }
  // repeats() returns whether each row of a block has its scale.
  bool repeats() const { return !options.square || scale_bytes() == 1; }
  std::size_t scale_rows(std::size_t rows) const {
    return repeats() ? rows : divided(rows, block);
  }
};

bool is_block(std::size_t block) {
  return block == 16 || block == 32 || block == 64 || block == 128;
}

// require_call() takes the scaling of the options if none is given.
Call require_call(const Matrix& x, const BlockOptions& options, bool by_row,
                  const Scaling* special = nullptr) {
  master::require_matrix("x", x);
  if (options.scaling > BlockScaling::torchao_float8_power_of_2) {
    master::refuse("options.scaling",
                   std::to_string(static_cast<unsigned>(options.scaling)),
                   "0 (mx_floor) to 11 (torchao_float8_power_of_2)");
  }
  const Scaling& scaling =
      special != nullptr ? *special
                         : kScalings[static_cast<std::size_t>(options.scaling)];
  const bool is_given = special == &kGiven;
  const std::size_t block = is_given             ? x.columns
                            : options.block != 0 ? options.block
                            : scaling.block != 0 ? scaling.block
                                                 : x.columns;
  if (!is_given && !is_block(block) && (!by_row || block != x.columns)) {
    master::refuse(
        "options.block", std::to_string(options.block),
        std::string("16, 32, 64 or 128") +
            (by_row ? ", or the columns, " + std::to_string(x.columns)
                    : " (along columns, and if square)"));
  }
  // A stripe of up to 128 rows is a unit of less than 4 GiB.
  if (!by_row) {
    Checker("x").at_most("columns", x.columns, std::size_t{1} << 22,
                         " (along columns, and if square)");
  }
  if (scaling.scales == kFloat8E4M3FN) {
    Checker("options").tensor_amax(options.tensor_amax);
  }
  return {x, options, scaling, std::max<std::size_t>(1, block)};
}

// require_rule() throws unless the scaling has a rule for the format.
void require_rule(const Scaling& scaling, const std::string& name,
                  const FloatFormat& format) {
  const bool has_rule =
      scaling.scales == kFloat8E4M3FN
          ? format.type == kFloat4E2M1FNX2
          : scaling.scales == kFloat32 || format.specials != Specials::tapered;
  if (has_rule) return;
  master::refuse(name, format.name,
                 std::string("a format with a rule of ") + scaling.name,
                 SWAMP_UNSUPPORTED);
}

// require_output() checks codes and scales of a matrix of this shape. `length`
// is the name of its columns.
const FloatFormat& require_output(const Call& call, const char* output,
                                  const BlockCodes& out, std::size_t rows,
                                  std::size_t columns,
                                  const char* length = "x.columns") {
  const std::string codes = std::string(output) + ".codes";
  const Checker scales(std::string(output) + ".scales");
  const FloatFormat& format =
      master::require_code_format(codes + ".dtype", out.codes);
  const Scaling& scaling = call.scaling;
  require_rule(scaling, codes + ".dtype", format);
  master::require_whole_codes(length, columns, format);
  master::require_codes(codes, out.codes, format, rows * columns, "x");
  scales.dtype(out.scales.dtype, 1u << scaling.scales);
  const std::size_t count =
      call.scale_rows(rows) * divided(columns, call.block);
  if (out.scales.count != count) {
    master::refuse(std::string(output) + ".scales.count",
                   std::to_string(out.scales.count),
                   std::to_string(count) + ", one for each block of " +
                       std::to_string(call.block));
  }
  scales.data(out.scales.data, call.scale_bytes(), count);
  return format;
}

float largest_of(ScalarType type) {
  return type == kFloat16    ? 65504.0f
         : type == kBFloat16 ? 0x1.fep127f
                             : slave::kFloatMax;
}

float tensor_scale(const Call& call, float amax) {
  return call.scaling.rule == BlockRule::te_nvfp4
             ? slave::te_nvfp4_tensor_scale(amax)
             : slave::torchao_nvfp4_tensor_scale(amax);
}

// block_args() returns the arguments of codes.
BlockArgs block_args(const Call& call, const FloatFormat& format) {
  const BlockOptions& options = call.options;
  BlockArgs args = {};
  args.code =
      master::cast_args(format, options.rounding, options.policy, options.seed);
  args.column_key = master::rounding_key(~options.seed);
  args.block = call.block;
  args.rule = call.scaling.rule;
  args.scale_bytes = static_cast<std::uint32_t>(call.scale_bytes());
  args.largest = master::code_values(format)[format.largest()];
  args.tensor_scale = tensor_scale(call, options.tensor_amax);
  args.column_tensor_scale = std::isnan(options.column_amax)
                                 ? args.tensor_scale
                                 : tensor_scale(call, options.column_amax);
  args.if_infinite = largest_of(call.x.dtype);
  args.power_of_2 = call.scaling.power_of_2 ? 1 : 0;
  args.skips_nan = call.scaling.skips_nan ? 1 : 0;
  args.square = options.square ? 1 : 0;
  args.repeats = call.repeats() ? 1 : 0;
  args.hadamard = options.hadamard ? 1 : 0;
  args.divides = options.divide ? 1 : 0;
  return args;
}

const std::byte* data_of(const Tensor& tensor, std::size_t offset) {
  return static_cast<const std::byte*>(tensor.data) + offset;
}

// Stripes launches stripes of rows of a matrix. `rows` or `columns` is null if
// there are no codes along them.
struct Stripes {
  const Call& call;
  Machine::Impl& machine;
  const BlockCodes* rows;
  const BlockCodes* columns;
  BlockArgs args;
  std::size_t row_count = call.x.rows;
  std::size_t column_count = call.x.columns;
  slave::ValuePartial seen = {};

  bool has_codes() const {
    return args.code.form == slave::CodeForm::code &&
           args.rule != BlockRule::amax;
  }
  bool is_given() const { return args.rule == BlockRule::given; }

  // Part is some columns of some rows.
  struct Part {
    std::size_t row, rows, column, columns;
  };

  // Place is where the part of an operand begins, and its lines.
  struct Place {
    const void* data;
    std::size_t offset, lines, line_bytes, line_step, unit_step;
  };

  // places() returns the place of each operand, for stripes of part.rows rows
  // from part.row on.
  std::array<Place, BlockOperand::count> places(const Part& part) const {
    const std::size_t x_bytes = kScalarTypeBytes[call.x.dtype];
    const std::size_t block = call.block;
    // Convert, for the matrix or its transpose, a number of elements to bytes
    // of codes and of scales, and a row to its row of scales.
    const auto codes = [&](std::size_t count) {
      return slave::form_bytes(args.code, count);
    };
    const auto scales = [&](std::size_t count) {
      return divided(count, block) * args.scale_bytes;
    };
    const auto scale_row = [&](std::size_t row) {
      return call.repeats() ? row : divided(row, block);
    };
    const auto along = [&](const void* data, const auto& bytes_of,
                           std::size_t row, std::size_t lines,
                           std::size_t column, std::size_t width,
                           std::size_t all) {
      return Place{data,          row * bytes_of(all) + bytes_of(column),
                   lines,         bytes_of(width),
                   bytes_of(all), 0};
    };
    const auto x = [&](std::size_t count) { return count * x_bytes; };
    const auto bytes = [](std::size_t count) { return count; };
    const auto [row, height, column, width] = part;
    using At = BlockOperand;
    std::array<Place, At::count> all{};
    all[At::x] =
        along(call.x.data, x, row, height, column, width, column_count);
    if (rows != nullptr) {
      all[At::codes] = along(rows->codes.data, codes, row, height, column,
                             width, column_count);
      all[At::scales] = along(rows->scales.data, scales, scale_row(row),
                              scale_row(height), column, width, column_count);
    }
    if (args.code.rounding == slave::kStochastic) {
      all[At::random] = along(call.options.random, bytes, row, height, column,
                              width, column_count);
    }
    // The next stripe begins `stripe` lines later; along columns, the bytes of
    // `stripe` elements later.
    const std::size_t stripe = args.stripe_rows;
    for (const int s : {At::x, At::codes, At::random}) {
      all[s].unit_step = stripe * all[s].line_step;
    }
    all[At::scales].unit_step = scale_row(stripe) * all[At::scales].line_step;
    if (columns != nullptr && args.code.form != slave::CodeForm::code) {
      all[At::column_codes] = along(columns->codes.data, codes, row, height,
                                    column, width, column_count);
      all[At::column_codes].unit_step =
          stripe * all[At::column_codes].line_step;
      // The factors of all columns of the part.
      all[At::column_scales] = {columns->scales.data,
                                column * sizeof(float),
                                1,
                                width * sizeof(float),
                                0,
                                0};
    } else if (columns != nullptr) {
      all[At::column_codes] = along(columns->codes.data, codes, column, width,
                                    row, height, row_count);
      all[At::column_scales] =
          along(columns->scales.data, scales, scale_row(column),
                scale_row(width), row, height, row_count);
      all[At::column_codes].unit_step = codes(stripe);
      all[At::column_scales].unit_step = scales(stripe);
    }
    return all;
  }

  using Addresses = std::array<const std::byte*, BlockOperand::count>;

  // set_operation() makes the operation of such stripes, and returns the
  // addresses of the first one.
  Addresses set_operation(const Part& part, BlockArgs& part_args,
                          Operation& operation) const {
    part_args = args;
    part_args.rows = part.rows == args.stripe_rows ? row_count : part.rows;
    part_args.columns = part.columns;
    part_args.first_index = part.row * args.index_step + part.column;
    operation = Operation(
        master::row_kernel<KernelFamily::quantize_blocks>(call.x.dtype),
        &part_args);
    if (is_given()) {
      operation.operands[BlockOperand::scales].access = Access::in;
      operation.operands[BlockOperand::column_scales].access = Access::constant;
    }
    Addresses addresses{};
    int s = 0;
    for (const Place& place : places(part)) {
      if (place.data == nullptr) {
        operation.remove_operand(s++);
      } else {
        addresses[s] = static_cast<const std::byte*>(place.data) + place.offset;
        operation.set_lines(s++, place.lines, place.line_bytes, place.line_step,
                            place.unit_step);
      }
    }
    operation.traffic_bytes = static_cast<std::uint32_t>(std::min<std::size_t>(
        std::size_t{operation.operands[BlockOperand::x].unit_bytes} * 2,
        std::numeric_limits<std::uint32_t>::max()));
    if (args.stripe_rows > 1 && has_codes()) {
      operation.scratch_bytes =
          static_cast<std::uint32_t>(args.stripe_rows * slave::kBlockWidth);
    }
    return addresses;
  }

  // ldm_need() returns the LDM that stripes of `width` columns need.
  runtime::LdmNeed ldm_need(std::size_t width) const {
    BlockArgs part_args;
    Operation operation;
    set_operation(
        {0, std::min<std::size_t>(args.stripe_rows, row_count), 0, width},
        part_args, operation);
    return runtime::ldm_need(machine, operation, partial_bytes());
  }
  // partial_bytes() returns the size of what a slave has seen: of values only.
  std::size_t partial_bytes() const { return has_codes() ? 0 : sizeof seen; }

  // launch() computes `width` columns from `column` on: whole stripes, and the
  // last one if it has fewer rows.
  void launch(std::size_t column, std::size_t width) {
    const std::size_t stripe = args.stripe_rows;
    const std::size_t whole = row_count / stripe, rest = row_count % stripe;
    const std::pair<Part, std::size_t> parts[] = {
        {{0, stripe, column, width}, whole},
        {{whole * stripe, rest, column, width},
         std::min<std::size_t>(rest, 1)}};
    BlockArgs part_args[2];
    Operation operations[2];
    Addresses at[2];
    std::size_t units[2], count = 0;
    for (const auto& [part, part_units] : parts) {
      if (part_units == 0) continue;
      at[count] = set_operation(part, part_args[count], operations[count]);
      units[count++] = part_units;
    }
    Workspace& workspace = Workspace::of_this_thread();
    RowTable table(operations, count, count, false,
                   master::row_grains(stripe * width), workspace.segments());
    for (std::size_t i = 0; i < count; ++i) {
      table.add(units[i],
                {at[i][0], at[i][1], at[i][2], at[i][3], at[i][4], at[i][5]},
                i);
    }
    const master::SegmentList list = table.list();
    workspace.run(machine, list, partial_bytes());
    if (has_codes()) return;
    workspace.for_each_partial<slave::ValuePartial>(
        list, [&](std::size_t, const slave::ValuePartial& partial) {
          seen.join(partial);
        });
  }

  // run_rows() computes codes along rows, whose blocks are not square. A unit
  // is a row, or a block.
  void run_rows() {
    prepare_rows();
    launch(0, column_count);
  }
  void prepare_rows() {
    columns = nullptr;
    args.stripe_rows = 1;
    if (column_count % call.block == 0) {
      row_count *= column_count / call.block;
      column_count = call.block;
    }
    args.index_step = column_count;
    master::require_ldm("x", call.x, ldm_need(column_count));
  }

  void run() {
    if (columns == nullptr && !call.options.square) return run_rows();
    // Codes along columns are transposed: whole cache lines, of packed codes,
    // too. Values are not, and few rows leave LDM for many columns.
    const bool transposes = args.code.form == slave::CodeForm::code;
    args.stripe_rows = static_cast<std::uint32_t>(
        transposes   ? (call.block > 64 || args.code.elements == 2 ? 128 : 64)
        : is_given() ? 16
                     : call.block);
    args.index_step = column_count;
    // All columns at a time, or as many as fit into LDM.
    const std::size_t least =
        rows != nullptr || args.square != 0 ? call.block : std::size_t{16};
    std::size_t width = column_count;
    for (;;) {
      const runtime::LdmNeed need = ldm_need(width);
      if (need.fits()) break;
      if (width <= least) return run_apart(need);
      // Half of it, in whole blocks.
      std::size_t unit = slave::kBlockWidth;
      while (unit >= width) unit /= 2;
      width = divided(width, 2 * unit) * unit;
    }
    for (std::size_t c = 0; c < column_count; c += width) {
      launch(c, std::min(width, column_count - c));
    }
  }

  // run_apart() computes the codes along rows, and then those along columns.
  void run_apart(const runtime::LdmNeed& need) {
    if (rows == nullptr || columns == nullptr || call.options.square) {
      master::refuse("x", "blocks along columns",
                     "more LDM than " + std::to_string(need.ldm_bytes) +
                         " bytes (SWAMP_LDM_BYTES)",
                     SWAMP_UNSUPPORTED);
    }
    Stripes along_columns = *this, along_rows = *this;
    along_columns.rows = nullptr;
    along_rows.prepare_rows();  // refuses before anything is written
    along_columns.run();
    along_rows.launch(0, along_rows.column_count);
    seen.join(along_columns.seen);
    seen.join(along_rows.seen);
  }
};

// require_hadamard() throws unless the columns can be transformed, if they are.
void require_hadamard(const Matrix& x, const BlockOptions& options,
                      bool has_columns) {
  if (!options.hadamard) return;
  if (!has_columns || options.square) {
    master::refuse("options.hadamard", "true",
                   "false without columns, and if square");
  }
  if (x.rows % slave::kHadamard != 0) {
    master::refuse("x.rows", std::to_string(x.rows),
                   "a multiple of 16 for the Hadamard transform");
  }
}

ValueReport report_of(const slave::ValuePartial& seen) {
  return {float_from_bits(seen.amax),
          float_from_bits(seen.column_amax),
          seen.has_nan != 0,
          seen.wide == 0,
          seen.saturated,
          seen.flushed};
}

}  // namespace

void quantize_blocks(const Matrix& x, const BlockCodes* rows,
                     const BlockCodes* columns, const BlockOptions& options,
                     Machine* machine) {
  if (rows == nullptr && columns == nullptr) {
    master::refuse("rows", "null", "codes along rows or along columns");
  }
  const Call call =
      require_call(x, options, columns == nullptr && !options.square);
  const FloatFormat* format = nullptr;
  if (rows != nullptr) {
    format = &require_output(call, "rows", *rows, x.rows, x.columns);
  }
  if (columns != nullptr) {
    const FloatFormat& own =
        require_output(call, "columns", *columns, x.columns, x.rows, "x.rows");
    if (format != nullptr && format != &own) {
      master::refuse("columns.codes.dtype", own.name,
                     std::string(format->name) + ", as 'rows' has");
    }
    format = &own;
  }
  master::require_cast(*format, options.rounding, options.policy);
  require_hadamard(x, options, columns != nullptr);
  Machine::Impl& impl = master::impl_of(machine);
  if (x.rows == 0 || x.columns == 0) return;
  Stripes stripes{call, impl, rows, columns, block_args(call, *format)};
  stripes.run();
}

ValueReport quantized_values(const Matrix& x, ScalarType type,
                             const Matrix* rows, const Matrix* columns,
                             const BlockOptions& options, Machine* machine) {
  if (rows == nullptr && columns == nullptr) {
    master::refuse("rows", "null", "values along rows or along columns");
  }
  const bool is_given =
      options.row_factors != nullptr || options.column_factors != nullptr;
  if (options.square && columns != nullptr) {
    master::refuse("columns", "values",
                   "null if square, as those along rows are the same");
  }
  const Call call =
      require_call(x, options, columns == nullptr && !options.square,
                   is_given ? &kGiven : nullptr);
  const FloatFormat& format =
      master::require_code_format("format", {nullptr, 0, type});
  require_rule(call.scaling, "format", format);
  const ScalarType values = rows != nullptr ? rows->dtype : columns->dtype;
  struct Output {
    const char *name, *factors_name;
    const Matrix* matrix;
    const float* factors;
    BlockCodes codes;
  } outputs[] = {{"rows", "options.row_factors", rows, options.row_factors, {}},
                 {"columns",
                  "options.column_factors",
                  columns,
                  options.column_factors,
                  {}}};
  for (Output& one : outputs) {
    if (one.matrix == nullptr) continue;
    master::require_values(one.name, one.matrix->dtype);
    master::require_matrix(one.name, *one.matrix);
    Checker(one.name)
        .dtype(one.matrix->dtype, values, "rows")
        .same("rows", one.matrix->rows, x.rows, "x")
        .same("columns", one.matrix->columns, x.columns, "x");
    if (is_given && one.factors == nullptr && x.rows * x.columns != 0) {
      master::refuse(one.factors_name, "null",
                     "the factors, as the others are given");
    }
    one.codes.codes = {one.matrix->data, x.rows * x.columns, values};
    one.codes.scales.data = const_cast<float*>(one.factors);
  }
  master::require_cast(format, options.rounding, options.policy);
  if (is_given && (options.square || options.hadamard)) {
    master::refuse(options.square ? "options.square" : "options.hadamard",
                   "true", "false if factors are given");
  }
  require_hadamard(x, options, columns != nullptr);
  Machine::Impl& impl = master::impl_of(machine);
  if (x.rows == 0 || x.columns == 0) return {};
  Stripes stripes{call, impl, rows == nullptr ? nullptr : &outputs[0].codes,
                  columns == nullptr ? nullptr : &outputs[1].codes,
                  block_args(call, format)};
  master::set_values(stripes.args.code, values);
  stripes.run();
  ValueReport report = report_of(stripes.seen);
  report.exact = report.exact || values == kFloat32;
  return report;
}

ValueReport block_amax(const Matrix& x, const Tensor* rows,
                       const Tensor* columns, const BlockOptions& options,
                       Machine* machine) {
  if (rows == nullptr && columns == nullptr) {
    master::refuse("rows", "null", "blocks along rows or along columns");
  }
  const Call call = require_call(x, options, columns == nullptr, &kAmax);
  BlockCodes codes[2] = {};
  const auto require = [&](const char* name, const Tensor* out,
                           std::size_t lines, std::size_t length, int i) {
    if (out == nullptr) return;
    const Checker check(name);
    check.dtype(out->dtype, 1u << kFloat32);
    const std::size_t count = lines * divided(length, call.block);
    if (out->count != count) {
      master::refuse(std::string(name) + ".count", std::to_string(out->count),
                     std::to_string(count) + ", one for each block of " +
                         std::to_string(call.block));
    }
    check.data(out->data, sizeof(float), count);
    codes[i].scales = *out;
  };
  require("rows", rows, x.rows, x.columns, 0);
  require("columns", columns, x.columns, x.rows, 1);
  if (options.square) {
    master::refuse("options.square", "true", "false of largest magnitudes");
  }
  require_hadamard(x, options, columns != nullptr);
  Machine::Impl& impl = master::impl_of(machine);
  if (x.rows == 0 || x.columns == 0) return {};
  Stripes stripes{call, impl, rows == nullptr ? nullptr : &codes[0],
                  columns == nullptr ? nullptr : &codes[1],
                  block_args(call, kFloatFormats[kFloat8E4M3FN])};
  stripes.run();
  return report_of(stripes.seen);
}

void dequantize_blocks(const BlockCodes& codes, const Matrix& x,
                       const BlockOptions& options, Machine* machine) {
  const Call call = require_call(x, options, !options.square);
  const FloatFormat& format =
      require_output(call, "codes", codes, x.rows, x.columns);
  Machine::Impl& impl = master::impl_of(machine);
  if (x.rows == 0 || x.columns == 0) return;
  const bool te = call.scaling.rule == BlockRule::te_nvfp4;
  slave::DequantizeBlockArgs args = {};
  args.code = master::decoding_args(format);
  args.amax =
      te ? options.tensor_amax : tensor_scale(call, options.tensor_amax);
  args.te = te ? 1 : 0;
  args.scales = call.scaling.scales == kFloat32 ? slave::ScaleKind::float32
                : call.scaling.scales == kFloat8E4M3FN ? slave::ScaleKind::e4m3
                                                       : slave::ScaleKind::e8m0;
  args.block = call.block;
  // A unit is a block, or a row that has no whole blocks.
  const bool whole = x.columns % call.block == 0;
  args.columns = whole ? call.block : x.columns;
  const std::array<float, 256>& values = master::code_values(format);
  const std::size_t code_bytes = args.columns / args.code.elements;
  const std::size_t scale_bytes =
      divided(args.columns, call.block) * call.scale_bytes();
  using At = slave::DequantizeBlockOperand;
  Operation operation(
      master::row_kernel<KernelFamily::dequantize_blocks>(x.dtype), &args);
  operation.set_unit_bytes(At::x, args.columns * kScalarTypeBytes[x.dtype]);
  operation.set_unit_bytes(At::codes, code_bytes);
  operation.set_unit_bytes(At::scales, scale_bytes);
  operation.set_unit_bytes(At::values, sizeof values);
  master::require_ldm("x", x, runtime::ldm_need(impl, operation, 0));
  // One segment, or, if rows share scales, one a row.
  const std::size_t segments = call.repeats() ? 1 : x.rows;
  const std::size_t units =
      x.rows / segments * (whole ? x.columns / call.block : 1);
  Workspace& workspace = Workspace::of_this_thread();
  RowTable table(operation, segments, false, master::row_grains(args.columns),
                 workspace.segments());
  for (std::size_t i = 0; i < segments; ++i) {
    const std::size_t row = i / call.block;
    table.add(units,
              {master::row_of(x, i),
               data_of(codes.codes, i * x.columns / args.code.elements),
               data_of(codes.scales, row * divided(x.columns, call.block) *
                                         call.scale_bytes()),
               values.data()});
  }
  workspace.run(impl, table.list());
}

void hadamard_transform(const Matrix& x, const Matrix& out, Machine* machine) {
  master::require_matrix("x", x);
  master::require_like("out", out, "x", x);
  if (x.columns % slave::kHadamard != 0) {
    master::refuse("x.columns", std::to_string(x.columns), "a multiple of 16");
  }
  Machine::Impl& impl = master::impl_of(machine);
  if (x.rows == 0 || x.columns == 0) return;
  const slave::HadamardArgs args;
  const Operation operation(master::row_kernel<KernelFamily::hadamard>(x.dtype),
                            &args, slave::kHadamard);
  Workspace& workspace = Workspace::of_this_thread();
  RowTable table(operation, 1, false, master::row_grains(slave::kHadamard),
                 workspace.segments());
  table.add(x.rows * (x.columns / slave::kHadamard), {x.data, out.data});
  workspace.run(impl, table.list());
}

}  // namespace swamp
