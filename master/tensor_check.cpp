#include "master/tensor_check.h"

#include <cstdio>
#include <string>

#include "swamp/error.h"

namespace swamp::master {
namespace {

constexpr const char* kScalarTypeNames[kScalarTypeCount] = {
    "float16", "bfloat16",      "float32",
    "float64", "float8_e4m3fn", "float8_e5m2"};

[[noreturn]] void fail(const char* list, std::size_t index, const char* field,
                       const std::string& text,
                       swamp_status status = SWAMP_INVALID_ARGUMENT) {
  throw Error(status, std::string(list) + "[" + std::to_string(index) + "]." +
                          field + ": " + text);
}

// type_list() is "0 (float16), 1 (bfloat16) or 2 (float32)".
std::string type_list(std::uint32_t types) {
  std::string text;
  for (std::uint32_t i = 0; i < kScalarTypeCount; ++i) {
    if ((types >> i & 1u) == 0) continue;
    const bool last = types >> i == 1;
    if (!text.empty()) text += last ? " or " : ", ";
    text += std::to_string(i) + " (" + kScalarTypeNames[i] + ")";
  }
  return text;
}

}  // namespace

void fail_dtype(const char* list, std::size_t index, const Tensor& tensor,
                std::uint32_t taken) {
  const std::uint32_t type = scalar_type_index(tensor);
  const std::string expected = "; expected " + type_list(taken);
  if (type < kScalarTypeCount) {
    fail(list, index, "dtype",
         std::to_string(type) + " (" + kScalarTypeNames[type] +
             ") is not taken by this operator" + expected,
         SWAMP_UNSUPPORTED);
  }
  fail(list, index, "dtype",
       std::to_string(static_cast<std::int32_t>(type)) + " is unknown" +
           expected);
}

void fail_data(const char* list, std::size_t index, const Tensor& tensor) {
  const std::size_t bytes = kScalarTypeBytes[scalar_type_index(tensor)];
  if (tensor.data == nullptr) {
    fail(list, index, "data",
         "null with a count of " + std::to_string(tensor.count) +
             "; expected the address of so many elements");
  }
  if (tensor.count > kMaxBytes / bytes) {
    fail(list, index, "count",
         std::to_string(tensor.count) + " elements of " +
             std::to_string(bytes) + " bytes; expected at most " +
             std::to_string(kMaxBytes / bytes));
  }
  char address[32];
  std::snprintf(address, sizeof address, "%p", tensor.data);
  fail(list, index, "data",
       std::string(address) + " is misaligned; expected a multiple of " +
           std::to_string(bytes) + ", the size of an element");
}

void require_list(const char* list, const char* count_name, TensorList tensors,
                  std::size_t stride) {
  if (tensors.data() == nullptr && tensors.count() != 0) {
    throw Error(SWAMP_INVALID_ARGUMENT,
                std::string(list) + ": null with a " + count_name + " of " +
                    std::to_string(tensors.count()) +
                    "; expected the address of so many tensors");
  }
  if (tensors.count() > kMaxBytes / stride) {
    throw Error(SWAMP_INVALID_ARGUMENT, std::string(count_name) + ": " +
                                            std::to_string(tensors.count()) +
                                            "; expected at most " +
                                            std::to_string(kMaxBytes / stride));
  }
}

}  // namespace swamp::master
