// Trivial kernels for the tests of launches.
#ifndef SWAMP_TESTS_RUNTIME_TEST_KERNEL_IDS_H_
#define SWAMP_TESTS_RUNTIME_TEST_KERNEL_IDS_H_

#include <cstdint>
#include <initializer_list>

#include "slave/kernel.h"

namespace swamp::test {

inline constexpr std::uint32_t kFlagged = 0xdeadbeef;

struct Args {
  std::uint32_t value;
};
struct NoArgs {};

// kernel_info() describes a kernel that is not of slave/kernels.inc.
template <class Args>
constexpr KernelInfo kernel_info(const char* name, KernelId id,
                                 std::initializer_list<TypedOperand> operands) {
  KernelInfo info;
  for (int i = 0; name[i] != 0; ++i) info.name[i] = name[i];
  info.id = id;
  info.args_bytes = args_bytes_of<Args>();
  for (const TypedOperand& operand : operands) {
    info.operands[info.operand_count++] = operand;
  }
  return info;
}

// Operands are integers of the size of floats.
// add: data = data + value; flags elements that were kFlagged.
inline constexpr KernelInfo kAdd =
    kernel_info<Args>("add", 0, {inout(kFloat32)});
// widen: a uint16, a uint32 and a uint64: out = in + value; sum += in.
inline constexpr KernelInfo kWiden = kernel_info<Args>(
    "widen", 1, {in(kBFloat16), out(kFloat32), inout(kFloat64)});
// environment: sets the elements to the control bits of the slave's
// floating-point environment.
inline constexpr KernelInfo kEnvironment =
    kernel_info<NoArgs>("environment", 2, {out(kFloat32)});
// tally: bytes; adds value to each, and the sum of the old values to the
// partial result, a uint64.
inline constexpr KernelInfo kTally =
    kernel_info<Args>("tally", 3, {inout(kFloat8E5M2)});
// side: sets the elements to 1 in code that swcc compiled for slaves, else 0.
inline constexpr KernelInfo kSide =
    kernel_info<NoArgs>("side", 4, {out(kFloat32)});
// rows: a row of uint16, a row of uint32 that is constant, a uint64 for each
// row, a row of uint32: out = in + constant + low word of the row's uint64. The
// sum lies in scratch memory, of 4 bytes per column, before it is stored.
struct RowArgs {
  std::uint32_t columns;
};
inline constexpr KernelInfo kRows = kernel_info<RowArgs>(
    "rows", 5,
    {row(in(kBFloat16)), constant(kFloat32), in_bytes(8), row(out(kFloat32))});
// lines: units of several lines of bytes, which may lie apart:
// out = in + value; sum += in.
inline constexpr KernelInfo kLines = kernel_info<Args>(
    "lines", 6, {in_bytes(1), out_bytes(1), inout_bytes(1)});
inline constexpr int kKernelCount = 7;

}  // namespace swamp::test

#endif  // SWAMP_TESTS_RUNTIME_TEST_KERNEL_IDS_H_
