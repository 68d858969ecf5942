#ifndef SWAMP_MASTER_TENSOR_LIST_H_
#define SWAMP_MASTER_TENSOR_LIST_H_

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "master/buffer.h"
#include "master/scalar_type.h"
#include "runtime/spawn.h"
#include "swamp/tensor.h"

namespace swamp::master {

// SegmentList is a list of tensors, validated, as the runtime wants it.
struct SegmentList {
  runtime::SegmentTable table;
  std::uint64_t traffic_bytes = 0;  // read and written, all streams
};

// make_segments() validates every tensor and makes a segment of each, with the
// operation of its dtype: operations[scalar type], of `type_count` dtypes that
// the operator takes. The table lies in `memory`. Throws Error that names the
// tensor's index, the value and what was expected.
SegmentList make_segments(TensorList tensors, const Operation* operations,
                          std::uint32_t type_count, Buffer<std::byte>& memory);

template <std::size_t kTypeCount>
SegmentList make_segments(TensorList tensors,
                          const Operation (&operations)[kTypeCount],
                          Buffer<std::byte>& memory) {
  static_assert(kTypeCount <= kScalarTypeCount);
  return make_segments(tensors, operations,
                       static_cast<std::uint32_t>(kTypeCount), memory);
}

// StreamList is one stream of an operation over a list: its name in messages,
// and the tensor of every segment.
struct StreamList {
  const char* name;
  TensorList tensors;
};

// TypedStream is a stream and the dtype of its elements.
struct TypedStream {
  ScalarType type;
  Access access;
};

// OperationTable is the operations of a list of several streams, one a
// combination of dtypes; all have as many streams.
struct OperationTable {
  static constexpr std::size_t kMaxOperations = 9;

  std::size_t count = 0;
  Operation operations[kMaxOperations];
  ScalarType types[kMaxOperations][kMaxStreams];

  // add() keeps the address of `args`.
  template <class Args>
  void add(std::size_t kernel, const Args& args,
           std::initializer_list<TypedStream> streams) {
    Operation& operation = operations[count];
    operation = Operation(static_cast<KernelId>(kernel), args);
    for (const TypedStream& stream : streams) {
      types[count][operation.stream_count] = stream.type;
      operation.add_stream(kScalarTypeBytes[stream.type], stream.access);
    }
    ++count;
  }
};

// make_segments() for operations of several streams: segment i is tensor i of
// every stream list, whose counts must agree and whose dtypes must be those of
// one operation. With `by_grain` the table has room for first_grain(). Throws
// Error that names list and index, the value and what was expected.
SegmentList make_segments(const StreamList* streams,
                          const OperationTable& operations, bool by_grain,
                          Buffer<std::byte>& memory);

}  // namespace swamp::master

#endif  // SWAMP_MASTER_TENSOR_LIST_H_
