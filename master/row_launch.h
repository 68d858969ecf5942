// What the row operators have in common: validation of matrices, the segment
// table of a launch whose units are rows or columns, and the three launches: of
// whole rows, and of the two passes on the columns of rows that do not fit into
// LDM. Both ways compute the same bits (slave/row_args.h).
#ifndef SWAMP_MASTER_ROW_LAUNCH_H_
#define SWAMP_MASTER_ROW_LAUNCH_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "master/launch.h"
#include "master/tensor_list.h"
#include "slave/kernel_list.h"
#include "slave/row_args.h"
#include "swamp/rows.h"

namespace swamp::master {

// require_row_dtype() throws Error unless a dtype is float16, bfloat16 or
// float32; require_data() unless the data of such a matrix, which has elements,
// are aligned and not null.
void require_row_dtype(const char* name, ScalarType dtype);
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

// row_kernel() returns the kernel of kFamily with kOperands operands and this
// dtype of the first.
template <KernelFamily kFamily, int kOperands>
const KernelInfo& row_kernel(ScalarType dtype) noexcept {
  static constexpr slave::KernelGroup kGroup =
      slave::kernel_group(kFamily, kOperands);
  static_assert(kGroup.count != 0, "no such kernel");
  return slave::kKernels[kGroup.ids[kGroup.first_fit[dtype]]];
}

// row_grains() is the grain rule of whole rows: a grain is as many rows as have
// the elements of a block, and at least one.
inline GrainRule row_grains(std::size_t columns) noexcept {
  GrainRule rule;
  rule.block_units = columns < kBlockElements ? kBlockElements / columns : 1;
  return rule;
}

// grain_rows() returns the number of rows of a grain; the last grain of a
// matrix may have fewer.
inline std::size_t grain_rows(std::size_t rows,
                              const GrainRule& rule) noexcept {
  const std::size_t blocks = (rows + rule.block_units - 1) / rule.block_units;
  return (blocks + rule.max_grains - 1) / rule.max_grains * rule.block_units;
}

// chunk_grains() is the grain rule of a pass that sums the chunks of rows:
// each grain, which has one partial result, is one chunk of one row.
inline GrainRule chunk_grains(std::size_t columns) noexcept {
  return {std::min(slave::kChunkColumns, columns), ~std::size_t{0}};
}

inline std::size_t chunks_of(std::size_t columns) noexcept {
  return (columns + slave::kChunkColumns - 1) / slave::kChunkColumns;
}

// chunk_step() is Operation::tile_step of a pass that needs whole chunks.
inline std::uint32_t chunk_step(std::size_t columns) noexcept {
  return static_cast<std::uint32_t>(std::min(
      slave::kChunkColumns,
      (columns + slave::kChains - 1) / slave::kChains * slave::kChains));
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

  // add() adds a segment of `units` units of one of the operations, with the
  // address of each operand, which is ignored if the operand is absent.
  void add(std::size_t units, std::initializer_list<const void*> addresses,
           std::size_t operation = 0);

  const SegmentList& list() const noexcept { return list_; }

 private:
  SegmentList list_;
  std::byte* next_;
};

// require_ldm() throws SWAMP_UNSUPPORTED if LDM is too small even for pieces of
// a row. `need` is that of the kernel that computes such pieces.
void require_ldm(const char* what, const Matrix& matrix,
                 const runtime::LdmNeed& need);

// fits_rows() returns whether slaves can compute whole rows of x in LDM.
inline bool fits_rows(const Machine::Impl& machine, const Matrix& x,
                      const Operation& whole, std::size_t partial_bytes = 0) {
  return x.columns <= slave::kMaxRowColumns &&
         runtime::ldm_need(machine, whole, partial_bytes).fits();
}

// run_rows() launches an operation on all rows of x; `addresses` are those of
// the first row of each operand.
void run_rows(Machine::Impl& machine, const Operation& whole, const Matrix& x,
              std::initializer_list<const void*> addresses);

// sum_columns() launches Pass::sum of an operation. add(table, i) adds row i of
// x to the table, as `pieces` segments: one, or the chunks. Row i has the
// records from i * chunks_of(x.columns) on; they are valid until the next
// launch of this thread. Throws as require_ldm().
template <class Record, class Add>
const Record* sum_columns(Machine::Impl& machine, const char* name,
                          const Matrix& x, const Operation& sum, Add add,
                          std::size_t pieces = 1) {
  require_ldm(name, x, runtime::ldm_need(machine, sum, sizeof(Record)));
  Workspace& workspace = Workspace::of_this_thread();
  RowTable table(sum, x.rows * pieces, true, chunk_grains(x.columns),
                 workspace.segments());
  for (std::size_t i = 0; i < x.rows; ++i) add(table, i);
  workspace.run_by_grain(machine, table.list(), sizeof(Record));
  return workspace.partials<Record>();
}

// map_columns() launches Pass::map of an operation. add(table, i) adds row i of
// x to the table, as `pieces` segments. Throws as require_ldm().
template <class Add>
void map_columns(Machine::Impl& machine, const char* name, const Matrix& x,
                 const Operation& map, Add add, std::size_t pieces = 1) {
  require_ldm(name, x, runtime::ldm_need(machine, map, 0));
  Workspace& workspace = Workspace::of_this_thread();
  RowTable table(map, x.rows * pieces, false, {}, workspace.segments());
  for (std::size_t i = 0; i < x.rows; ++i) add(table, i);
  workspace.run(machine, table.list());
}

}  // namespace swamp::master

#endif  // SWAMP_MASTER_ROW_LAUNCH_H_
