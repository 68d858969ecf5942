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

// Expected is what the tensors of a stream mostly are.
struct Expected {
  const Tensor* tensors;
  std::uint32_t type;
  std::uintptr_t misaligned;  // bits of an address
};

void expect_row(const StreamList* streams, int stream_count,
                const ScalarType* types, Expected* expected) {
  for (int s = 0; s < stream_count; ++s) {
    expected[s] = {streams[s].tensors.data(),
                   static_cast<std::uint32_t>(types[s]),
                   kScalarTypeBytes[types[s]] - 1u};
  }
}

// place_expected() writes the addresses of tensor i of every stream and says
// whether all is as expected. What is not may still be right: an empty tensor,
// or other dtypes.
inline bool place_expected(const Expected* expected, int stream_count,
                           std::size_t i, std::byte** data) noexcept {
  const std::size_t count = expected[0].tensors[i].count;
  bool good = count <= kMaxBytes / 8;  // of any dtype
  for (int s = 0; s < stream_count; ++s) {
    const Tensor& tensor = expected[s].tensors[i];
    const auto address = reinterpret_cast<std::uintptr_t>(tensor.data);
    good &= scalar_type_index(tensor) == expected[s].type;
    good &= tensor.count == count;
    good &= address != 0;
    good &= (address & expected[s].misaligned) == 0;
    data[s] = static_cast<std::byte*>(tensor.data);
  }
  return good;
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
  Expected expected[kMaxStreams];
  expect_row(streams, stream_count, operations.types[row], expected);
  std::byte* at = base;
  for (std::size_t i = 0; i < count; ++i, at += stride) {
    const std::size_t elements = streams[0].tensors.data()[i].count;
    auto* segment = new (at) Segment{&operations.operations[row], elements};
    if (!place_expected(expected, stream_count, i, segment->data())) {
      row = find_row(streams, stream_count, operations, i);
      expect_row(streams, stream_count, operations.types[row], expected);
      segment->operation = &operations.operations[row];
      require_same_counts(streams, stream_count, i);
      for (int s = 0; s < stream_count; ++s) {
        const Tensor& tensor = streams[s].tensors.data()[i];
        if (!is_valid_data(tensor, scalar_type_index(tensor))) {
          fail_data(streams[s].name, i, tensor);
        }
      }
    }
    used |= static_cast<std::uint32_t>(elements != 0) << row;
    list.traffic_bytes += elements * segment->operation->traffic_bytes;
  }
  list.table = {base, stride, count, operations.operations, operations.count,
                used};
  return list;
}

}  // namespace swamp::master
