// Every kernel of slave/kernels.inc, with arguments to test it with, on every
// ISA that this CPU can run. A new kernel is tested without a new line here; a
// new type of arguments needs its traits and samples in kernel_samples.cpp.
#ifndef SWAMP_TESTS_SLAVE_KERNEL_CASES_H_
#define SWAMP_TESTS_SLAVE_KERNEL_CASES_H_

#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <vector>

#include "slave/kernel.h"
#include "slave/kernel_args.h"
#include "support/formats.h"
#include "support/random.h"

namespace swamp::test {

// ArgsSample is one set of arguments, as bytes, and the hints of the tile.
struct ArgsSample {
  std::string text;
  std::vector<std::byte> bytes;
  bool nan_payload;  // promised with these arguments
  std::uint32_t prefetch_bytes = 0;
  bool non_temporal = false;
};

enum class Flagged { nothing, nonfinite, zeros };
enum class Partial { none, scan, norm };

// ArgsFamily is what kernels with the same type of arguments have in common.
struct ArgsFamily {
  Flagged flagged;
  Partial partial;
  std::vector<ArgsSample> samples;
};

// args_family() is specialised in kernel_samples.cpp for every type of
// arguments in the list.
template <class Args>
ArgsFamily args_family();

struct OperandCase {
  Access access;
  const Format* format;
};

struct KernelCase {
  const char* name;
  KernelId id;
  KernelFunction reference;
  ArgsFamily family;
  std::vector<OperandCase> operands;  // without the key
};

// The constant operand of kernels that round stochastically, their last one.
// The indices of the tests pass 2^32.
inline constexpr slave::RoundingKey kTestKey{0xfffffe00, 0x12345678};

const std::vector<KernelCase>& kernel_cases();

// Returns the case of one kernel.
const KernelCase& case_of(KernelId id);
std::vector<const KernelTable*> runnable_tables();

// KernelOnIsa is the parameter of the test suites.
struct KernelOnIsa {
  const KernelCase* kernel;
  const KernelTable* table;

  KernelFunction function() const { return *table->rows[kernel->id].function; }
};

std::vector<KernelOnIsa> kernels_on_isas();
std::string kernel_on_isa_name(const testing::TestParamInfo<KernelOnIsa>& info);
// PrintTo() keeps addresses out of the names of tests.
void PrintTo(const KernelOnIsa& value, std::ostream* out);

// KernelResult is a result and a partial result, which stays zero if the
// operation has none.
struct KernelResult : Result {
  alignas(8) std::byte partial_bytes[128] = {};
};

// run_kernel() runs a kernel, or its reference, on one tile of each operand.
// All nan in its partial result become the same.
KernelResult run_kernel(const KernelCase& kernel, KernelFunction function,
                        const ArgsSample& args, void* const* operands,
                        std::size_t count, std::size_t first = 0);

// make_nan_equal() gives all nan of a partial result one pattern.
void make_nan_equal(const KernelCase& kernel, std::byte* partial_bytes);

testing::AssertionResult same_result(const KernelResult& actual,
                                     const KernelResult& expected);

// Fill is the type of fill_any(), fill_finite() and fill_ordinary().
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

  // flip_out() changes every bit of the operands that a kernel only writes, so
  // that a comparison finds elements that it does not write.
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
// The same, in newly allocated memory.
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

#endif  // SWAMP_TESTS_SLAVE_KERNEL_CASES_H_
