// What the row operators have in common: validation of matrices, and the
// segment table of a launch whose units are rows.
#ifndef SWAMP_MASTER_ROW_LAUNCH_H_
#define SWAMP_MASTER_ROW_LAUNCH_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>

#include "master/launch.h"
#include "master/tensor_list.h"
#include "slave/kernel_list.h"
#include "slave/row_args.h"
#include "swamp/rows.h"

namespace swamp::master {

// Checker checks the fields of one argument. Each function throws Error,
// "NAME.FIELD: got VALUE, expected WHAT", unless the field is as expected.
class Checker {
 public:
  explicit Checker(std::string name) : name_(std::move(name)) {}

  // same() compares a field with the same field, or with field `of`, of
  // argument `other`.
  const Checker& same(const char* field, std::size_t got, std::size_t expected,
                      const char* other, const char* of = "") const;
  const Checker& at_most(const char* field, std::size_t got, std::size_t most,
                         const char* note = "") const;
  // rows() limits the elements of a matrix to `most`.
  const Checker& rows(std::size_t got, std::size_t columns,
                      std::size_t most) const;
  // dtype() requires one of those in `taken` (bit i: dtype i), or the dtype of
  // argument `other` or, if `or_float32`, float32.
  const Checker& dtype(ScalarType got, std::uint32_t taken) const;
  const Checker& dtype(ScalarType got, ScalarType expected, const char* other,
                       bool or_float32 = false) const;
  // data() requires the aligned address of `count` values.
  const Checker& data(const void* data, std::size_t alignment,
                      std::size_t count) const;
  // tensor_amax() is not negative, nor nan.
  const Checker& tensor_amax(float amax) const;

 private:
  std::string field(const char* text) const { return name_ + "." + text; }

  std::string name_;
};

// kRowTypes is the dtypes float16, bfloat16 and float32.
inline constexpr std::uint32_t kRowTypes =
    1u << kFloat16 | 1u << kBFloat16 | 1u << kFloat32;

// require_data() throws Error unless the data of a matrix, which has elements,
// are aligned and not null.
void require_data(const char* name, const Matrix& matrix);

// require_matrix() throws Error unless `matrix` is float16, bfloat16 or float32
// and its data are aligned, not null and of a possible size.
void require_matrix(const char* name, const Matrix& matrix);

// require_row_array() is the same for an array.
void require_row_array(const char* name, const Tensor& array);

// require_like() also throws if its shape or dtype differs from `other`'s.
void require_like(const char* name, const Matrix& matrix,
                  const char* other_name, const Matrix& other);

// require_array() throws unless `data` is the aligned address of `rows` values,
// or `rows` is 0.
void require_array(const char* name, const void* data, std::size_t alignment,
                   std::size_t rows);

// row_of() returns the address of an element of row i.
inline const std::byte* row_of(const Matrix& matrix, std::size_t i,
                               std::size_t column = 0) noexcept {
  return static_cast<const std::byte*>(matrix.data) +
         (i * matrix.columns + column) * kScalarTypeBytes[matrix.dtype];
}

// row_kernel() returns the kernel of kFamily with this dtype of the first
// operand.
template <KernelFamily kFamily>
const KernelInfo& row_kernel(ScalarType dtype) noexcept {
  static constexpr slave::KernelGroup kGroup =
      slave::kernel_group(kFamily, slave::info_of(kFamily).operand_count);
  static_assert(kGroup.count != 0, "no such kernel");
  return slave::kKernels[kGroup.ids[kGroup.first_fit[dtype]]];
}

// row_grains() is the grain rule of whole rows without results by grain: a
// grain is as many rows as have kRowElements elements, and at least one. More
// of them would leave some of 192 slaves with twice the rows of others.
inline constexpr std::size_t kRowElements = 1024;
inline GrainRule row_grains(std::size_t columns) noexcept {
  return {columns < kRowElements ? kRowElements / columns : 1, ~std::size_t{0}};
}

// grain_rows() returns the number of rows of a grain; the last grain of a
// matrix may have fewer.
inline std::size_t grain_rows(std::size_t rows,
                              const GrainRule& rule) noexcept {
  const std::size_t blocks = (rows + rule.block_units - 1) / rule.block_units;
  return (blocks + rule.max_grains - 1) / rule.max_grains * rule.block_units;
}

// RowTable is the segment table of one operation, or of several that have the
// same number of operands.
class RowTable {
 public:
  // The table is made in `memory`; operations must live until the launch ends.
  // If `by_grain`, each segment also holds the number of its first grain.
  RowTable(const Operation& operation, std::size_t segments, bool by_grain,
           const GrainRule& grains, Buffer<std::byte>& memory)
      : RowTable(&operation, 1, segments, by_grain, grains, memory) {}
  RowTable(const Operation* operations, std::size_t operation_count,
           std::size_t segments, bool by_grain, const GrainRule& grains,
           Buffer<std::byte>& memory);

  // fill() makes all segments of a table without results by grain, in parts if
  // there are many: for segment i, make(i, set) calls set(units, addresses,
  // operation) once, which is as add(). It may throw.
  template <class Make>
  void fill(Machine::Impl& machine, std::size_t segments, const Make& make) {
    list_.table.count = segments;
    fill_segments(
        machine, list_, false,
        reinterpret_cast<SegmentChunk*>(next_ + segments * list_.table.stride),
        [&] {
          return [&](std::size_t begin, std::size_t end, SegmentChunk& chunk) {
            for (std::size_t i = begin; i < end; ++i) {
              std::byte* const at = next_ + i * list_.table.stride;
              make(i, [&](std::size_t units,
                          std::initializer_list<const void*> addresses,
                          std::size_t operation = 0) {
                set(at, units, addresses, operation, chunk);
              });
            }
          };
        });
  }

  // add() adds a segment of `units` units of one of the operations, with the
  // address of each operand, which is ignored if the operand is absent.
  void add(std::size_t units, std::initializer_list<const void*> addresses,
           std::size_t operation = 0);

  // add_from() adds a segment of unit `first` of operation 0 and those after
  // it; `addresses` are those of unit 0.
  void add_from(std::size_t units,
                std::initializer_list<const void*> addresses,
                std::size_t first);

  const SegmentList& list() const noexcept { return list_; }

 private:
  void set(std::byte* at, std::size_t units,
           std::initializer_list<const void*> addresses, std::size_t operation,
           SegmentChunk& chunk) const noexcept;

  SegmentList list_;
  std::byte* next_;
};

// require_ldm() throws SWAMP_UNSUPPORTED if LDM is too small even for pieces of
// a row. `need` is that of the kernel that computes such pieces.
void require_ldm(const char* what, const Matrix& matrix,
                 const runtime::LdmNeed& need);

// line_sums() returns the operation that adds `lines` lines of type `from`,
// line_step bytes apart, into `to`. A unit is a column; grains are kLineGrains.
// In LDM a tile is a whole grain if it fits.
Operation line_sums(const Machine::Impl& machine, ScalarType from,
                    ScalarType to, std::size_t lines, std::size_t line_step);
// The columns whose sums a slave stores at a time: a line of 64 bytes.
inline constexpr std::size_t kLineColumns = 16;
inline constexpr GrainRule kLineGrains{kLineColumns, ~std::size_t{0}};

// store_rounded() stores a number as element i of an array of float32, float16
// or bfloat16.
void store_rounded(ScalarType dtype, float value, void* array,
                   std::size_t i) noexcept;

// run_rows() launches an operation on all rows of x; `addresses` are those of
// the first row of each operand. Throws as require_ldm(), with the name of x.
void run_rows(Machine::Impl& machine, const char* name, const Matrix& x,
              const Operation& operation,
              std::initializer_list<const void*> addresses);

}  // namespace swamp::master

#endif  // SWAMP_MASTER_ROW_LAUNCH_H_
