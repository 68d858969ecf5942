#include "master/tensor_list.h"

#include <cstdio>
#include <string>

#include "swamp/error.h"

namespace swamp::master {
namespace {

// No array is larger than a pointer difference can say.
constexpr std::size_t kMaxBytes = ~std::size_t{0} >> 1;

constexpr const char* kScalarTypeNames[kScalarTypeCount] = {
    "float16", "bfloat16",      "float32",
    "float64", "float8_e4m3fn", "float8_e5m2"};

[[noreturn]] void fail(std::size_t index, const char* field,
                       const std::string& text,
                       swamp_status status = SWAMP_INVALID_ARGUMENT) {
  throw Error(status,
              "tensors[" + std::to_string(index) + "]." + field + ": " + text);
}

[[noreturn]] void fail_dtype(std::size_t index, std::uint32_t type,
                             std::uint32_t type_count) {
  std::string expected = "; expected ";
  for (std::uint32_t i = 0; i < type_count; ++i) {
    if (i != 0) expected += i + 1 == type_count ? " or " : ", ";
    expected += std::to_string(i) + " (" + kScalarTypeNames[i] + ")";
  }
  if (type < kScalarTypeCount) {
    fail(index, "dtype",
         std::to_string(type) + " (" + kScalarTypeNames[type] +
             ") is not taken by this operator" + expected,
         SWAMP_UNSUPPORTED);
  }
  fail(index, "dtype",
       std::to_string(static_cast<std::int32_t>(type)) + " is unknown" +
           expected);
}

// fail_tensor() says what is wrong with a tensor that is known to be.
[[noreturn]] void fail_tensor(std::size_t index, const Tensor& tensor,
                              std::uint32_t type_count) {
  const std::uint32_t type = scalar_type_index(tensor);
  if (type >= type_count) fail_dtype(index, type, type_count);
  const std::size_t bytes = kScalarTypeBytes[type];
  if (tensor.data == nullptr) {
    fail(index, "data",
         "null with a count of " + std::to_string(tensor.count) +
             "; expected the address of so many elements");
  }
  if (tensor.count > kMaxBytes / bytes) {
    fail(index, "count",
         std::to_string(tensor.count) + " elements of " +
             std::to_string(bytes) + " bytes; expected at most " +
             std::to_string(kMaxBytes / bytes));
  }
  char address[32];
  std::snprintf(address, sizeof address, "%p", tensor.data);
  fail(index, "data",
       std::string(address) + " is misaligned; expected a multiple of " +
           std::to_string(bytes) + ", the size of an element");
}

bool is_valid(const Tensor& tensor, std::uint32_t type,
              std::uint32_t type_count) noexcept {
  if (type >= type_count) return false;
  const std::size_t bytes = kScalarTypeBytes[type];
  if (tensor.count == 0) return true;
  return tensor.data != nullptr && tensor.count <= kMaxBytes / bytes &&
         reinterpret_cast<std::uintptr_t>(tensor.data) % bytes == 0;
}

}  // namespace

SegmentList make_segments(TensorList tensors, const Operation* operations,
                          std::uint32_t type_count, Buffer<std::byte>& memory) {
  if (tensors.data() == nullptr && tensors.count() != 0) {
    throw Error(SWAMP_INVALID_ARGUMENT,
                "tensors: null with a tensor_count of " +
                    std::to_string(tensors.count()) +
                    "; expected the address of so many tensors");
  }
  constexpr std::size_t kStride = segment_bytes(1);
  if (tensors.count() > kMaxBytes / kStride) {
    throw Error(SWAMP_INVALID_ARGUMENT,
                "tensor_count: " + std::to_string(tensors.count()) +
                    "; expected at most " +
                    std::to_string(kMaxBytes / kStride));
  }
  std::byte* base = memory.reserve(tensors.count() * kStride);
  SegmentList list;
  std::uint32_t used = 0;
  std::byte* at = base;
  for (std::size_t i = 0; i < tensors.count(); ++i, at += kStride) {
    const Tensor& tensor = tensors.data()[i];
    const std::uint32_t type = scalar_type_index(tensor);
    if (!is_valid(tensor, type, type_count)) fail_tensor(i, tensor, type_count);
    auto* segment = new (at) Segment{&operations[type], tensor.count};
    segment->data()[0] = static_cast<std::byte*>(tensor.data);
    used |= static_cast<std::uint32_t>(tensor.count != 0) << type;
    list.traffic_bytes += tensor.count * operations[type].traffic_bytes;
  }
  list.table = {base,       kStride,    tensors.count(),
                operations, type_count, used};
  return list;
}

}  // namespace swamp::master
