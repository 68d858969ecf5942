#include "master/row_launch.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <new>
#include <string>

#include "master/text.h"
#include "swamp/float_formats.h"

namespace swamp::master {

const Checker& Checker::same(const char* name, std::size_t got,
                             std::size_t expected, const char* other,
                             const char* of) const {
  if (got == expected) return *this;
  refuse(field(name), std::to_string(got),
         std::to_string(expected) + " (as '" + other + "' has" + of + ")");
}

const Checker& Checker::at_most(const char* name, std::size_t got,
                                std::size_t most, const char* note) const {
  if (got <= most) return *this;
  refuse(field(name), std::to_string(got),
         "at most " + std::to_string(most) + note);
}

const Checker& Checker::rows(std::size_t got, std::size_t columns,
                             std::size_t most) const {
  const std::size_t rows = most / std::max<std::size_t>(1, columns);
  if (got <= rows) return *this;
  const std::string note = " of " + std::to_string(columns) + " columns";
  return at_most("rows", got, rows, note.c_str());
}

const Checker& Checker::dtype(ScalarType got, std::uint32_t taken) const {
  const std::uint32_t type = scalar_type_index({nullptr, 0, got});
  if (type < kScalarTypeCount && (taken >> type & 1u) != 0) return *this;
  refuse_dtype(field("dtype"), type, taken);
}

const Checker& Checker::dtype(ScalarType got, ScalarType expected,
                              const char* other, bool or_float32) const {
  if (got == expected || (or_float32 && got == kFloat32)) return *this;
  const std::uint32_t type = scalar_type_index({nullptr, 0, got});
  refuse(field("dtype"),
         type < kScalarTypeCount
             ? kFloatFormats[type].name
             : std::to_string(static_cast<std::int32_t>(type)),
         std::string(kFloatFormats[expected].name) + " (as '" + other +
             "' has)" + (or_float32 ? " or float32" : ""));
}

const Checker& Checker::data(const void* data, std::size_t alignment,
                             std::size_t count) const {
  require_array(field("data").c_str(), data, alignment, count);
  return *this;
}

const Checker& Checker::tensor_amax(float amax) const {
  if (amax >= 0) return *this;
  refuse(field("tensor_amax"), number_text(static_cast<double>(amax)),
         "the largest magnitude of the tensor");
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
  const Checker check(name);
  check.dtype(matrix.dtype, kRowTypes);
  if (matrix.rows == 0 || matrix.columns == 0) return;
  // The width of an operand is 32-bit, and so is the index of a column.
  check.at_most("columns", matrix.columns, std::size_t{1} << 29)
      .rows(matrix.rows, matrix.columns,
            kMaxBytes / kScalarTypeBytes[matrix.dtype]);
  require_data(name, matrix);
}

void require_row_array(const char* name, const Tensor& array) {
  const Checker check(name);
  check.dtype(array.dtype, kRowTypes);
  const std::size_t bytes = kScalarTypeBytes[array.dtype];
  check.at_most("count", array.count, kMaxBytes / bytes)
      .data(array.data, bytes, array.count);
}

void require_like(const char* name, const Matrix& matrix,
                  const char* other_name, const Matrix& other) {
  require_matrix(name, matrix);
  Checker(name)
      .same("rows", matrix.rows, other.rows, other_name)
      .same("columns", matrix.columns, other.columns, other_name)
      .dtype(matrix.dtype, other.dtype, other_name);
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
  next_ = memory.reserve(segments * stride +
                         chunk_count(segments) * sizeof(SegmentChunk));
  list_.table = {next_, stride, 0, operations, operation_count, 0};
  list_.grains = grains;
}

void RowTable::add(std::size_t units,
                   std::initializer_list<const void*> addresses,
                   std::size_t operation) {
  SegmentChunk chunk{list_.traffic_bytes, 0, list_.table.operations_used};
  set(next_, units, addresses, operation, chunk);
  next_ += list_.table.stride;
  ++list_.table.count;
  list_.traffic_bytes = chunk.traffic_bytes;
  list_.table.operations_used = chunk.operations_used;
}

void RowTable::add_from(std::size_t units,
                        std::initializer_list<const void*> addresses,
                        std::size_t first) {
  std::byte* const at = next_;
  add(units, addresses);
  auto* const segment = reinterpret_cast<Segment*>(at);
  std::byte** data = segment->data();
  for (std::size_t s = 0; s < addresses.size(); ++s) {
    const Operand& operand = segment->operation->operands[s];
    if (data[s] != nullptr) data[s] += first * operand.unit_step;
  }
}

void RowTable::set(std::byte* at, std::size_t units,
                   std::initializer_list<const void*> addresses,
                   std::size_t operation, SegmentChunk& chunk) const noexcept {
  auto* segment = new (at) Segment{list_.table.operations + operation, units};
  if (operation < 32 && units != 0) chunk.operations_used |= 1u << operation;
  std::byte** data = segment->data();
  const Operand* operand = segment->operation->operands;
  for (const void* address : addresses) {
    *data++ = operand++->unit_bytes == 0
                  ? nullptr
                  : static_cast<std::byte*>(const_cast<void*>(address));
  }
  chunk.units += units;
  chunk.traffic_bytes += units * segment->operation->traffic_bytes;
}

Operation line_sums(const Machine::Impl& machine, ScalarType from,
                    ScalarType to, std::size_t lines, std::size_t line_step) {
  Operation sums(
      slave::kKernels[slave::kernel_of(KernelFamily::column_sums, {from, to})],
      nullptr);
  const std::uint32_t bytes = kScalarTypeBytes[from];
  sums.set_lines(slave::ColumnSumsOperand::x, lines, bytes, line_step, bytes);
  sums.tile_step = kLineColumns;
  while (sums.tile_step > 1 && !runtime::ldm_need(machine, sums, 0).fits()) {
    sums.tile_step /= 2;
  }
  return sums;
}

void store_rounded(ScalarType dtype, float value, void* array,
                   std::size_t i) noexcept {
  auto* const bytes = static_cast<std::byte*>(array);
  if (dtype == kFloat32) {
    std::memcpy(bytes + i * sizeof value, &value, sizeof value);
    return;
  }
  const std::uint16_t bits = dtype == kFloat16 ? float16_from_float(value)
                                               : bfloat16_from_float(value);
  std::memcpy(bytes + i * sizeof bits, &bits, sizeof bits);
}

void run_rows(Machine::Impl& machine, const char* name, const Matrix& x,
              const Operation& operation,
              std::initializer_list<const void*> addresses) {
  require_ldm(name, x, runtime::ldm_need(machine, operation, 0));
  Workspace& workspace = Workspace::of_this_thread();
  RowTable table(operation, 1, false, row_grains(x.columns),
                 workspace.segments());
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
