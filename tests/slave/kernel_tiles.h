// One tile of each operand of a kernel: filled, run on, compared.
#ifndef SWAMP_TESTS_SLAVE_KERNEL_TILES_H_
#define SWAMP_TESTS_SLAVE_KERNEL_TILES_H_

#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

#include "kernel_cases.h"
#include "support/random.h"

namespace swamp::test {

// As fill_any(), fill_finite() and fill_ordinary().
using Fill = void (*)(const Format& format, void* data, std::size_t count,
                      Random& random);

// KernelTiles is `count` elements of each operand, in memory of its own.
class KernelTiles {
 public:
  KernelTiles(const KernelCase& kernel, std::size_t count, Fill fill,
              Random& random);

  std::size_t count() const { return count_; }
  std::byte* operand(std::size_t s) { return operands_[s].data(); }
  const std::byte* operand(std::size_t s) const { return operands_[s].data(); }
  std::size_t bytes(std::size_t s) const { return operands_[s].size(); }
  // set() replaces elements of the first operand, from the first on.
  void set(const std::vector<std::uint64_t>& bits);

  // flip_out() changes every bit of the operands that a kernel only writes:
  // what it leaves out is seen by a comparison with one that began so.
  void flip_out();

  KernelResult run(KernelFunction function, const ArgsSample& args,
                   std::size_t first);

 private:
  const KernelCase* kernel_;
  std::size_t count_;
  std::vector<std::vector<std::byte>> operands_;
};

// run_against_reference() runs a kernel on copies of `original` at `tiles`,
// which must be memory that may be written, and compares everything with the
// reference.
testing::AssertionResult run_against_reference(const KernelOnIsa& param,
                                               const ArgsSample& args,
                                               const KernelTiles& original,
                                               void* const* tiles,
                                               std::size_t first);
// The same in memory of its own.
testing::AssertionResult run_against_reference(const KernelOnIsa& param,
                                               const ArgsSample& args,
                                               const KernelTiles& original,
                                               std::size_t first);

// compare_written() compares the operands at `tiles` with the expected ones,
// and those that are only read with what they were.
testing::AssertionResult compare_written(const KernelCase& kernel,
                                         const ArgsSample& args,
                                         void* const* tiles,
                                         const KernelTiles& expected,
                                         const KernelTiles& original);

}  // namespace swamp::test

#endif  // SWAMP_TESTS_SLAVE_KERNEL_TILES_H_
