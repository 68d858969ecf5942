// The contract between kernels, the tile loop and the master: what a kernel is
// given, what it returns, and how it is described.
#ifndef SWAMP_SLAVE_KERNEL_H_
#define SWAMP_SLAVE_KERNEL_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <type_traits>

#include "swamp/float_formats.h"
#include "swamp/tensor.h"

namespace swamp {

// A kernel is named by id, because a host pointer means nothing on a slave
// core: each side looks it up in its own table. The list is slave/kernels.inc.
using KernelId = std::uint16_t;
enum class KernelFamily : std::uint8_t;  // enumerators: slave/kernel_list.h

// What a kernel does with an operand. A constant is read, and is the same for
// all units of a segment.
enum class Access : std::uint8_t { in, out, inout, constant };

// Operand is one array of an operation. A unit is what a kernel counts: one
// element, one row of a matrix, or several lines of one, which need not follow
// each other.
struct Operand {
  // Of one unit, without the gaps between its lines; of a constant, all of it.
  // 0: the operand is absent, and its address is null.
  std::uint32_t unit_bytes;
  std::uint32_t line_bytes;  // a divisor of unit_bytes
  std::size_t line_step;     // bytes from line to line
  std::size_t unit_step;     // bytes from unit to unit; 0: all units share it
  Access access;
  // Of a kernel with a RowState: the bytes of one column of a row, or 0 if the
  // operand has one value for each row; and whether only Pass::map reads it.
  std::uint8_t column_bytes = 0;
  bool map_only = false;

  // dense() returns an operand without gaps.
  static constexpr Operand dense(std::uint32_t unit_bytes,
                                 Access access) noexcept {
    Operand operand{0, 0, 0, 0, access};
    operand.set_dense(unit_bytes);
    return operand;
  }
  // set_dense() changes the bytes of a unit, without gaps.
  constexpr void set_dense(std::uint32_t bytes) noexcept {
    unit_bytes = line_bytes = bytes;
    line_step = bytes;
    unit_step = access == Access::constant ? 0 : bytes;
  }
  constexpr bool is_shared() const noexcept { return unit_step == 0; }
  constexpr bool is_written() const noexcept {
    return access == Access::out || access == Access::inout;
  }
  constexpr std::size_t lines() const noexcept {
    return unit_bytes == 0 ? 0 : unit_bytes / line_bytes;
  }
  // is_interleaved() returns whether a unit has several lines, and each of them
  // continues a line of the unit before: rows of a matrix stored by columns.
  constexpr bool is_interleaved() const noexcept {
    return unit_step == line_bytes && unit_bytes != line_bytes;
  }
  // unit_extent() returns the bytes from the first of a unit to its last.
  constexpr std::size_t unit_extent() const noexcept {
    return unit_bytes == 0 ? 0 : (lines() - 1) * line_step + line_bytes;
  }
};

inline constexpr int kMaxOperands = 7;

// TypedOperand is an operand as slave/kernels.inc writes it. in(kFloat16) is
// one float16 per unit; row(in(kFloat16)) is one per column.
struct TypedOperand {
  Access access;
  std::uint8_t type;   // a ScalarType, or kNoScalarType
  std::uint8_t bytes;  // of one value
  bool row;
  bool map_only = false;  // Operand::map_only
};

inline constexpr int kScalarTypeCount =
    sizeof kFloatFormats / sizeof kFloatFormats[0];
// Bytes of an element, indexed by ScalarType: smaller than kFloatFormats, for
// the validation of lists.
inline constexpr auto kScalarTypeBytes = [] {
  std::array<std::uint16_t, kScalarTypeCount> bytes{};
  for (const FloatFormat& format : kFloatFormats) {
    bytes[format.type] = static_cast<std::uint16_t>(format.bytes);
  }
  return bytes;
}();
// The type of an operand that is not of a ScalarType.
inline constexpr std::uint8_t kNoScalarType = 0xff;

// `type` is a ScalarType, or a placeholder of slave/kernel_list.h.
constexpr TypedOperand typed_operand(Access access, std::uint8_t type) {
  const bool is_known = type < kScalarTypeCount;
  return {access, type,
          static_cast<std::uint8_t>(is_known ? kScalarTypeBytes[type] : 0),
          false};
}
constexpr TypedOperand in(std::uint8_t type) {
  return typed_operand(Access::in, type);
}
constexpr TypedOperand out(std::uint8_t type) {
  return typed_operand(Access::out, type);
}
constexpr TypedOperand inout(std::uint8_t type) {
  return typed_operand(Access::inout, type);
}
// One row that all units of a segment share.
constexpr TypedOperand constant(std::uint8_t type) {
  TypedOperand operand = typed_operand(Access::constant, type);
  operand.row = true;
  return operand;
}
// An operand of `bytes` bytes, the same for all units of a segment.
constexpr TypedOperand constant_bytes(std::uint8_t bytes) {
  return {Access::constant, kNoScalarType, bytes, false};
}
// An operand of another type than a ScalarType, of `bytes` bytes.
constexpr TypedOperand in_bytes(std::uint8_t bytes) {
  return {Access::in, kNoScalarType, bytes, false};
}
constexpr TypedOperand out_bytes(std::uint8_t bytes) {
  return {Access::out, kNoScalarType, bytes, false};
}
constexpr TypedOperand inout_bytes(std::uint8_t bytes) {
  return {Access::inout, kNoScalarType, bytes, false};
}
constexpr TypedOperand row(TypedOperand operand) {
  operand.row = true;
  return operand;
}

// map_only() marks an input of a row operator that Pass::sum does not read.
constexpr TypedOperand map_only(TypedOperand operand) {
  operand.map_only = true;
  return operand;
}

// Pass is what a tile of a row operator is for. `rows`: whole rows. A row that
// is too long for LDM comes in pieces, twice: in pass `sum` the kernel reads it
// and keeps sums in Tile::state, in pass `map` it writes the row. An operator
// that does not need one of the passes omits it. Only the tile loop and kernels
// know of passes.
enum class Pass : std::uint8_t { rows, sum, map };
// In Pass::map, pieces begin at multiples of these columns.
inline constexpr std::uint32_t kMapStep = 64;

// RowState describes Tile::state of a kernel that takes rows in pieces
// (is_streamed). Other kernels take whole rows only.
struct RowState {
  bool is_streamed = false;
  // The columns of a piece of Pass::sum are a multiple of it, except at the end
  // of the row. 0: the kernel does not need Pass::sum.
  std::uint32_t sum_step = 0;
  std::uint32_t step_bytes = 0;   // of the state, for each sum_step columns ...
  std::uint32_t fixed_bytes = 0;  // ... and once

  constexpr RowState() noexcept = default;
  constexpr RowState(std::size_t step, std::size_t bytes_of_step = 0,
                     std::size_t bytes_of_row = 0) noexcept
      : is_streamed(true),
        sum_step(static_cast<std::uint32_t>(step)),
        step_bytes(static_cast<std::uint32_t>(bytes_of_step)),
        fixed_bytes(static_cast<std::uint32_t>(bytes_of_row)) {}
  constexpr std::uint32_t bytes(std::size_t columns) const noexcept {
    if (step_bytes == 0) return fixed_bytes;
    return fixed_bytes +
           static_cast<std::uint32_t>((columns + sum_step - 1) / sum_step) *
               step_bytes;
  }
};

// KernelInfo is all that a caller must know of a kernel.
struct KernelInfo {
  char name[64] = {};  // the family's, then the formats
  KernelId id = 0;
  KernelFamily family = {};
  std::uint8_t operand_count = 0;
  TypedOperand operands[kMaxOperands] = {};
  std::uint32_t args_bytes = 0;  // a multiple of 4
  RowState state = {};

  // is_by_row() returns whether a unit is a row.
  constexpr bool is_by_row() const noexcept {
    for (const TypedOperand& operand : operands) {
      if (operand.row) return true;
    }
    return false;
  }
  // unit_bytes() returns the bytes of operand s for rows of `columns`; a kernel
  // that is not by row ignores them.
  constexpr std::uint32_t unit_bytes(int s,
                                     std::size_t columns = 1) const noexcept {
    return operands[s].bytes *
           (operands[s].row ? static_cast<std::uint32_t>(columns) : 1u);
  }
  // operand() returns operand s for rows of `columns`.
  constexpr Operand operand(int s, std::size_t columns = 1) const noexcept {
    Operand result = Operand::dense(unit_bytes(s, columns), operands[s].access);
    if (operands[s].row) result.column_bytes = operands[s].bytes;
    result.map_only = operands[s].map_only;
    return result;
  }
  // traffic_bytes() returns the bytes read and written for one unit.
  constexpr std::size_t traffic_bytes(std::size_t columns = 1) const noexcept {
    std::size_t bytes = 0;
    for (int s = 0; s < operand_count; ++s) {
      const Access access = operands[s].access;
      if (access == Access::constant) continue;
      bytes += std::size_t{unit_bytes(s, columns)} *
               (access == Access::inout ? 2u : 1u);
    }
    return bytes;
  }
};

// args_bytes_of() is the size of arguments as they are transferred by DMA; an
// empty struct means no arguments.
template <class Args>
constexpr std::uint32_t args_bytes_of() noexcept {
  static_assert(std::is_trivially_copyable_v<Args>);
  static_assert(std::is_empty_v<Args> || sizeof(Args) % 4 == 0);
  return std::is_empty_v<Args> ? 0 : sizeof(Args);
}

// Tile is the input of a kernel: the part of a segment that it computes now,
// and hints about memory. All positions and hints are here, none are in the
// arguments.
//
// A kernel may assume of the order: operands[s] is operand s of its row in
// slave/kernels.inc, null if it is absent. Unit i of every operand belongs to
// unit first + i of the tensor, and the units of an operand without a `layout`
// follow each other. The tiles that make one partial result come in the order
// of their units, to one slave. Nothing else has an order: other tiles are
// computed before, after or at the same time, by other slaves and in other
// sizes, and the addresses of two operands may be in any order and at any
// distance. So a result must not depend on the tile's size, except through
// `partial`.
struct Tile {
  void* const* operands = nullptr;  // `count` units of each operand
  std::size_t count = 0;            // units: elements, or rows
  std::size_t first = 0;            // index in its tensor of the first unit
  // Where the partial result of these units accumulates; null if the
  // operation has none. It is zero before the first tile. A partial result of
  // rows in pieces is one or several lines of doubles, one for each column.
  // Only Pass::map has it, with the columns of the piece.
  void* partial = nullptr;
  // 0: all units belong to the partial result at `partial`. Otherwise the tile
  // may hold several grains of its tensor, each of that many units, and their
  // partial results are consecutive.
  std::size_t grain_units = 0;
  // Hint: how far ahead to prefetch operands that are read; 0: not at all.
  std::uint32_t prefetch_bytes = 0;
  // Hint: bypass the caches when storing operands that are only written.
  bool non_temporal = false;
  Pass pass = Pass::rows;
  // In the other passes the units are columns of this row of the tensor:
  // `first` is a column, and an operand with one value for each row is this
  // row's value.
  std::size_t row = 0;
  // Whether this is the last piece of the row's last pass, with which outputs
  // that have one value for each row are put to main memory.
  bool is_last = false;
  // The state of the row, RowState::bytes(), aligned to 64 bytes; in Pass::rows
  // memory for one row at a time. Undefined before the first piece of a row.
  // The pieces of a row come in order, pass after pass. Those of other rows may
  // come between them.
  void* state = nullptr;
  // Scratch memory of this slave, of as many bytes as the operation has. Its
  // contents are undefined. null if the operation has none.
  void* scratch = nullptr;
  // The operands with the steps of their units and lines at these addresses:
  // what lies apart in main memory is almost dense in LDM. For kernels whose
  // units have several lines; the units of all others are dense.
  const Operand* layout = nullptr;
};

// Result is the output of a kernel: what it found in one tile.
struct Result {
  std::uint64_t flagged_elements = 0;  // the sum of the counts of flag()
  std::uint64_t first_index = 0;       // of the first flagged element

  // flag() records `count` more elements, the first of them at `index` of
  // their tensor. Calls must have ascending indices.
  void flag(std::uint64_t index, std::uint64_t count) noexcept {
    if (flagged_elements == 0) first_index = index;
    flagged_elements += count;
  }
};

// KernelFunction computes one tile. It allocates nothing, cannot fail, and
// accesses nothing but its arguments, the tile's operands and partial result,
// and `result`.
using KernelFunction = void (*)(const void* args, const Tile& tile,
                                Result& result);

// KernelRow is one kernel of a table.
struct KernelRow {
  const char* name;  // KernelInfo's
  // Of one kernel: the address of an element of the table that its source
  // defines, because the compiler does not know what another source's holds.
  const KernelFunction* function;
};

// KernelTable holds all kernels, compiled for one ISA.
struct KernelTable {
  const char* isa;        // as in SWAMP_ISA
  bool (*runnable)();     // on this CPU
  const KernelRow* rows;  // indexed by KernelId
};

struct KernelTables {
  const KernelTable* tables;  // best first
  std::size_t count;          // of tables
};

// kernel_tables() lists what this build was compiled for. slave/dispatch.cpp
// defines it; a test may define its own instead.
KernelTables kernel_tables() noexcept;

// flops_of() returns the floating-point operations of one unit, for the cost
// model: for products and attention; 0 for all other kernels.
// slave/flops.cpp defines it; a test may define its own instead.
double flops_of(KernelId kernel, const void* args) noexcept;

}  // namespace swamp

#endif  // SWAMP_SLAVE_KERNEL_H_
