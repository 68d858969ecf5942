// Lists of tensors: validated, and converted to the segment table of a launch.
#ifndef SWAMP_MASTER_TENSOR_LIST_H_
#define SWAMP_MASTER_TENSOR_LIST_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "master/buffer.h"
#include "master/partition.h"
#include "runtime/launch.h"
#include "runtime/machine_impl.h"
#include "slave/kernel_list.h"
#include "swamp/tensor.h"

namespace swamp::master {

using swamp::kScalarTypeBytes;
using swamp::kScalarTypeCount;

// No array is larger than a pointer difference can express.
inline constexpr std::size_t kMaxBytes = ~std::size_t{0} >> 1;
inline constexpr auto kMaxElements = [] {
  std::array<std::size_t, kScalarTypeCount> most{};
  for (std::size_t i = 0; i < most.size(); ++i) {
    most[i] = kMaxBytes / kScalarTypeBytes[i];
  }
  return most;
}();

// scalar_type_index() reads a dtype that a C caller may have set to anything.
// Reading such a value as an enum would be undefined.
inline std::uint32_t scalar_type_index(const Tensor& tensor) noexcept {
  static_assert(sizeof(ScalarType) == sizeof(std::uint32_t));
  std::uint32_t index;
  std::memcpy(&index, &tensor.dtype, sizeof index);
  return index;
}

// is_valid_data() returns whether data is aligned, in range and, unless count
// is 0, not null. `type` is the tensor's dtype, which must be known.
inline bool is_valid_data(const Tensor& tensor, std::uint32_t type) noexcept {
  const std::size_t bytes = kScalarTypeBytes[type];  // a power of two
  const auto address = reinterpret_cast<std::uintptr_t>(tensor.data);
  if (tensor.count == 0) return true;
  // No division: two of them took a third of the time of a small tensor.
  return tensor.data != nullptr && (address & (bytes - 1)) == 0 &&
         tensor.count <= kMaxElements[type];
}

// refuse_dtype() throws Error: argument `name` is of dtype `type`, which is not
// one of those in `taken` (bit i: dtype i).
[[noreturn]] void refuse_dtype(const std::string& name, std::uint32_t type,
                               std::uint32_t taken);

// OperandList is the tensors of one operand, and its name in error texts. If
// the name is null, the list is empty and the caller sets the addresses.
struct OperandList {
  const char* name;
  TensorList tensors;
  const char* count_name = "tensor count";
};

// OperationTable is the operations of a list: a family of kernels, one kernel
// for each combination of dtypes.
struct OperationTable {
  const slave::KernelGroup* group;
  Operation operations[slave::kMaxFormats];
};

template <std::size_t... kIndices>
constexpr std::array<Operation, sizeof...(kIndices)> operations_of_group(
    const slave::KernelGroup& group,
    std::index_sequence<kIndices...>) noexcept {
  return {Operation(slave::kKernels[group.ids[kIndices]], nullptr)...};
}

// operations_of() makes the operations of the kernels of kFamily that have
// kOperands operands. `args` is not copied.
template <KernelFamily kFamily,
          int kOperands = slave::info_of(kFamily).operand_count, class Args>
OperationTable operations_of(const Args& args) noexcept {
  static constexpr slave::KernelGroup kGroup =
      slave::kernel_group(kFamily, kOperands);
  static_assert(kGroup.count != 0, "no such kernel");
  static_assert(
      slave::kKernels[kGroup.ids[0]].args_bytes == args_bytes_of<Args>(),
      "not the arguments of this family");
  // Made when this is compiled, but for the arguments: a small list takes less
  // time than its operations, and a lock for the first call would be inherited
  // by a child that is forked meanwhile.
  static constexpr auto kMade =
      operations_of_group(kGroup, std::make_index_sequence<kGroup.count>());
  OperationTable table;
  table.group = &kGroup;
  for (int i = 0; i < kGroup.count; ++i) {
    std::memcpy(static_cast<void*>(&table.operations[i]),
                &kMade[static_cast<std::size_t>(i)],
                Operation::bytes_of(kOperands));
    table.operations[i].args = &args;
  }
  return table;
}

// SegmentList is a validated list.
struct SegmentList {
  runtime::SegmentTable table;
  std::uint64_t traffic_bytes = 0;  // read and written, of all operands
  // The same if traffic_bytes is more, because it stands for arithmetic; or 0.
  std::uint64_t memory_bytes = 0;
  GrainRule grains;
  const SegmentChunk* chunks = nullptr;  // of the table; null: unknown
};

// chunk_count() returns the number of chunks that `segments` segments have.
inline std::size_t chunk_count(std::size_t segments) noexcept {
  return divided(segments, SegmentChunk::kSegments);
}

// fill_segments() makes the segments of a table, whose other fields are set, in
// parts if there are many: make_part() returns what fills a part,
// fill(begin, end, chunk), which is called for one chunk after another. It may
// throw. Sets `traffic_bytes` and what segments use. If the launch has no
// results by grain, its ranges may end between any two segments.
template <class MakePart>
void fill_segments(Machine::Impl& machine, SegmentList& list, bool by_grain,
                   SegmentChunk* chunks, const MakePart& make_part) {
  constexpr std::uint64_t kTraffic = 256;  // as run_parts(), of a segment
  const std::size_t segments = list.table.count;
  const std::size_t count = chunk_count(segments);
  constexpr std::size_t kSegments = SegmentChunk::kSegments;
  runtime::run_parts(machine, count, kTraffic * kSegments,
                     [&](std::size_t begin, std::size_t end) {
                       auto fill = make_part();
                       for (std::size_t c = begin; c < end; ++c) {
                         chunks[c] = {};
                         fill(c * kSegments,
                              std::min((c + 1) * kSegments, segments),
                              chunks[c]);
                       }
                     });
  list.traffic_bytes = 0;
  list.table.operations_used = 0;
  for (std::size_t c = 0; c < count; ++c) {
    list.traffic_bytes += chunks[c].traffic_bytes;
    list.table.operations_used |= chunks[c].operations_used;
  }
  list.chunks = chunks;
  if (by_grain) return;
  list.grains.max_grains = ~std::size_t{0};
  list.grains.joins_small = false;
}

// make_segments() validates the lists, one for each operand,
// and makes their segment table in `memory`: segment i consists of tensor i of
// every list and has the operation of their dtypes. If `by_grain`, each
// segment also holds the number of its first grain. Keeps the address of
// `operations`. Throws Error that names the list, the index, the value and what
// was expected.
SegmentList make_segments(Machine::Impl& machine, const OperandList* lists,
                          const OperationTable& operations, bool by_grain,
                          Buffer<std::byte>& memory);

}  // namespace swamp::master

#endif  // SWAMP_MASTER_TENSOR_LIST_H_
