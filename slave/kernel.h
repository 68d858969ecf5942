// The contract between kernels, the tile loop and the master: what a kernel is
// given, what it returns, and how it is described.
#ifndef SWAMP_SLAVE_KERNEL_H_
#define SWAMP_SLAVE_KERNEL_H_

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

// What a kernel does with an operand.
enum class Access : std::uint8_t { in, out, inout };

// Operand is one array of an operation.
struct Operand {
  std::uint16_t element_bytes;
  Access access;
};

inline constexpr int kMaxOperands = 6;

// TypedOperand is an operand as slave/kernels.inc writes it: in(kFloat16).
struct TypedOperand {
  Access access;
  ScalarType type;
};
constexpr TypedOperand in(ScalarType type) { return {Access::in, type}; }
constexpr TypedOperand out(ScalarType type) { return {Access::out, type}; }
constexpr TypedOperand inout(ScalarType type) { return {Access::inout, type}; }

inline constexpr int kScalarTypeCount =
    sizeof kFloatFormats / sizeof kFloatFormats[0];
// Bytes of an element, indexed by ScalarType: smaller than kFloatFormats, for
// the validation of lists.
inline constexpr std::uint16_t kScalarTypeBytes[kScalarTypeCount] = {
    kFloatFormats[0].bytes, kFloatFormats[1].bytes, kFloatFormats[2].bytes,
    kFloatFormats[3].bytes, kFloatFormats[4].bytes, kFloatFormats[5].bytes};

// KernelInfo is all that a caller must know of a kernel.
struct KernelInfo {
  const char* name = "";
  KernelId id = 0;
  KernelFamily family = {};
  std::uint8_t operand_count = 0;
  Operand operands[kMaxOperands] = {};
  ScalarType types[kMaxOperands] = {};
  std::uint32_t traffic_bytes = 0;  // read and written for one element
  std::uint32_t args_bytes = 0;     // a multiple of 4
};

// args_bytes_of() is the size of arguments as they are transferred by DMA; an
// empty struct means no arguments.
template <class Args>
constexpr std::uint32_t args_bytes_of() noexcept {
  static_assert(std::is_trivially_copyable_v<Args>);
  static_assert(std::is_empty_v<Args> || sizeof(Args) % 4 == 0);
  return std::is_empty_v<Args> ? 0 : sizeof(Args);
}

template <class Args>
constexpr KernelInfo kernel_info(
    const char* name, KernelId id, KernelFamily family,
    std::initializer_list<TypedOperand> operands) noexcept {
  KernelInfo info;
  info.name = name;
  info.id = id;
  info.family = family;
  info.args_bytes = args_bytes_of<Args>();
  for (const TypedOperand& operand : operands) {
    const std::uint16_t bytes = kScalarTypeBytes[operand.type];
    info.types[info.operand_count] = operand.type;
    info.operands[info.operand_count++] = {bytes, operand.access};
    info.traffic_bytes += bytes * (operand.access == Access::inout ? 2u : 1u);
  }
  return info;
}

// Tile is the input of a kernel: the part of a segment that it computes now,
// and hints about memory. All positions and hints are here, none are in the
// arguments.
struct Tile {
  void* const* operands = nullptr;  // `count` elements of each operand
  std::size_t count = 0;            // elements of each operand
  std::size_t first = 0;            // index in its tensor of the first element
  // Where the partial result of these elements accumulates; null if the
  // operation has none. It is zero before the first tile.
  void* partial = nullptr;
  // 0: all elements belong to the partial result at `partial`. Otherwise the
  // tile may hold several grains of its tensor, each of so many elements, and
  // their partial results are consecutive.
  std::size_t grain_elements = 0;
  // Hint: how far ahead to prefetch operands that are read; 0: not at all.
  std::uint32_t prefetch_bytes = 0;
  // Hint: store operands that are only written past the caches.
  bool non_temporal = false;
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

// SWAMP_DEFINE_KERNEL(name, function) defines kernel `name` as a call of
// `function`, usually an instance of a template.
#define SWAMP_DEFINE_KERNEL(name, ...)                            \
  void name(const void* args, const Tile& tile, Result& result) { \
    __VA_ARGS__(args, tile, result);                              \
  }

// KernelRow is one kernel of a table.
struct KernelRow {
  const char* name;         // as in slave/kernels.inc
  KernelFunction function;  // never null
};

// KernelTable holds all kernels, compiled for one ISA.
struct KernelTable {
  const char* isa;        // as in SWAMP_ISA
  bool runnable;          // on this CPU
  const KernelRow* rows;  // indexed by KernelId
};

struct KernelTables {
  const KernelTable* tables;  // best first
  std::size_t count;          // of tables
};

// kernel_tables() lists what this build was compiled for. slave/dispatch.cpp
// defines it; a test may define its own instead.
KernelTables kernel_tables() noexcept;

}  // namespace swamp

#endif  // SWAMP_SLAVE_KERNEL_H_
