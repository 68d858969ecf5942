#include "slave/work.h"

#include <cstddef>

#include "slave/attention_args.h"
#include "slave/kernel_list.h"

namespace swamp {
namespace {

constexpr double kLanes = 8;         // of a vector
constexpr double kAccessBytes = 32;  // of LDM, of an access
// Cycles of a division or square root of a vector. No figure was found.
constexpr double kSlow = 32;
// exp_nonpositive(): compare and select, 2; n, 4; r, 4; polynomial, 13.
constexpr double kExp = 23;
// Operations for each row: the chains of its sums are added as a tree, and some
// scalar arithmetic follows. An estimate.
constexpr double kRow = 100;
// An access to one element costs as much as one to a vector: so many bytes of
// float32 for each element, less the element itself.
constexpr double kScalarAccess = kAccessBytes;

// PerElement is the work of a kernel for one element of operand `operand`.
struct PerElement {
  KernelFamily family;
  int operand;
  double operations;  // of float32 or float64
  double slow;        // divisions and square roots
  double converted;   // elements from or to a type of 16 bits
  // Bytes of LDM, in addition to each operand once: reads of the operand again,
  // and what is read and written besides operands.
  double again;
  double more_bytes;
  double per_row;
};
using F = KernelFamily;
constexpr PerElement kWork[] = {
    // A finiteness test is 2 operations on the bits.
    {F::unscale, 0, 3, 0, 2, 0, 0, 0},
    {F::check, 0, 2, 0, 0, 0, 0, 0},
    {F::scan, 0, 8, 0, 1, 0, 0, 0},
    {F::norm, 0, 6, 0, 1, 0, 0, 0},
    {F::count_zeros, 0, 3, 0, 0, 0, 0, 0},
    {F::cast, 0, 1, 0, 1, 0, 0, 0},
    {F::accumulate, 0, 2, 0, 1, 0, 0, 0},
    {F::lerp, 0, 3, 0, 2, 0, 0, 0},
    {F::zero, 0, 0, 0, 0, 0, 0, 0},
    {F::sgd, 0, 6, 0, 1, 0, 0, 0},
    {F::sgd_momentum, 0, 8, 0, 1, 0, 0, 0},
    {F::adam, 0, 12, 3, 1, 0, 0, 0},
    {F::adam_amsgrad, 0, 13, 3, 1, 0, 0, 0},
    // Random bits: 14 operations on integers. Rounding: 4 for each number; with
    // a compensation 4 more, and two conversions. A code of 8 bits: to a number
    // 12, from one 30 and a division; the moments are stored and read between.
    {F::adam_stochastic, 0, 12 + 14 + 12, 3, 4, 0, 0, 0},
    {F::adam_kahan, 0, 16 + 14 + 8, 3, 6, 0, 0, 0},
    {F::adam_8bit, 0, 12 + 84, 5, 2, 0, 16, kRow},
    {F::adam_8bit_stochastic, 0, 12 + 84 + 18, 5, 3, 0, 16, kRow},
    {F::adam_8bit_kahan, 0, 16 + 84, 5, 5, 0, 16, kRow},
    // Maximum: multiply, max. Sum: multiply, subtract, exp, add. Output:
    // multiply. The exponentials are stored and read.
    {F::scaled_softmax, 0, 6 + kExp, 0, 3, 1, 8, kRow},
    // Sum: multiply, add. Output: multiply, multiply, subtract, multiply.
    {F::softmax_backward, 0, 6, 0, 5, 2, 0, kRow},
    {F::cross_entropy, 0, 3 + kExp, 0, 2, 1, 0, kRow},
    {F::cross_entropy_backward, 0, 6 + kExp, 0, 2, 0, 0, 0},
    // Sum: to double, add. Squares: subtract, multiply, add. Output: subtract,
    // multiply, add, multiply, add, with the weight and bias converted.
    {F::layer_norm, 0, 10, 0, 6, 2, 0, kRow},
    {F::rms_norm, 0, 5, 0, 4, 1, 0, kRow},
    // Sums: 7, and 5 for those of weight and bias, in double, which are read
    // and written in each row. Output: 8.
    {F::layer_norm_backward, 0, 20, 0, 7, 2, 32, kRow},
    {F::rms_norm_backward, 0, 14, 0, 7, 2, 16, kRow},
    {F::residual_add, 0, 2, 0, 2, 0, 0, 0},
    // Blocks are transposed element by element.
    {F::attention_pack, 0, 0, 0, 1, 0, 2 * kScalarAccess, 0},
    {F::attention_output, 0, 1, 1, 1, 0, 2 * kScalarAccess, 0},
    {F::attention_dot, 0, 2, 0, 2, 0, 0, kRow},
    {F::attention_widen, 0, 0, 0, 1, 0, 0, 0},
    {F::attention_unpack, 0, 2, 0, 1, 0, 2 * kScalarAccess, 0},
    {F::attention_round, 0, 2, 0, 1, 0, 8, 0},
    // Integers, one at a time: range, count, position.
    {F::moe_count, 0, 4 * kLanes, 0, 0, 0, 2 * kScalarAccess, 0},
    {F::moe_count_map, 0, 4 * kLanes, 0, 0, 0, 2 * kScalarAccess, 0},
    {F::moe_position, 0, 6 * kLanes, 0, 0, 0, 4 * kScalarAccess, 0},
    {F::moe_position_map, 0, 6 * kLanes, 0, 0, 0, 4 * kScalarAccess, 0},
};

// has_work() returns whether work_of() knows every kernel.
constexpr bool has_work() {
  for (const KernelInfo& kernel : slave::kKernels) {
    bool found = kernel.family == F::attention ||
                 kernel.family == F::attention_backward ||
                 kernel.family == F::moe_sum;
    for (const PerElement& row : kWork) {
      found = found || row.family == kernel.family;
    }
    if (!found) return false;
  }
  return true;
}
static_assert(has_work(), "a family of kernels is missing in kWork");

// A product of matrices keeps 4 x 4 vectors of sums in registers (slave/
// attention-inl.h), so that 16 operations need 4 vectors and 4 elements.
constexpr double kProductAccesses = 8.0 / 16;

// add_read() adds the work of reading a row of so many columns, and of making
// float32 elements from those of 2 bytes.
void add_read(Work& work, const Operand& operand, std::size_t columns) {
  work.accesses += operand.unit_bytes / kAccessBytes;
  if (operand.unit_bytes == 4 * columns) return;
  const auto elements = static_cast<double>(columns);
  work.operations += elements / kLanes;
  work.accesses += elements * 4 / kAccessBytes;
}

// attention_work() is the work of a key in all lanes, each of which is a query.
Work attention_work(const slave::AttentionArgs& args, const Operand* operands) {
  const double vectors = args.lanes / kLanes;
  const double columns = args.columns, value_columns = args.value_columns;
  const auto step = static_cast<double>(
      slave::attention_keys(args.columns, args.value_columns));
  const double products = (columns + value_columns) * vectors;
  Work work;
  // Softmax: scale, max, subtract, exp, add; in each step, another exp and the
  // factor of the sums so far.
  work.operations = products + (4 + kExp) * vectors +
                    (value_columns + 3 + kExp) * vectors / step;
  work.accesses = products * kProductAccesses + 4 * vectors +
                  2 * value_columns * vectors / step;
  add_read(work, operands[0], args.columns);
  add_read(work, operands[1], args.value_columns);
  return work;
}

// backward_work() is the work of a query in all lanes, each of which is a key.
Work backward_work(const slave::AttentionBackwardArgs& args,
                   const Operand* operands) {
  const double vectors = args.lanes / kLanes;
  const double columns = args.columns, value_columns = args.value_columns;
  const double products = (3 * columns + 2 * value_columns) * vectors;
  Work work;
  // Softmax: scale twice, subtract, compare, select, exp, subtract, multiply.
  work.operations = products + (7 + kExp) * vectors;
  work.accesses = products * kProductAccesses + 6 * vectors +
                  2 * (columns + value_columns) * vectors /
                      static_cast<double>(slave::kAttentionQueries) +
                  2 * columns / kLanes;
  add_read(work, operands[0], args.columns);
  add_read(work, operands[1], args.value_columns);
  return work;
}

// sum_work() is the work of an element of a sum of rows.
Work sum_work(const KernelInfo& kernel, const Operand* operands) {
  int sources = 0;
  double bytes = 0;
  for (int s = 0; s < kernel.operand_count; ++s) {
    if (operands[s].access == Access::constant) continue;
    bytes += operands[s].unit_bytes;
    sources += s < slave::kMoeSources && operands[s].unit_bytes != 0 ? 1 : 0;
  }
  const bool factors = operands[4].unit_bytes != 0;
  Work work{0, bytes / kAccessBytes};
  if (sources > 1 || factors || operands[3].unit_bytes != 0) {
    const bool narrow = kernel.operands[0].bytes < 4;
    const double converted = narrow ? sources + 1 : 0;
    work.operations = (sources * (factors ? 2 : 1) + converted) / kLanes;
  }
  return work;
}

}  // namespace

Work work_of(KernelId id, const void* args, const Operand* operands) noexcept {
  const KernelInfo& kernel = slave::kKernels[id];
  switch (kernel.family) {
    case F::attention:
      return attention_work(*static_cast<const slave::AttentionArgs*>(args),
                            operands);
    case F::attention_backward:
      return backward_work(
          *static_cast<const slave::AttentionBackwardArgs*>(args), operands);
    case F::moe_sum:
      return sum_work(kernel, operands);
    default:
      break;
  }
  Work work;
  double bytes = 0;
  for (int s = 0; s < kernel.operand_count; ++s) {
    const bool twice = operands[s].access == Access::inout;
    bytes += operands[s].unit_bytes * (twice ? 2.0 : 1.0);
  }
  for (const PerElement& row : kWork) {
    if (row.family != kernel.family) continue;
    const TypedOperand& type = kernel.operands[row.operand];
    const double element_bytes = type.bytes;
    const double elements = operands[row.operand].unit_bytes / element_bytes;
    const double converted = element_bytes < 4 ? row.converted : 0;
    work.operations =
        elements * (row.operations + row.slow * kSlow + converted) / kLanes +
        row.per_row;
    bytes += elements * (row.again * element_bytes + row.more_bytes);
    break;
  }
  work.accesses = bytes / kAccessBytes;
  return work;
}

}  // namespace swamp
