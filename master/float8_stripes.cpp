// The launches of blocks of elements with a scale each. Codes and scales along
// rows lie as x does, so that a unit is a block or a row. Codes along columns
// are transposed: a unit is a stripe of rows, which a kernel makes a part of
// every transposed row. Values lie as x does, along columns
// too. If LDM is too small for all columns of a stripe, each launch computes
// some of them.
#include "master/float8_stripes.h"

#include <algorithm>
#include <array>
#include <limits>
#include <string>
#include <utility>

#include "master/float8.h"
#include "master/row_launch.h"
#include "master/text.h"

namespace swamp::master {
namespace {

using slave::BlockArgs;
using slave::BlockOperand;
using slave::BlockRule;

struct Stripes {
  const BlockCall& call;
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

  // Place is where the part of an operand begins, null if there is none, and
  // its lines.
  struct Place {
    const std::byte* data;
    std::size_t lines, line_bytes, line_step, unit_step;
  };
  using Places = std::array<Place, BlockOperand::count>;

  // places() returns the place of each operand, for stripes of part.rows rows
  // from part.row on.
  Places places(const Part& part) const {
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
      const std::size_t offset = row * bytes_of(all) + bytes_of(column);
      const auto* const begin = static_cast<const std::byte*>(data);
      return Place{begin == nullptr ? nullptr : begin + offset, lines,
                   bytes_of(width), bytes_of(all), 0};
    };
    const auto x = [&](std::size_t count) { return count * x_bytes; };
    const auto floats = [](std::size_t count) { return count * sizeof(float); };
    const auto bytes = [](std::size_t count) { return count; };
    const auto [row, height, column, width] = part;
    using At = BlockOperand;
    Places all{};
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
    for (Place* place : {&all[At::x], &all[At::codes], &all[At::random]}) {
      place->unit_step = stripe * place->line_step;
    }
    all[At::scales].unit_step = scale_row(stripe) * all[At::scales].line_step;
    if (columns != nullptr && args.code.form != slave::CodeForm::code) {
      all[At::column_codes] = along(columns->codes.data, codes, row, height,
                                    column, width, column_count);
      all[At::column_codes].unit_step =
          stripe * all[At::column_codes].line_step;
      // The factors of all columns of the part.
      all[At::column_scales] =
          along(columns->scales.data, floats, 0, 1, column, width, 0);
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

  // set_operation() makes the operation of such stripes, and returns the places
  // of the first one.
  Places set_operation(const Part& part, BlockArgs& part_args,
                       Operation& operation) const {
    part_args = args;
    part_args.rows = part.rows == args.stripe_rows ? row_count : part.rows;
    part_args.columns = part.columns;
    part_args.first_index = part.row * args.index_step + part.column;
    operation = Operation(
        row_kernel<KernelFamily::quantize_blocks>(call.x.dtype), &part_args);
    if (is_given()) {
      operation.operands[BlockOperand::scales].access = Access::in;
      operation.operands[BlockOperand::column_scales].access = Access::constant;
    }
    const Places all = places(part);
    int s = 0;
    for (const Place& place : all) {
      if (place.data == nullptr) {
        operation.remove_operand(s++);
      } else {
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
    return all;
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
    Places at[2];
    std::size_t units[2], count = 0;
    for (const auto& [part, part_units] : parts) {
      if (part_units == 0) continue;
      at[count] = set_operation(part, part_args[count], operations[count]);
      units[count++] = part_units;
    }
    Workspace& workspace = Workspace::of_this_thread();
    RowTable table(operations, count, count, false, row_grains(stripe * width),
                   workspace.segments());
    for (std::size_t i = 0; i < count; ++i) {
      table.add(units[i],
                {at[i][0].data, at[i][1].data, at[i][2].data, at[i][3].data,
                 at[i][4].data, at[i][5].data},
                i);
    }
    const SegmentList list = table.list();
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
    require_ldm("x", call.x, ldm_need(column_count));
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
      refuse("x", "blocks along columns",
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

}  // namespace

slave::ValuePartial compute_stripes(const BlockCall& call,
                                    Machine::Impl& machine,
                                    const BlockCodes* rows,
                                    const BlockCodes* columns,
                                    const BlockArgs& args) {
  Stripes stripes{call, machine, rows, columns, args};
  stripes.run();
  return stripes.seen;
}

}  // namespace swamp::master
