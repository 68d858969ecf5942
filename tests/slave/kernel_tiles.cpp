#include "kernel_tiles.h"

#include <cstring>

#include "support/compare.h"

namespace swamp::test {

KernelTiles::KernelTiles(const KernelCase& kernel, std::size_t count, Fill fill,
                         Random& random)
    : kernel_(&kernel), count_(count) {
  for (const OperandCase& operand : kernel.operands) {
    operands_.emplace_back(count * operand.format->bytes);
    fill(*operand.format, operands_.back().data(), count, random);
  }
}

void KernelTiles::set(const std::vector<std::uint64_t>& bits) {
  for (std::size_t i = 0; i < bits.size(); ++i) {
    store_bits(*kernel_->operands[0].format, operand(0), i, bits[i]);
  }
}

void KernelTiles::flip_out() {
  for (std::size_t s = 0; s < operands_.size(); ++s) {
    if (kernel_->operands[s].access != Access::out) continue;
    for (std::byte& byte : operands_[s]) byte = ~byte;
  }
}

KernelResult KernelTiles::run(KernelFunction function, const ArgsSample& args,
                              std::size_t first) {
  void* tiles[kMaxOperands] = {};
  for (std::size_t s = 0; s < operands_.size(); ++s) tiles[s] = operand(s);
  return run_kernel(*kernel_, function, args, tiles, count_, first);
}

testing::AssertionResult compare_written(const KernelCase& kernel,
                                         const ArgsSample& args,
                                         void* const* tiles,
                                         const KernelTiles& expected,
                                         const KernelTiles& original) {
  for (std::size_t s = 0; s < kernel.operands.size(); ++s) {
    const OperandCase& operand = kernel.operands[s];
    const bool read_only = operand.access == Access::in;
    const testing::AssertionResult same = same_elements(
        *operand.format, tiles[s],
        read_only ? original.operand(s) : expected.operand(s), expected.count(),
        read_only || (has_nan_payload(*operand.format) && args.nan_payload));
    if (!same) {
      return testing::AssertionFailure()
             << "operand " << s << ": " << same.message();
    }
  }
  return testing::AssertionSuccess();
}

testing::AssertionResult run_against_reference(const KernelOnIsa& param,
                                               const ArgsSample& args,
                                               const KernelTiles& original,
                                               void* const* tiles,
                                               std::size_t first) {
  const KernelCase& kernel = *param.kernel;
  const std::size_t count = original.count();
  for (std::size_t s = 0; s < kernel.operands.size() && count != 0; ++s) {
    std::memcpy(tiles[s], original.operand(s), original.bytes(s));
  }
  KernelTiles expected = original;
  expected.flip_out();
  const KernelResult want = expected.run(kernel.reference, args, first);
  const KernelResult got =
      run_kernel(kernel, param.function(), args, tiles, count, first);
  const testing::AssertionResult same = same_result(kernel, got, want);
  if (!same) return same;
  return compare_written(kernel, args, tiles, expected, original);
}

testing::AssertionResult run_against_reference(const KernelOnIsa& param,
                                               const ArgsSample& args,
                                               const KernelTiles& original,
                                               std::size_t first) {
  KernelTiles actual = original;
  void* tiles[kMaxOperands] = {};
  for (std::size_t s = 0; s < param.kernel->operands.size(); ++s) {
    tiles[s] = actual.operand(s);
  }
  return run_against_reference(param, args, original, tiles, first);
}

}  // namespace swamp::test
