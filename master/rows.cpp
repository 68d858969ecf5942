#include "master/rows.h"

#include <cstdint>
#include <new>
#include <string>

#include "swamp/error.h"

namespace swamp::master {

void require_matrix(const char* name, const Matrix& matrix) {
  const auto fail = [&](const char* field, const std::string& text,
                        swamp_status status = SWAMP_INVALID_ARGUMENT) {
    throw Error(status, std::string(name) + "." + field + ": got " + text);
  };
  const Tensor tensor{matrix.data, 1, matrix.dtype};
  const std::uint32_t type = scalar_type_index(tensor);
  if (type > kFloat32) {
    const bool known = type < kScalarTypeCount;
    fail("dtype",
         std::to_string(static_cast<std::int32_t>(type)) +
             (known ? std::string(" (") + kFloatFormats[type].name + ")" : "") +
             ", expected 0 (float16), 1 (bfloat16) or 2 (float32)",
         known ? SWAMP_UNSUPPORTED : SWAMP_INVALID_ARGUMENT);
  }
  if (matrix.rows == 0 || matrix.columns == 0) return;
  const std::size_t bytes = kScalarTypeBytes[type];
  // The width of an operand is 32-bit, and so is the index of a column.
  constexpr std::size_t kMaxColumns = std::size_t{1} << 29;
  if (matrix.columns > kMaxColumns) {
    fail("columns", std::to_string(matrix.columns) + ", expected at most " +
                        std::to_string(kMaxColumns));
  }
  if (matrix.rows > kMaxBytes / bytes / matrix.columns) {
    fail("rows", std::to_string(matrix.rows) + ", expected at most " +
                     std::to_string(kMaxBytes / bytes / matrix.columns) +
                     " of " + std::to_string(matrix.columns) + " columns");
  }
  if (matrix.data == nullptr) {
    fail("data", "null, expected the address of " +
                     std::to_string(matrix.rows) + " x " +
                     std::to_string(matrix.columns) + " elements");
  }
  if (!is_valid_data(tensor, type)) {
    fail("data", "an address that is not a multiple of " +
                     std::to_string(bytes) +
                     ", expected one that is aligned to its element");
  }
}

void require_like(const char* name, const Matrix& matrix,
                  const char* other_name, const Matrix& other) {
  require_matrix(name, matrix);
  const auto require = [&](const char* field, std::size_t got,
                           std::size_t expected) {
    if (got == expected) return;
    throw Error(SWAMP_INVALID_ARGUMENT, std::string(name) + "." + field +
                                            ": got " + std::to_string(got) +
                                            ", expected " +
                                            std::to_string(expected) +
                                            " (as '" + other_name + "' has)");
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
  throw Error(SWAMP_INVALID_ARGUMENT,
              std::string(name) + ": got " +
                  (data == nullptr ? "null" : "a misaligned address") +
                  ", expected the address of " + std::to_string(rows) +
                  " values, aligned to " + std::to_string(alignment) +
                  " bytes");
}

RowTable::RowTable(const Operation& operation, std::size_t segments,
                   bool by_grain, const GrainRule& grains,
                   Buffer<std::byte>& memory) {
  const std::size_t stride =
      segment_bytes(operation.operand_count + (by_grain ? 1 : 0));
  next_ = memory.reserve(segments * stride);
  list_.table = {next_, stride, 0, &operation, 1, 1};
  list_.grains = grains;
}

void RowTable::add(std::size_t units,
                   std::initializer_list<const void*> addresses) {
  auto* segment = new (next_) Segment{list_.table.operations, units};
  std::byte** data = segment->data();
  for (const void* address : addresses) {
    *data++ = static_cast<std::byte*>(const_cast<void*>(address));
  }
  next_ += list_.table.stride;
  ++list_.table.count;
  list_.traffic_bytes += units * segment->operation->traffic_bytes;
}

void require_ldm(const char* what, const Matrix& matrix,
                 const runtime::LdmNeed& need) {
  if (need.fits()) return;
  throw Error(
      SWAMP_UNSUPPORTED,
      std::string(what) + ": got rows of " +
          std::to_string(matrix.columns * kScalarTypeBytes[matrix.dtype]) +
          " bytes, expected shorter rows or more LDM: they need " +
          std::to_string(need.needed_bytes) + " bytes, a slave has " +
          std::to_string(need.ldm_bytes) + " (SWAMP_LDM_BYTES)");
}

}  // namespace swamp::master
