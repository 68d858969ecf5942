/// @file
/// What a kernel, the runtime and the master agree on. For authors of kernels;
/// no ABI promise.
#ifndef SWAMP_KERNEL_H_
#define SWAMP_KERNEL_H_

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace swamp {

/// A kernel is named by id, because a host pointer means nothing on a slave
/// core: each side looks it up in its own table. slave/kernel_id.h has the
/// list.
using KernelId = std::uint16_t;

/// What a kernel does with a stream.
enum class Access : std::uint8_t { in, out, inout };

/// Stream describes one array of an operation: of every segment one such array
/// is read, written or both.
struct Stream {
  std::uint16_t element_bytes;  ///< of one element: 2, 4 or 8
  Access access;                ///< of the kernel
};

/// Streams that one operation may have.
inline constexpr int kMaxStreams = 6;

/// Operation is made once per dtype or parameter group and shared by segments.
struct Operation {
  KernelId kernel = 0;               ///< what to do
  std::uint8_t stream_count = 0;     ///< streams in use
  Stream streams[kMaxStreams] = {};  ///< see add_stream()
  std::uint32_t traffic_bytes = 0;   ///< that one element moves
  std::uint32_t args_bytes = 0;      ///< a multiple of 4
  const void* args = nullptr;  ///< trivially copyable; alive until the join

  constexpr Operation() noexcept = default;
  /// An operation without streams yet. `kernel_args` is not copied; an empty
  /// struct is no arguments.
  template <class Args>
  Operation(KernelId id, const Args& kernel_args) noexcept
      : kernel(id),
        args_bytes(std::is_empty_v<Args> ? 0 : sizeof(Args)),
        args(&kernel_args) {
    static_assert(std::is_trivially_copyable_v<Args>);
    static_assert(std::is_empty_v<Args> || sizeof(Args) % 4 == 0,
                  "arguments are transferred by DMA");
  }
  /// Adds the next stream; at most kMaxStreams.
  constexpr void add_stream(std::uint16_t element_bytes,
                            Access access) noexcept {
    streams[stream_count++] = {element_bytes, access};
    traffic_bytes += element_bytes * (access == Access::inout ? 2u : 1u);
  }
};

/// Segment is one tensor: `count` elements in each stream. The stream_count
/// array addresses lie directly behind it, so that a segment is no longer than
/// its operation needs (24 bytes for one stream). Where partial results are
/// gathered by grain, the number of the segment's first grain lies behind them.
struct Segment {
  const Operation* operation;  ///< shared; alive until the join
  std::size_t count;           ///< elements in each stream

  /// stream_count addresses.
  std::byte** data() noexcept {
    return reinterpret_cast<std::byte**>(this + 1);
  }
  /// stream_count addresses.
  std::byte* const* data() const noexcept {
    return reinterpret_cast<std::byte* const*>(this + 1);
  }
  /// The number of the segment's first grain, where there is one.
  std::uint64_t& first_grain() noexcept {
    return *reinterpret_cast<std::uint64_t*>(data() + operation->stream_count);
  }
  /// The number of the segment's first grain, where there is one; `streams` is
  /// its operation's stream_count, which on a slave lies elsewhere.
  std::uint64_t first_grain(int streams) const noexcept {
    return *reinterpret_cast<const std::uint64_t*>(data() + streams);
  }
};

/// segment_bytes() is how far apart segments of so many streams lie.
constexpr std::size_t segment_bytes(int stream_count) noexcept {
  return sizeof(Segment) +
         static_cast<std::size_t>(stream_count) * sizeof(std::byte*);
}

/// Tile is the input of a kernel: the part of a segment that it computes now,
/// and hints about memory. All positions and hints are here, none are in the
/// arguments.
struct Tile {
  void* const* operands = nullptr;  ///< `count` elements of each operand
  std::size_t count = 0;            ///< elements of each operand
  std::size_t first = 0;  ///< index in its tensor of the first element
  /// Where the partial result of these elements accumulates; null if the
  /// operation has none. It is zero before the first tile.
  void* partial = nullptr;
  /// 0: all elements belong to the partial result at `partial`. Otherwise the
  /// tile may hold several grains of its tensor, each of so many elements, and
  /// their partial results are consecutive.
  std::size_t grain_elements = 0;
  /// Hint: how far ahead to prefetch operands that are read; 0: not at all.
  std::uint32_t prefetch_bytes = 0;
  /// Hint: store operands that are only written past the caches.
  bool non_temporal = false;
};

/// Result is the output of a kernel: what it found in one tile.
struct Result {
  std::uint64_t flagged_elements = 0;  ///< the sum of the counts of flag()
  std::uint64_t first_index = 0;       ///< of the first flagged element

  /// flag() records `count` more elements, the first of them at `index` of
  /// their tensor. Calls must have ascending indices.
  void flag(std::uint64_t index, std::uint64_t count) noexcept {
    if (flagged_elements == 0) first_index = index;
    flagged_elements += count;
  }
};

/// KernelFunction computes one tile. It allocates nothing, cannot fail, and
/// accesses nothing but its arguments, the tile's operands and partial result,
/// and `result`.
using KernelFunction = void (*)(const void* args, const Tile& tile,
                                Result& result);

/// SWAMP_DEFINE_KERNEL(name, function) defines kernel `name` as a call of
/// `function`, usually an instance of a template.
#define SWAMP_DEFINE_KERNEL(name, ...)                            \
  void name(const void* args, const Tile& tile, Result& result) { \
    __VA_ARGS__(args, tile, result);                              \
  }

/// KernelRow is one kernel of a table.
struct KernelRow {
  const char* name;         ///< as in slave/kernels.inc
  KernelFunction function;  ///< never null
};

/// KernelTable holds all kernels, compiled for one ISA.
struct KernelTable {
  const char* isa;        ///< as in SWAMP_ISA
  bool runnable;          ///< on this CPU
  const KernelRow* rows;  ///< indexed by KernelId
};

/// KernelTables is what kernel_tables() returns; it lives for ever.
struct KernelTables {
  const KernelTable* tables;  ///< best first
  std::size_t count;          ///< tables, not kernels
};

/// kernel_tables() lists what this build was compiled for. Defined by the side
/// that runs the kernels (slave/dispatch.cpp; a test may bring its own).
KernelTables kernel_tables() noexcept;

}  // namespace swamp

#endif  // SWAMP_KERNEL_H_
