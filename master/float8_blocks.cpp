// Blocks of elements with a scale each: validation, decoding and the Hadamard
// transform.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <string>

#include "master/float8.h"
#include "master/float8_stripes.h"
#include "master/row_launch.h"
#include "master/text.h"

namespace swamp {

using master::Checker;
using master::divided;
using master::RowTable;
using master::Workspace;
using slave::BlockArgs;
using slave::BlockRule;

namespace {

using Call = master::BlockCall;
using Scaling = master::ScalingRule;

// Indexed by BlockScaling.
constexpr Scaling kScalings[] = {
    {"mx_floor", BlockRule::floor, false, false},
    {"mx_ceil", BlockRule::ceil, false, false},
    {"mx_even", BlockRule::even, false, false},
    {"mx_rceil", BlockRule::rceil, false, false},
    {"te_mxfp8", BlockRule::te_mx, true, false},
    {"microxcaling", BlockRule::microxcaling, false, false},
    {"te_nvfp4", BlockRule::te_nvfp4, true, false},
    {"torchao_nvfp4", BlockRule::torchao_nvfp4, false, false},
    {"te_block", BlockRule::te, true, false},
    {"te_block_power_of_2", BlockRule::te, true, true},
    {"torchao_float8", BlockRule::torchao, false, false},
    {"torchao_float8_power_of_2", BlockRule::torchao, false, true}};
// Of factors that are given, and of largest magnitudes: float32.
constexpr Scaling kGiven = {"factors", BlockRule::given, false, false};
constexpr Scaling kAmax = {"amax", BlockRule::amax, true, false};

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
  const BlockScales scales = special != nullptr ? BlockScales{kFloat32, 128}
                                                : block_scales(options.scaling);
  const bool is_given = special == &kGiven;
  const std::size_t block = is_given             ? x.columns
                            : options.block != 0 ? options.block
                            : scales.block != 0  ? scales.block
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
  if (scales.dtype == kFloat8E4M3FN) {
    Checker("options").tensor_amax(options.tensor_amax);
  }
  return {x, options, scaling, scales.dtype, std::max<std::size_t>(1, block)};
}

// require_rule() throws unless the scaling has a rule for the format.
void require_rule(const Call& call, const std::string& name,
                  const FloatFormat& format) {
  const bool has_rule =
      call.scales == kFloat8E4M3FN
          ? format.type == kFloat4E2M1FNX2
          : call.scales == kFloat32 || format.specials != Specials::tapered;
  if (has_rule) return;
  master::refuse(name, format.name,
                 std::string("a format with a rule of ") + call.scaling.name,
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
  require_rule(call, codes + ".dtype", format);
  master::require_whole_codes(length, columns, format);
  master::require_codes(codes, out.codes, format, rows * columns, "x");
  scales.dtype(out.scales.dtype, 1u << call.scales);
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
  master::compute_stripes(call, impl, rows, columns, block_args(call, *format));
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
  require_rule(call, "format", format);
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
  BlockArgs args = block_args(call, format);
  master::set_values(args.code, values);
  ValueReport report = report_of(master::compute_stripes(
      call, impl, rows == nullptr ? nullptr : &outputs[0].codes,
      columns == nullptr ? nullptr : &outputs[1].codes, args));
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
  return report_of(
      master::compute_stripes(call, impl, rows == nullptr ? nullptr : &codes[0],
                              columns == nullptr ? nullptr : &codes[1],
                              block_args(call, kFloatFormats[kFloat8E4M3FN])));
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
  args.scales = call.scales == kFloat32        ? slave::ScaleKind::float32
                : call.scales == kFloat8E4M3FN ? slave::ScaleKind::e4m3
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
