// Blocks of elements with a scale each: validation, and the launches. Codes and
// scales along rows lie as x does, so that a unit is a block or a row. Codes
// along columns are those of the transpose: a unit is a stripe of rows, of
// which a kernel writes a part of every transposed row. It does so in main
// memory in transfer mode view; in the other modes, whose units must be dense,
// the master copies parts of the columns, which a slave's LDM bounds.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "master/float8.h"
#include "master/row_launch.h"
#include "master/text.h"

namespace swamp {

using master::divided;
using master::RowTable;
using master::Workspace;
using slave::BlockArgs;
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

Call require_call(const Matrix& x, const BlockOptions& options, bool by_row) {
  master::require_matrix("x", x);
  if (options.scaling > BlockScaling::torchao_float8_power_of_2) {
    master::refuse("options.scaling",
                   std::to_string(static_cast<unsigned>(options.scaling)),
                   "0 (mx_floor) to 11 (torchao_float8_power_of_2)");
  }
  const Scaling& scaling = kScalings[static_cast<std::size_t>(options.scaling)];
  const std::size_t block = options.block != 0   ? options.block
                            : scaling.block != 0 ? scaling.block
                                                 : x.columns;
  if (!is_block(block) && (!by_row || block != x.columns)) {
    master::refuse(
        "options.block", std::to_string(options.block),
        std::string("16, 32, 64 or 128") +
            (by_row ? ", or the columns, " + std::to_string(x.columns)
                    : " (along columns, and if square)"));
  }
  // A stripe of up to 128 rows is a unit of less than 4 GiB.
  constexpr std::size_t kMostColumns = std::size_t{1} << 22;
  if (!by_row && x.columns > kMostColumns) {
    master::refuse("x.columns", std::to_string(x.columns),
                   "at most " + std::to_string(kMostColumns) +
                       " (along columns, and if square)");
  }
  if (scaling.scales == kFloat8E4M3FN && !(options.tensor_amax >= 0)) {
    master::refuse(
        "options.tensor_amax",
        master::number_text(static_cast<double>(options.tensor_amax)),
        "the largest magnitude of the tensor");
  }
  return {x, options, scaling, std::max<std::size_t>(1, block)};
}

// require_output() checks codes and scales of a matrix of this shape. `length`
// is the name of its columns.
const FloatFormat& require_output(const Call& call, const char* output,
                                  const BlockCodes& out, std::size_t rows,
                                  std::size_t columns,
                                  const char* length = "x.columns") {
  const std::string name = output;
  const std::string codes = name + ".codes", scales = name + ".scales";
  const FloatFormat& format =
      master::require_code_format(codes + ".dtype", out.codes);
  const Scaling& scaling = call.scaling;
  const bool has_rule =
      scaling.scales == kFloat8E4M3FN
          ? format.type == kFloat4E2M1FNX2
          : scaling.scales == kFloat32 || format.specials != Specials::tapered;
  if (!has_rule) {
    master::refuse(codes + ".dtype", format.name,
                   std::string("a format with a rule of ") + scaling.name,
                   SWAMP_UNSUPPORTED);
  }
  if (columns % master::code_elements(format) != 0) {
    master::refuse(length, std::to_string(columns), master::kEvenCount);
  }
  master::require_codes(codes, out.codes, format, rows * columns, "x");
  const std::uint32_t type = master::scalar_type_index(out.scales);
  if (type != scaling.scales) {
    master::refuse_dtype(scales + ".dtype", type, 1u << scaling.scales);
  }
  const std::size_t count =
      call.scale_rows(rows) * divided(columns, call.block);
  if (out.scales.count != count) {
    master::refuse(scales + ".count", std::to_string(out.scales.count),
                   std::to_string(count) + ", one for each block of " +
                       std::to_string(call.block));
  }
  master::require_array((scales + ".data").c_str(), out.scales.data,
                        call.scale_bytes(), count);
  return format;
}

float largest_of(ScalarType type) {
  return type == kFloat16    ? 65504.0f
         : type == kBFloat16 ? 0x1.fep127f
                             : slave::kFloatMax;
}

float tensor_scale(const Call& call) {
  const float amax = call.options.tensor_amax;
  return call.scaling.rule == BlockRule::te_nvfp4
             ? slave::te_nvfp4_tensor_scale(amax)
             : slave::torchao_nvfp4_tensor_scale(amax);
}

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
  args.tensor_scale = tensor_scale(call);
  args.if_infinite = largest_of(call.x.dtype);
  args.power_of_2 = call.scaling.power_of_2 ? 1 : 0;
  args.skips_nan = call.scaling.skips_nan ? 1 : 0;
  args.square = options.square ? 1 : 0;
  args.repeats = call.repeats() ? 1 : 0;
  args.hadamard = options.hadamard ? 1 : 0;
  return args;
}

const std::byte* data_of(const Tensor& tensor, std::size_t offset) {
  return static_cast<const std::byte*>(tensor.data) + offset;
}

// Stripes launches stripes of rows of a matrix.
struct Stripes {
  const Call& call;
  Machine::Impl& machine;
  const BlockCodes* rows;
  const BlockCodes* columns;
  BlockArgs args;

  std::size_t elements() const { return args.code.elements; }
  std::size_t x_bytes() const { return kScalarTypeBytes[call.x.dtype]; }

  // Part is a matrix or a copy of some of its columns. Steps are octets between
  // rows.
  struct Part {
    std::byte* data = nullptr;
    std::size_t step = 0, unit = 0;
  };
  struct Parts {
    Part x, codes, scales, column_codes, column_scales, random;
  };

  // operation() computes stripes of `args`, with the steps of the parts.
  Operation operation(const Parts& parts) {
    args.x_step = parts.x.step / x_bytes();
    args.along_rows = {parts.codes.step, parts.scales.step, parts.codes.unit,
                       parts.scales.unit};
    args.along_columns = {parts.column_codes.step, parts.column_scales.step,
                          parts.column_codes.unit, parts.column_scales.unit};
    Operation operation(
        master::row_kernel<KernelFamily::quantize_blocks, 6>(call.x.dtype),
        &args);
    int s = 0;
    for (const Part* part :
         {&parts.x, &parts.codes, &parts.scales, &parts.column_codes,
          &parts.column_scales, &parts.random}) {
      operation.set_unit_bytes(s++, part->unit);
    }
    operation.traffic_bytes = static_cast<std::uint32_t>(std::min<std::size_t>(
        parts.x.unit * 2, std::numeric_limits<std::uint32_t>::max()));
    if (args.stripe_rows > 1) {
      operation.scratch_bytes =
          static_cast<std::uint32_t>(args.stripe_rows * slave::kBlockWidth);
    }
    return operation;
  }

  void launch(std::size_t units, const Operation& operation,
              const Parts& parts) {
    Workspace& workspace = Workspace::of_this_thread();
    RowTable table(operation, 1, false,
                   master::row_grains(args.stripe_rows * args.columns),
                   workspace.segments());
    table.add(units, {parts.x.data, parts.codes.data, parts.scales.data,
                      parts.column_codes.data, parts.column_scales.data,
                      parts.random.data});
    workspace.run(machine, table.list());
  }

  // in_place() is the parts in main memory, of a matrix of so many columns.
  Parts in_place() const {
    const auto part = [&](const void* data, std::size_t step,
                          std::size_t unit) {
      return data == nullptr
                 ? Part{}
                 : Part{static_cast<std::byte*>(const_cast<void*>(data)), step,
                        unit};
    };
    const std::size_t stripe = args.stripe_rows;
    const std::size_t scale_stripe =
        call.repeats() ? stripe : stripe / call.block;
    const std::size_t scales =
        divided(args.columns, call.block) * args.scale_bytes;
    const std::size_t column_scales =
        divided(args.rows, call.block) * args.scale_bytes;
    const std::size_t codes = args.columns / elements();
    Parts parts;
    parts.x = part(call.x.data, args.columns * x_bytes(),
                   stripe * args.columns * x_bytes());
    if (rows != nullptr) {
      parts.codes = part(rows->codes.data, codes, stripe * codes);
      parts.scales = part(rows->scales.data, scales, scale_stripe * scales);
    }
    if (columns != nullptr) {
      parts.column_codes = part(columns->codes.data, args.rows / elements(),
                                stripe / elements());
      parts.column_scales = part(columns->scales.data, column_scales,
                                 stripe / call.block * args.scale_bytes);
    }
    if (args.code.rounding == slave::kStochastic) {
      parts.random =
          part(call.options.random, args.columns, stripe * args.columns);
    }
    return parts;
  }

  // run_rows() computes rows without columns, whose blocks are not square.
  void run_rows() {
    args.stripe_rows = 1;
    args.rows = call.x.rows;
    args.columns = call.x.columns;
    if (args.columns % call.block == 0) {
      args.rows *= args.columns / call.block;
      args.columns = call.block;
    }
    args.index_step = args.columns;
    const Parts parts = in_place();
    const Operation whole = operation(parts);
    master::require_ldm("x", call.x, runtime::ldm_need(machine, whole, 0));
    launch(args.rows, whole, parts);
  }

  void run_stripes() {
    // Of packed codes, too, so that columns are whole cache lines.
    args.stripe_rows = call.block > 64 || args.code.elements == 2 ? 128 : 64;
    args.rows = call.x.rows;
    args.columns = call.x.columns;
    args.index_step = args.columns;
    if (machine.transfer == runtime::Transfer::view) {
      const Parts parts = in_place();
      launch(divided(args.rows, args.stripe_rows), operation(parts), parts);
      return;
    }
    if (call.options.square || rows == nullptr) return run_dense(dense_width());
    Stripes along_columns = *this;
    along_columns.rows = nullptr;
    const std::size_t width = along_columns.dense_width();
    columns = nullptr;
    run_rows();
    along_columns.run_dense(width);
  }

  // dense_width() returns how many columns of a stripe fit into LDM.
  std::size_t dense_width() {
    const std::size_t step =
        rows != nullptr || args.square != 0 ? call.block : std::size_t{16};
    const std::size_t units = divided(args.rows, args.stripe_rows);
    std::size_t width = std::max(step, slave::kBlockWidth);
    for (;; width /= 2) {
      args.columns = width;
      const Operation dense = operation(dense_parts(nullptr, units));
      const runtime::LdmNeed need = runtime::ldm_need(machine, dense, 0);
      if (need.fits()) return width;
      if (width <= step) {
        master::refuse("x", "blocks along columns",
                       "more LDM than " + std::to_string(need.ldm_bytes) +
                           " bytes (SWAMP_LDM_BYTES)",
                       SWAMP_UNSUPPORTED);
      }
    }
  }

  // run_dense() computes the stripes of `width` columns at a time.
  void run_dense(std::size_t width) {
    const std::size_t all = call.x.columns;
    const std::size_t units = divided(args.rows, args.stripe_rows);
    args.columns = width;
    Workspace& workspace = Workspace::of_this_thread();
    const Parts measured = dense_parts(nullptr, units);
    std::byte* const memory = workspace.row_values<std::byte>(
        units * (measured.x.unit + measured.codes.unit + measured.scales.unit +
                 measured.column_codes.unit + measured.column_scales.unit +
                 measured.random.unit) +
        6 * 128);
    const Parts main = [&] {
      Stripes whole = *this;
      whole.args.columns = all;
      return whole.in_place();
    }();
    for (std::size_t c = 0; c < all; c += width) {
      args.columns = std::min(width, all - c);
      args.first_index = c;
      const Parts parts = dense_parts(memory, units);
      for (std::size_t r = 0; r < args.rows; ++r) {
        std::memcpy(parts.x.data + r * parts.x.step,
                    main.x.data + r * main.x.step + c * x_bytes(),
                    args.columns * x_bytes());
        if (parts.random.unit == 0) continue;
        std::memcpy(parts.random.data + r * parts.random.step,
                    main.random.data + r * main.random.step + c, args.columns);
      }
      launch(units, operation(parts), parts);
      copy_back(parts, main, c);
    }
  }

  // dense_parts() is parts of so many columns, one unit after another, from
  // `memory` on.
  Parts dense_parts(std::byte* memory, std::size_t units) const {
    Parts parts = in_place();
    const std::size_t stripe = args.stripe_rows;
    const std::size_t blocks = divided(args.columns, call.block);
    if (columns != nullptr) {
      const std::size_t scales = stripe / call.block * args.scale_bytes;
      parts.column_codes.step = stripe / elements();
      parts.column_codes.unit = args.columns * stripe / elements();
      parts.column_scales.step = scales;
      parts.column_scales.unit =
          (call.repeats() ? args.columns : blocks) * scales;
    }
    for (Part* part :
         {&parts.x, &parts.codes, &parts.scales, &parts.column_codes,
          &parts.column_scales, &parts.random}) {
      part->data = part->unit == 0 ? nullptr : memory;
      if (memory != nullptr) memory += divided(units * part->unit, 128) * 128;
    }
    return parts;
  }

  // copy_back() copies the results of columns from c on to main memory.
  void copy_back(const Parts& parts, const Parts& main, std::size_t c) const {
    const auto copy_rows = [](const Part& from, const Part& to,
                              std::size_t count, std::size_t bytes,
                              std::size_t offset) {
      for (std::size_t r = 0; r < count; ++r) {
        std::memcpy(to.data + r * to.step + offset, from.data + r * from.step,
                    bytes);
      }
    };
    const std::size_t block = call.block;
    if (rows != nullptr) {
      copy_rows(parts.codes, main.codes, args.rows, args.columns / elements(),
                c / elements());
      copy_rows(parts.scales, main.scales, call.scale_rows(args.rows),
                divided(args.columns, block) * args.scale_bytes,
                c / block * args.scale_bytes);
    }
    if (columns == nullptr) return;
    const std::size_t stripe = args.stripe_rows;
    for (std::size_t u = 0, r = 0; r < args.rows; ++u, r += stripe) {
      const std::size_t height = std::min<std::size_t>(stripe, args.rows - r);
      const auto copy = [&](const Part& from, const Part& to, std::size_t first,
                            std::size_t count, std::size_t bytes) {
        Part unit = from, target = to;
        unit.data += u * from.unit;
        target.data += u * to.unit + first * to.step;
        copy_rows(unit, target, count, bytes, 0);
      };
      copy(parts.column_codes, main.column_codes, c, args.columns,
           height / elements());
      const bool repeats = call.repeats();
      copy(parts.column_scales, main.column_scales, repeats ? c : c / block,
           repeats ? args.columns : divided(args.columns, block),
           divided(height, block) * args.scale_bytes);
    }
  }
};

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
  if (options.hadamard) {
    if (columns == nullptr || options.square) {
      master::refuse("options.hadamard", "true",
                     "false without columns, and if square");
    }
    if (x.rows % slave::kHadamard != 0) {
      master::refuse("x.rows", std::to_string(x.rows),
                     "a multiple of 16 for the Hadamard transform");
    }
  }
  Machine::Impl& impl = master::impl_of(machine);
  if (x.rows == 0 || x.columns == 0) return;
  Stripes stripes{call, impl, rows, columns, block_args(call, *format)};
  if (columns == nullptr && !options.square) {
    stripes.run_rows();
  } else {
    stripes.run_stripes();
  }
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
  args.amax = te ? options.tensor_amax : tensor_scale(call);
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
  Operation operation(
      master::row_kernel<KernelFamily::dequantize_blocks, 4>(x.dtype), &args);
  operation.set_unit_bytes(0, args.columns * kScalarTypeBytes[x.dtype]);
  operation.set_unit_bytes(1, code_bytes);
  operation.set_unit_bytes(2, scale_bytes);
  operation.set_unit_bytes(3, sizeof values);
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
  const Operation operation(
      master::row_kernel<KernelFamily::hadamard, 2>(x.dtype), &args,
      slave::kHadamard);
  Workspace& workspace = Workspace::of_this_thread();
  RowTable table(operation, 1, false, master::row_grains(slave::kHadamard),
                 workspace.segments());
  table.add(x.rows * (x.columns / slave::kHadamard), {x.data, out.data});
  workspace.run(impl, table.list());
}

}  // namespace swamp
