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

// Table is where segments are made, and of what.
struct Table {
  const OperandList* lists;
  const OperationTable& operations;
  std::byte* base;
  std::size_t stride;
};

// fill_one() makes segments of a list with one operand.
void fill_one(const Table& table, std::size_t begin, std::size_t end,
              SegmentChunk& chunk) {
  const OperationTable& operations = table.operations;
  const std::uint8_t* const first_fit = operations.group->first_fit;
  const Operation* const all = operations.operations;
  const Tensor* const tensors = table.lists->tensors.data();
  const std::size_t stride = table.stride;
  std::byte* at = table.base + begin * stride;
  std::uint32_t used = 0;
  std::uint64_t traffic = 0;
  std::size_t units = 0;
  for (std::size_t i = begin; i < end; ++i, at += stride) {
    const Tensor& tensor = tensors[i];
    const std::uint32_t type = scalar_type_index(tensor);
    const std::uint32_t row = type < kScalarTypeCount
                                  ? first_fit[type]
                                  : slave::KernelGroup::kNoKernel;
    if (row == slave::KernelGroup::kNoKernel) {
      find_operation(table.lists, *operations.group, i);  // throws
    }
    if (!is_valid_data(tensor, type)) {
      refuse_data(table.lists->name, i, tensor);
    }
    const Operation& operation = all[row];
    units += tensor.count;
    traffic += tensor.count * operation.traffic_bytes;
    used |= static_cast<std::uint32_t>(tensor.count != 0) << row;
    auto* segment = new (at) Segment{&operation, tensor.count};
    segment->data()[0] = static_cast<std::byte*>(tensor.data);
  }
  chunk = {traffic, units, used};
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

// FillSeveral is fill_one() for several operands. It remembers what it expects.
class FillSeveral {
 public:
  explicit FillSeveral(const Table& table) : table_(table) { expect(0); }

  void operator()(std::size_t begin, std::size_t end, SegmentChunk& chunk) {
    const OperandList* const lists = table_.lists;
    const std::size_t stride = table_.stride;
    std::byte* at = table_.base + begin * stride;
    std::uint32_t used = 0;
    std::uint64_t traffic = 0;
    std::size_t units = 0;
    for (std::size_t i = begin; i < end; ++i, at += stride) {
      const std::size_t elements = lists[0].tensors.data()[i].count;
      auto* segment = new (at) Segment{operation_, elements};
      if (!place_expected(expected_, list_count_, i, segment->data())) {
        examine(i);
        segment->operation = operation_;
      }
      used |= static_cast<std::uint32_t>(elements != 0) << row_;
      units += elements;
      traffic += elements * operation_->traffic_bytes;
    }
    chunk = {traffic, units, used};
  }

 private:
  void expect(int row) {
    row_ = row;
    operation_ = &table_.operations.operations[row];
    list_count_ = expect_types(
        table_.lists, slave::kKernels[table_.operations.group->ids[row]],
        expected_);
  }
  void examine(std::size_t i) {
    const OperandList* const lists = table_.lists;
    const slave::KernelGroup& group = *table_.operations.group;
    expect(find_operation(lists, group, i));
    require_same_counts(lists, group.operand_count, i);
    for (int s = 0; s < group.operand_count; ++s) {
      if (lists[s].name == nullptr) continue;
      const Tensor& tensor = lists[s].tensors.data()[i];
      if (!is_valid_data(tensor, scalar_type_index(tensor))) {
        refuse_data(lists[s].name, i, tensor);
      }
    }
  }

  const Table& table_;
  int row_;
  const Operation* operation_;
  int list_count_;
  Expected expected_[kMaxOperands];
};

}  // namespace

void refuse_dtype(const std::string& name, std::uint32_t type,
                  std::uint32_t taken) {
  if (type < kScalarTypeCount) {
    refuse(name, type_list(1u << type), type_list(taken), SWAMP_UNSUPPORTED);
  }
  refuse(name, std::to_string(static_cast<std::int32_t>(type)),
         type_list(taken));
}

SegmentList make_segments(Machine::Impl& machine, const OperandList* lists,
                          const OperationTable& operations, bool by_grain,
                          Buffer<std::byte>& memory) {
  const int operand_count = operations.group->operand_count;
  const std::size_t stride = segment_bytes(operand_count + (by_grain ? 1 : 0));
  require_lists(lists, operand_count, stride);
  const std::size_t count = lists[0].tensors.count();
  const std::size_t chunks = chunk_count(count);
  std::byte* base =
      memory.reserve(count * stride + chunks * sizeof(SegmentChunk));
  SegmentList list;
  list.table = {base, stride, count, operations.operations,
                static_cast<std::size_t>(operations.group->count)};
  auto* const chunk = reinterpret_cast<SegmentChunk*>(base + count * stride);
  const Table table{lists, operations, base, stride};
  if (operand_count == 1) {
    fill_segments(machine, list, by_grain, chunk, [&] {
      return [&](std::size_t begin, std::size_t end, SegmentChunk& of) {
        fill_one(table, begin, end, of);
      };
    });
  } else {
    fill_segments(machine, list, by_grain, chunk,
                  [&] { return FillSeveral(table); });
  }
  return list;
}

}  // namespace swamp::master
