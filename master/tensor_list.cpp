// Validates the lists of an operation and writes their segment table in one
// pass. Lists often have thousands of small tensors of one dtype, so the fast
// path compares each tensor with the dtype of the tensor before it, and only a
// tensor that differs is looked up and examined.
#include "master/tensor_list.h"

#include <cstdio>
#include <string>

#include "master/text.h"

namespace swamp::master {
namespace {

// field_name() is, for example, "tensors[2].dtype".
std::string field_name(const char* list, std::size_t index, const char* field) {
  return std::string(list) + "[" + std::to_string(index) + "]." + field;
}

// type_list() is "0 (float16), 1 (bfloat16) or 2 (float32)".
std::string type_list(std::uint32_t types) {
  std::string text;
  for (std::uint32_t i = 0; i < kScalarTypeCount; ++i) {
    if ((types >> i & 1u) == 0) continue;
    const bool last = types >> i == 1;
    if (!text.empty()) text += last ? " or " : ", ";
    text += std::to_string(i) + " (" + kFloatFormats[i].name + ")";
  }
  return text;
}

// refuse_data() throws why !is_valid_data().
[[noreturn]] void refuse_data(const char* list, std::size_t index,
                              const Tensor& tensor) {
  const std::size_t bytes = kScalarTypeBytes[scalar_type_index(tensor)];
  const std::string data = field_name(list, index, "data");
  const std::string count = std::to_string(tensor.count);
  if (tensor.data == nullptr) {
    refuse(data, "null", "the address of " + count + " elements");
  }
  if (tensor.count > kMaxBytes / bytes) {
    refuse(field_name(list, index, "count"), count,
           "at most " + std::to_string(kMaxBytes / bytes) + " elements of " +
               std::to_string(bytes) + " bytes");
  }
  char address[64];
  std::snprintf(address, sizeof address, "the misaligned address %p",
                tensor.data);
  refuse(data, address,
         "a multiple of " + std::to_string(bytes) + ", the size of an element");
}

// require_list() throws if the list is null, or so long that a table of
// `stride` bytes per tensor is impossible.
void require_list(const OperandList& list, std::size_t stride) {
  const std::size_t count = list.tensors.count();
  if (list.tensors.data() == nullptr && count != 0) {
    refuse(list.name, "null",
           "the address of " + std::to_string(count) + " tensors");
  }
  if (count > kMaxBytes / stride) {
    refuse(list.count_name, std::to_string(count),
           "at most " + std::to_string(kMaxBytes / stride));
  }
}

// find_operation() returns the index of the operation that takes tensor i of
// every list. If none does, it throws for the first list whose dtype no
// operation takes together with those before it.
int find_operation(const OperandList* lists, const slave::KernelGroup& group,
                   std::size_t i) {
  std::uint32_t fitting = (1u << group.count) - 1;  // bit r: operation r
  for (int s = 0; s < group.operand_count; ++s) {
    if (lists[s].name == nullptr) continue;
    const Tensor& tensor = lists[s].tensors.data()[i];
    const std::uint32_t type = scalar_type_index(tensor);
    const std::uint32_t left =
        type < kScalarTypeCount ? fitting & group.fits[s][type] : 0;
    if (left == 0) {
      std::uint32_t taken = 0;
      for (std::uint32_t t = 0; t < kScalarTypeCount; ++t) {
        if ((fitting & group.fits[s][t]) != 0) taken |= 1u << t;
      }
      refuse_dtype(field_name(lists[s].name, i, "dtype"), type, taken);
    }
    fitting = left;
  }
  return __builtin_ctz(fitting);
}

void require_same_counts(const OperandList* lists, int operand_count,
                         std::size_t i) {
  const std::size_t count = lists[0].tensors.data()[i].count;
  for (int s = 1; s < operand_count; ++s) {
    if (lists[s].name == nullptr) continue;
    const std::size_t other = lists[s].tensors.data()[i].count;
    if (other == count) continue;
    refuse(field_name(lists[s].name, i, "count"), std::to_string(other),
           std::to_string(count) + ", as in '" + lists[0].name + "'");
  }
}

void require_lists(const OperandList* lists, int operand_count,
                   std::size_t stride) {
  const std::size_t count = lists[0].tensors.count();
  for (int s = 0; s < operand_count; ++s) {
    if (lists[s].name == nullptr) continue;
    const std::size_t other = lists[s].tensors.count();
    require_list(lists[s], stride);
    if (other == count) continue;
    refuse(lists[s].name, "a list of " + std::to_string(other) + " tensors",
           std::to_string(count) + ", as in '" + lists[0].name + "'");
  }
}

// fill_one() makes the segments of a list with one operand and returns which
// operations they use.
std::uint32_t fill_one(const OperandList& list,
                       const OperationTable& operations, std::size_t stride,
                       std::byte* at, std::uint64_t& traffic_bytes) {
  const std::uint8_t* const first_fit = operations.group->first_fit;
  const Tensor* const tensors = list.tensors.data();
  const std::size_t count = list.tensors.count();
  std::uint32_t used = 0;
  std::uint64_t traffic = 0;
  for (std::size_t i = 0; i < count; ++i, at += stride) {
    const Tensor& tensor = tensors[i];
    const std::uint32_t type = scalar_type_index(tensor);
    const std::uint32_t row = type < kScalarTypeCount
                                  ? first_fit[type]
                                  : slave::KernelGroup::kNoKernel;
    if (row == slave::KernelGroup::kNoKernel) {
      find_operation(&list, *operations.group, i);  // throws
    }
    if (!is_valid_data(tensor, type)) refuse_data(list.name, i, tensor);
    const Operation& operation = operations.operations[row];
    traffic += tensor.count * operation.traffic_bytes;
    used |= static_cast<std::uint32_t>(tensor.count != 0) << row;
    auto* segment = new (at) Segment{&operation, tensor.count};
    segment->data()[0] = static_cast<std::byte*>(tensor.data);
  }
  traffic_bytes = traffic;
  return used;
}

// Expected is the dtype and alignment of the previous tensor of a list: the
// fast path.
struct Expected {
  const Tensor* tensors;
  std::uint32_t type;
  int operand;                // whose list this is
  std::uintptr_t misaligned;  // bits of an address
};

// expect_types() fills one entry for each list and returns their number.
int expect_types(const OperandList* lists, const KernelInfo& kernel,
                 Expected* expected) {
  int count = 0;
  for (int s = 0; s < kernel.operand_count; ++s) {
    if (lists[s].name == nullptr) continue;
    const TypedOperand& operand = kernel.operands[s];
    expected[count++] = {lists[s].tensors.data(), operand.type, s,
                         operand.bytes - 1u};
  }
  return count;
}

// place_expected() writes the addresses of tensor i of every list and returns
// whether all is as expected. If not, the tensors may still be valid: empty, or
// of other dtypes.
inline bool place_expected(const Expected* expected, int list_count,
                           std::size_t i, std::byte** data) noexcept {
  const std::size_t count = expected[0].tensors[i].count;
  bool good = count <= kMaxBytes / 8;  // of any dtype
  for (int l = 0; l < list_count; ++l) {
    const Tensor& tensor = expected[l].tensors[i];
    const auto address = reinterpret_cast<std::uintptr_t>(tensor.data);
    good &= scalar_type_index(tensor) == expected[l].type;
    good &= tensor.count == count;
    good &= address != 0;
    good &= (address & expected[l].misaligned) == 0;
    data[expected[l].operand] = static_cast<std::byte*>(tensor.data);
  }
  return good;
}

// fill_several() is fill_one() for several operands.
std::uint32_t fill_several(const OperandList* lists,
                           const OperationTable& operations, std::size_t stride,
                           std::byte* at, std::uint64_t& traffic_bytes) {
  const slave::KernelGroup& group = *operations.group;
  const int operand_count = group.operand_count;
  std::uint32_t used = 0;
  int row = 0;
  Expected expected[kMaxOperands];
  const int list_count =
      expect_types(lists, slave::kKernels[group.ids[row]], expected);
  const std::size_t count = lists[0].tensors.count();
  for (std::size_t i = 0; i < count; ++i, at += stride) {
    const std::size_t elements = lists[0].tensors.data()[i].count;
    auto* segment = new (at) Segment{&operations.operations[row], elements};
    if (!place_expected(expected, list_count, i, segment->data())) {
      row = find_operation(lists, group, i);
      expect_types(lists, slave::kKernels[group.ids[row]], expected);
      segment->operation = &operations.operations[row];
      require_same_counts(lists, operand_count, i);
      for (int s = 0; s < operand_count; ++s) {
        if (lists[s].name == nullptr) continue;
        const Tensor& tensor = lists[s].tensors.data()[i];
        if (!is_valid_data(tensor, scalar_type_index(tensor))) {
          refuse_data(lists[s].name, i, tensor);
        }
      }
    }
    used |= static_cast<std::uint32_t>(elements != 0) << row;
    traffic_bytes += elements * segment->operation->traffic_bytes;
  }
  return used;
}

}  // namespace

void refuse_dtype(const std::string& name, std::uint32_t type,
                  std::uint32_t taken) {
  if (type < kScalarTypeCount) {
    refuse(name, type_list(1u << type), type_list(taken), SWAMP_UNSUPPORTED);
  }
  refuse(name, std::to_string(static_cast<std::int32_t>(type)),
         type_list(taken));
}

SegmentList make_segments(const OperandList* lists,
                          const OperationTable& operations, bool by_grain,
                          Buffer<std::byte>& memory) {
  const int operand_count = operations.group->operand_count;
  const std::size_t stride = segment_bytes(operand_count + (by_grain ? 1 : 0));
  require_lists(lists, operand_count, stride);
  const std::size_t count = lists[0].tensors.count();
  std::byte* base = memory.reserve(count * stride);
  SegmentList list;
  const std::uint32_t used =
      operand_count == 1
          ? fill_one(lists[0], operations, stride, base, list.traffic_bytes)
          : fill_several(lists, operations, stride, base, list.traffic_bytes);
  list.table = {base,
                stride,
                count,
                operations.operations,
                static_cast<std::size_t>(operations.group->count),
                used};
  return list;
}

}  // namespace swamp::master
