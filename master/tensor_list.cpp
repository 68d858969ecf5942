#include "master/tensor_list.h"

#include <string>

#include "master/tensor_check.h"
#include "swamp/error.h"

namespace swamp::master {

SegmentList make_segments(TensorList tensors, const Operation* operations,
                          std::uint32_t type_count, Buffer<std::byte>& memory) {
  constexpr std::size_t kStride = segment_bytes(1);
  require_list("tensors", "tensor_count", tensors, kStride);
  std::byte* base = memory.reserve(tensors.count() * kStride);
  SegmentList list;
  std::uint32_t used = 0;
  std::byte* at = base;
  for (std::size_t i = 0; i < tensors.count(); ++i, at += kStride) {
    const Tensor& tensor = tensors.data()[i];
    const std::uint32_t type = scalar_type_index(tensor);
    if (type >= type_count) {
      fail_dtype("tensors", i, tensor, (1u << type_count) - 1);
    }
    if (!is_valid_data(tensor, type)) fail_data("tensors", i, tensor);
    auto* segment = new (at) Segment{&operations[type], tensor.count};
    segment->data()[0] = static_cast<std::byte*>(tensor.data);
    used |= static_cast<std::uint32_t>(tensor.count != 0) << type;
    list.traffic_bytes += tensor.count * operations[type].traffic_bytes;
  }
  list.table = {base, kStride, tensors.count(), operations, type_count, used};
  return list;
}

namespace {

// find_row() is the operation that takes tensor i of every stream list; throws
// that none does, for the first stream that none takes after those before it.
std::size_t find_row(const StreamList* streams, int stream_count,
                     const OperationTable& rows, std::size_t i) {
  std::uint32_t fitting = (1u << rows.count) - 1;  // bit r: row r, so far
  std::uint32_t left = fitting;
  for (int s = 0; s < stream_count; ++s, fitting = left) {
    const Tensor& tensor = streams[s].tensors.data()[i];
    const std::uint32_t type = scalar_type_index(tensor);
    std::uint32_t taken = 0;
    for (std::size_t r = 0; r < rows.count; ++r) {
      if ((fitting >> r & 1u) == 0) continue;
      const auto row_type = static_cast<std::uint32_t>(rows.types[r][s]);
      taken |= 1u << row_type;
      if (row_type != type) left &= ~(1u << r);
    }
    if (left == 0) fail_dtype(streams[s].name, i, tensor, taken);
  }
  std::size_t row = 0;
  while ((left >> row & 1u) == 0) ++row;
  return row;
}

bool fits(const StreamList* streams, int stream_count, const ScalarType* types,
          std::size_t i) noexcept {
  for (int s = 0; s < stream_count; ++s) {
    if (scalar_type_index(streams[s].tensors.data()[i]) !=
        static_cast<std::uint32_t>(types[s])) {
      return false;
    }
  }
  return true;
}

void require_same_counts(const StreamList* streams, int stream_count,
                         std::size_t i) {
  const std::size_t count = streams[0].tensors.data()[i].count;
  for (int s = 1; s < stream_count; ++s) {
    const std::size_t other = streams[s].tensors.data()[i].count;
    if (other == count) continue;
    throw Error(SWAMP_INVALID_ARGUMENT,
                std::string(streams[s].name) + "[" + std::to_string(i) +
                    "].count: " + std::to_string(other) + "; expected " +
                    std::to_string(count) + " (as '" + streams[0].name +
                    "' has)");
  }
}

}  // namespace

SegmentList make_segments(const StreamList* streams,
                          const OperationTable& operations, bool by_grain,
                          Buffer<std::byte>& memory) {
  const int stream_count = operations.operations[0].stream_count;
  const std::size_t stride = segment_bytes(stream_count + (by_grain ? 1 : 0));
  const std::size_t count = streams[0].tensors.count();
  for (int s = 0; s < stream_count; ++s) {
    const std::size_t other = streams[s].tensors.count();
    require_list(streams[s].name, "tensor count", streams[s].tensors, stride);
    if (other != count) {
      throw Error(SWAMP_INVALID_ARGUMENT,
                  std::string(streams[s].name) + ": a list of " +
                      std::to_string(other) + " tensors; expected " +
                      std::to_string(count) + " (as '" + streams[0].name +
                      "' has)");
    }
  }
  std::byte* base = memory.reserve(count * stride);
  SegmentList list;
  std::uint32_t used = 0;
  std::size_t row = 0;
  std::byte* at = base;
  for (std::size_t i = 0; i < count; ++i, at += stride) {
    if (!fits(streams, stream_count, operations.types[row], i)) {
      row = find_row(streams, stream_count, operations, i);
    }
    require_same_counts(streams, stream_count, i);
    const Operation& operation = operations.operations[row];
    const std::size_t elements = streams[0].tensors.data()[i].count;
    auto* segment = new (at) Segment{&operation, elements};
    for (int s = 0; s < stream_count; ++s) {
      const Tensor& tensor = streams[s].tensors.data()[i];
      if (!is_valid_data(tensor, scalar_type_index(tensor))) {
        fail_data(streams[s].name, i, tensor);
      }
      segment->data()[s] = static_cast<std::byte*>(tensor.data);
    }
    used |= static_cast<std::uint32_t>(elements != 0) << row;
    list.traffic_bytes += elements * operation.traffic_bytes;
  }
  list.table = {base, stride, count, operations.operations, operations.count,
                used};
  return list;
}

}  // namespace swamp::master
