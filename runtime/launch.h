// What one launch does, as plain data, so that slaves that cannot run code of
// the host can get it by DMA.
#ifndef SWAMP_RUNTIME_LAUNCH_H_
#define SWAMP_RUNTIME_LAUNCH_H_

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "slave/kernel.h"

namespace swamp {

// Operation is a kernel with its arguments. It is made once for each
// combination of dtypes, and shared by the segments.
struct Operation {
  KernelId kernel;
  std::uint8_t operand_count;
  std::uint32_t columns;        // of rows that may come in pieces; else 0
  std::uint32_t sum_step;       // RowState::sum_step
  std::uint32_t state_bytes;    // of a row: Tile::state
  std::uint32_t scratch_bytes;  // of a slave: Tile::scratch
  std::uint32_t tile_step;      // the units of a tile in LDM are a multiple of
                                // it, except in a segment's last; 0: any
  std::uint32_t args_bytes;     // a multiple of 4
  std::size_t traffic_bytes;    // read and written for one unit
  const void* args;             // alive until the join
  Operand operands[kMaxOperands];

  // bytes_of() returns the bytes of an operation up to its last operand, which
  // are all that is transferred.
  static constexpr std::size_t bytes_of(int operand_count) noexcept {
    return offsetof(Operation, operands) +
           static_cast<std::size_t>(operand_count) * sizeof(Operand);
  }

  Operation() noexcept = default;
  // `kernel_args` are of the type that the kernel was listed with, and are not
  // copied. `row_columns`: elements of a row, for kernels whose unit is a row.
  constexpr Operation(const KernelInfo& info, const void* kernel_args,
                      std::size_t row_columns = 1) noexcept
      : kernel(info.id),
        operand_count(info.operand_count),
        columns(info.state.is_streamed ? static_cast<std::uint32_t>(row_columns)
                                       : 0),
        sum_step(info.state.sum_step),
        state_bytes(info.state.bytes(row_columns)),
        scratch_bytes(0),
        tile_step(0),
        args_bytes(info.args_bytes),
        traffic_bytes(info.traffic_bytes(row_columns)),
        args(kernel_args),
        operands{} {
    for (int s = 0; s < operand_count; ++s) {
      operands[s] = info.operand(s, row_columns);
    }
  }

  // set_unit_bytes() changes the bytes of one unit of operand s, whose units
  // are then dense.
  void set_unit_bytes(int s, std::size_t bytes) noexcept {
    Operand& operand = operands[s];
    const std::uint32_t transfers = operand.access == Access::constant ? 0
                                    : operand.access == Access::inout  ? 2
                                                                       : 1;
    traffic_bytes -= std::size_t{transfers} * operand.unit_bytes;
    operand.set_dense(static_cast<std::uint32_t>(bytes));
    traffic_bytes += std::size_t{transfers} * operand.unit_bytes;
  }
  // set_lines() makes a unit of operand s `lines` lines of a matrix. A unit of
  // 4 GiB or more, which fits into no LDM, counts as less.
  void set_lines(int s, std::size_t lines, std::size_t line_bytes,
                 std::size_t line_step, std::size_t unit_step) noexcept {
    constexpr std::size_t kMost = std::numeric_limits<std::uint32_t>::max();
    if (lines != 0) line_bytes = std::min(line_bytes, kMost / lines);
    set_unit_bytes(s, lines * line_bytes);
    if (operands[s].unit_bytes == 0) return;  // absent: its address stays null
    operands[s].line_bytes = static_cast<std::uint32_t>(line_bytes);
    operands[s].line_step = line_step;
    operands[s].unit_step = unit_step;
  }
  // remove_operand() makes operand s absent.
  void remove_operand(int s) noexcept { set_unit_bytes(s, 0); }

  // has_pass() returns whether rows in pieces take a pass: Pass::map if it
  // writes them, reads what the sum does not, or adds to a partial result.
  bool has_pass(Pass pass, bool has_partial) const noexcept {
    if (pass == Pass::sum) return sum_step != 0;
    for (int s = 0; s < operand_count; ++s) {
      const Operand& operand = operands[s];
      if (operand.unit_bytes != 0 && operand.column_bytes != 0 &&
          (operand.is_written() || operand.map_only)) {
        return true;
      }
    }
    return has_partial;
  }
  // set_piece() makes this the operation of one pass of `rows`: its units are
  // the columns of a row, and operands that the pass does not use are absent.
  void set_piece(const Operation& rows, Pass pass, bool is_last_pass) noexcept {
    std::memcpy(this, &rows, bytes_of(rows.operand_count));
    tile_step = std::min(pass == Pass::sum ? sum_step : kMapStep, columns);
    for (int s = 0; s < operand_count; ++s) {
      const Operand& row = rows.operands[s];
      Operand& piece = operands[s];
      const bool is_row = row.column_bytes != 0;
      const bool is_used =
          pass == Pass::map ||
          (!row.map_only && (!row.is_written() || (!is_row && is_last_pass)));
      if (row.unit_bytes == 0 || !is_used) {
        piece.unit_bytes = 0;
      } else if (is_row) {
        piece = Operand::dense(row.column_bytes, row.access == Access::constant
                                                     ? Access::in
                                                     : row.access);
      } else {
        piece.unit_step = 0;
      }
    }
  }
};

// Segment is tensor i of every list of the operation: `count` units of each
// operand. The addresses of the operands follow it in memory, one for each
// operand of the operation: 24 bytes in all with one operand. If partial
// results are gathered by grain, the number of the segment's first grain comes
// after the addresses.
struct Segment {
  const Operation* operation;  // shared; alive until the join
  std::size_t count;           // units of each operand

  // operand_count addresses.
  std::byte** data() noexcept {
    return reinterpret_cast<std::byte**>(this + 1);
  }
  std::byte* const* data() const noexcept {
    return reinterpret_cast<std::byte* const*>(this + 1);
  }
  // The number of the segment's first grain, if the table has room for it.
  std::uint64_t& first_grain() noexcept {
    return *reinterpret_cast<std::uint64_t*>(data() + operation->operand_count);
  }
  // The same for a slave, whose copy of the operation is elsewhere.
  std::uint64_t first_grain(int operand_count) const noexcept {
    return *reinterpret_cast<const std::uint64_t*>(data() + operand_count);
  }
};

// segment_bytes() returns the distance of segments with operand_count operands.
constexpr std::size_t segment_bytes(int operand_count) noexcept {
  return sizeof(Segment) +
         static_cast<std::size_t>(operand_count) * sizeof(std::byte*);
}

}  // namespace swamp

namespace swamp::runtime {

// SegmentTable is a list of segments, `stride` bytes apart, and the operations
// that they point to, all of which have the same operand_count. It owns
// nothing.
struct SegmentTable {
  const std::byte* base = nullptr;
  std::size_t stride = 0;
  std::size_t count = 0;
  const Operation* operations = nullptr;
  std::size_t operation_count = 0;
  std::uint32_t operations_used = ~0u;  // bit i: a segment has operation i;
                                        // those from 32 on always count

  const Segment& operator[](std::size_t i) const noexcept {
    return *reinterpret_cast<const Segment*>(base + i * stride);
  }
  // is_used() returns whether a segment may have operation i.
  bool is_used(std::size_t i) const noexcept {
    return i >= 32 || (operations_used >> i & 1u) != 0;
  }
};

// Lines is what one transfer moves: `count` lines of `bytes`, which lie `step`
// bytes apart in main memory and follow each other in LDM. On the machine all
// three are multiples of 4.
struct Lines {
  static constexpr std::size_t kMaxStep = 0x7fffffff;  // an int of the machine

  std::size_t bytes, count, step;

  // Implicit: most transfers are one line.
  Lines(std::size_t line_bytes = 0, std::size_t line_count = 1,
        std::size_t line_step = 0) noexcept
      : bytes(line_bytes), count(line_count), step(line_step) {}
  std::size_t all_bytes() const noexcept { return bytes * count; }
};

// LinesOfUnits is `times` groups of lines, which begin unit_step apart.
struct LinesOfUnits {
  Lines lines;
  std::size_t times;
};

// lines_of() returns the lines of `units` units of an operand that exists, in
// as few groups as it can: one for each unit at most.
inline LinesOfUnits lines_of(const Operand& operand,
                             std::size_t units) noexcept {
  Lines lines(operand.line_bytes, operand.lines(), operand.line_step);
  if (operand.is_interleaved()) {
    lines.bytes *= units;
    units = 1;
  }
  if (lines.count == 1) lines.step = operand.unit_step;
  if (units == 1 || operand.unit_step == lines.count * lines.step) {
    lines.count *= units;
    units = 1;
  }
  if (lines.step == lines.bytes) lines = Lines(lines.all_bytes());
  if (lines.count == 1) lines.step = 0;
  return {lines, units};
}

// SlaveRange is one slave's part of a table: from unit `begin_unit` of segment
// `begin_segment` up to, not including, unit `end_unit` of segment
// `end_segment`. An end_unit of 0 ends before that segment.
struct SlaveRange {
  std::size_t begin_segment = 0;
  std::size_t begin_unit = 0;
  std::size_t end_segment = 0;
  std::size_t end_unit = 0;
};

// Partials is memory for partial results, `slots` of `bytes` each (0: none).
// - grain_units == 0: one slot for each pair of a slave and a segment of which
//   it has units. A segment is shared by neighbouring slaves only, so
//   segments + slaves slots are enough.
// - Otherwise: one slot for each grain. The grains of a segment are runs of
//   grain_units units, numbered from its first_grain(). No grain is split
//   between slaves.
// A slave writes only the slots of units that it has.
struct Partials {
  std::byte* base = nullptr;  // a multiple of 8, as is `bytes`
  std::size_t bytes = 0;
  std::size_t slots = 0;
  std::size_t grain_units = 0;

  std::byte* slot(std::size_t segment, int slave) const noexcept {
    return base + (segment + static_cast<std::size_t>(slave)) * bytes;
  }
  // Place is a slot, and the end of its units in the segment.
  struct Place {
    std::byte* slot;
    std::size_t end;
  };
  // place() returns the slot of `unit` of segment i.
  Place place(const Segment& segment, int operand_count, std::size_t i,
              int slave, std::size_t unit) const noexcept {
    if (grain_units == 0) return {slot(i, slave), ~std::size_t{0}};
    const std::size_t grain = unit / grain_units;
    return {base + (segment.first_grain(operand_count) + grain) * bytes,
            (grain + 1) * grain_units};
  }
};

// SlaveResult is what one slave found in its part of a list. Only that slave
// writes it; the master reduces the results after the join, so there are no
// shared flags and no atomics.
struct alignas(128) SlaveResult {
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};  // no segment

  std::uint64_t flagged_elements = 0;
  std::uint64_t flagged_segments = 0;   // segments that hold a flagged element
  std::uint64_t first_segment = kNone;  // lowest flagged (segment, index)
  std::uint64_t first_index = 0;
  std::uint64_t last_segment = kNone;  // highest flagged segment

  // add() adds the result of a tile of `segment`. Tiles must be added in the
  // order of the list.
  void add(std::uint64_t segment, const Result& tile) noexcept {
    if (tile.flagged_elements == 0) return;
    if (first_segment == kNone) {
      first_segment = segment;
      first_index = tile.first_index;
    }
    if (last_segment != segment) {
      last_segment = segment;
      ++flagged_segments;
    }
    flagged_elements += tile.flagged_elements;
  }
};

// MemoryHints are what the runtime tells the kernels of a launch about memory,
// in every Tile.
struct MemoryHints {
  std::uint32_t prefetch_bytes = 0;
  bool non_temporal = false;
};

// LdmLimits is how much of a slave's LDM a launch may use, and for what.
struct LdmLimits {
  std::size_t ldm_bytes = 0;
  std::size_t tile_bytes = 0;  // of the widest operand, unless a unit is larger
  std::size_t partial_bytes = 0;  // of a partial result, or of a piece of it
  std::size_t scratch_bytes = 0;  // of states and Tile::scratch
  // 0: tiles are whole units. Otherwise rows come in pieces: a slave takes that
  // many rows through one pass after another.
  std::size_t group_rows = 0;
};

// Claim is the consecutive slaves of a launch that one thread runs first, in
// order. Threads that have run their own take those that are left.
struct alignas(128) Claim {
  std::atomic<int> next;
  int end;
};

class LdmArenas;
class MainWindow;
struct Launch;

// SlaveFunction runs one slave on OS thread `worker` of this launch.
using SlaveFunction = void (*)(const Launch& launch, int slave,
                               int worker) noexcept;

// Launch describes spawn, tile loop and join, for every backend, the checker,
// the cost model and the slaves of athread, which get a copy by DMA.
struct Launch {
  // Set by the master. ranges[i] and results[i] belong to slave i, which
  // clears its result first.
  SegmentTable table;
  std::uint64_t traffic_bytes = 0;  // read and written by all slaves together
  const SlaveRange* ranges = nullptr;
  int slaves = 0;           // 1..the machine's; more if threads claim them
  Claim* claims = nullptr;  // one for each of Backend::worker_count() threads;
                            // null: each thread runs a fixed share
  SlaveResult* results = nullptr;
  Partials partials = {};

  // Set by runtime::run().
  int slaves_per_group = 1;
  LdmLimits limits;                     // in mode view only scratch_bytes
  std::size_t ldm_used_bytes = 0;       // of limits.ldm_bytes, by this launch
  std::uint64_t float_environment = 0;  // of the caller
  MemoryHints hints;                    // of transfer mode view
  // Of slaves that are threads of the host; meaningless on a slave core.
  SlaveFunction run_slave = nullptr;  // by transfer mode
  void* context = nullptr;            // of run_parts()
  const KernelRow* kernels = nullptr;
  const LdmArenas* arenas = nullptr;
  const MainWindow* window = nullptr;  // of transfer mode check
};

}  // namespace swamp::runtime

#endif  // SWAMP_RUNTIME_LAUNCH_H_
