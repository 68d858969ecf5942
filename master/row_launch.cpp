#include "master/row_launch.h"

#include <cstdint>
#include <new>
#include <string>

#include "master/text.h"

namespace swamp::master {

void require_row_dtype(const char* name, ScalarType dtype) {
  const std::uint32_t type = scalar_type_index({nullptr, 0, dtype});
  if (type <= kFloat32) return;
  constexpr std::uint32_t kTaken =
      1u << kFloat16 | 1u << kBFloat16 | 1u << kFloat32;
  refuse_dtype(std::string(name) + ".dtype", type, kTaken);
}

void require_data(const char* name, const Matrix& matrix) {
  if (matrix.data == nullptr) {
    refuse(std::string(name) + ".data", "null",
           "the address of " + std::to_string(matrix.rows) + " x " +
               std::to_string(matrix.columns) + " elements");
  }
  if (!is_valid_data({matrix.data, 1, matrix.dtype}, matrix.dtype)) {
    refuse(std::string(name) + ".data",
           "an address that is not a multiple of " +
               std::to_string(kScalarTypeBytes[matrix.dtype]),
           "one that is aligned to its element");
  }
}

void require_matrix(const char* name, const Matrix& matrix) {
  const auto field = [&](const char* text) {
    return std::string(name) + "." + text;
  };
  require_row_dtype(name, matrix.dtype);
  if (matrix.rows == 0 || matrix.columns == 0) return;
  const std::size_t bytes = kScalarTypeBytes[matrix.dtype];
  // The width of an operand is 32-bit, and so is the index of a column.
  constexpr std::size_t kMaxColumns = std::size_t{1} << 29;
  if (matrix.columns > kMaxColumns) {
    refuse(field("columns"), std::to_string(matrix.columns),
           "at most " + std::to_string(kMaxColumns));
  }
  if (matrix.rows > kMaxBytes / bytes / matrix.columns) {
    refuse(field("rows"), std::to_string(matrix.rows),
           "at most " + std::to_string(kMaxBytes / bytes / matrix.columns) +
               " of " + std::to_string(matrix.columns) + " columns");
  }
  require_data(name, matrix);
}

void require_row_array(const char* name, const Tensor& array) {
  require_row_dtype(name, array.dtype);
  const std::size_t bytes = kScalarTypeBytes[array.dtype];
  if (array.count > kMaxBytes / bytes) {
    refuse(std::string(name) + ".count", std::to_string(array.count),
           "at most " + std::to_string(kMaxBytes / bytes));
  }
  require_array((std::string(name) + ".data").c_str(), array.data, bytes,
                array.count);
}

void require_like(const char* name, const Matrix& matrix,
                  const char* other_name, const Matrix& other) {
  require_matrix(name, matrix);
  const auto require = [&](const char* field, std::size_t got,
                           std::size_t expected) {
    if (got == expected) return;
    refuse(std::string(name) + "." + field, std::to_string(got),
           std::to_string(expected) + " (as '" + other_name + "' has)");
  };
  require("rows", matrix.rows, other.rows);
  require("columns", matrix.columns, other.columns);
  require("dtype", matrix.dtype, other.dtype);
}

void require_array(const char* name, const void* data, std::size_t alignment,
                   std::size_t rows) {
  if (rows == 0) return;
  if (data != nullptr &&
      reinterpret_cast<std::uintptr_t>(data) % alignment == 0) {
    return;
  }
  refuse(name, data == nullptr ? "null" : "a misaligned address",
         "the address of " + std::to_string(rows) + " values, aligned to " +
             std::to_string(alignment) + " bytes");
}

RowTable::RowTable(const Operation* operations, std::size_t operation_count,
                   std::size_t segments, bool by_grain, const GrainRule& grains,
                   Buffer<std::byte>& memory) {
  const std::size_t stride =
      segment_bytes(operations->operand_count + (by_grain ? 1 : 0));
  next_ = memory.reserve(segments * stride);
  list_.table = {next_, stride, 0, operations, operation_count, 0};
  list_.grains = grains;
}

void RowTable::add(std::size_t units,
                   std::initializer_list<const void*> addresses,
                   std::size_t operation) {
  auto* segment =
      new (next_) Segment{list_.table.operations + operation, units};
  list_.table.operations_used |= 1u << operation;
  std::byte** data = segment->data();
  const Operand* operand = segment->operation->operands;
  for (const void* address : addresses) {
    *data++ = operand++->unit_bytes == 0
                  ? nullptr
                  : static_cast<std::byte*>(const_cast<void*>(address));
  }
  next_ += list_.table.stride;
  ++list_.table.count;
  list_.traffic_bytes += units * segment->operation->traffic_bytes;
}

void run_rows(Machine::Impl& machine, const Operation& whole, const Matrix& x,
              std::initializer_list<const void*> addresses) {
  Workspace& workspace = Workspace::of_this_thread();
  RowTable table(whole, 1, false, row_grains(x.columns), workspace.segments());
  table.add(x.rows, addresses);
  workspace.run(machine, table.list());
}

void require_ldm(const char* what, const Matrix& matrix,
                 const runtime::LdmNeed& need) {
  if (need.fits()) return;
  const std::size_t row_bytes = matrix.columns * kScalarTypeBytes[matrix.dtype];
  refuse(what, "rows of " + std::to_string(row_bytes) + " bytes",
         "shorter rows or more LDM: they need " +
             std::to_string(need.needed_bytes) + " bytes, a slave has " +
             std::to_string(need.ldm_bytes) + " (SWAMP_LDM_BYTES)",
         SWAMP_UNSUPPORTED);
}

}  // namespace swamp::master
