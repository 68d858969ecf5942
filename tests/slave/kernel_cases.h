// Every kernel of slave/kernels.inc, with arguments to try it with, on every
// ISA that this CPU can run. A new kernel is tested without a new line here; a
// new type of arguments needs its sample_args() in kernel_cases.cpp.
#ifndef SWAMP_TESTS_SLAVE_KERNEL_CASES_H_
#define SWAMP_TESTS_SLAVE_KERNEL_CASES_H_

#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <vector>

#include "support/formats.h"
#include "swamp/kernel.h"

namespace swamp::test {

// ArgsSample is one set of arguments, as bytes.
struct ArgsSample {
  std::string text;
  std::vector<std::byte> bytes;
  bool nan_payload;  // promised with these arguments
};

struct KernelCase {
  const char* name;
  KernelId id;
  KernelFunction reference;
  Access access;
  const Format* format;
  std::vector<ArgsSample> args;
};

const std::vector<KernelCase>& kernel_cases();
std::vector<const KernelTable*> runnable_tables();

// KernelOnIsa is the parameter of the test suites.
struct KernelOnIsa {
  const KernelCase* kernel;
  const KernelTable* table;

  KernelFunction function() const { return table->rows[kernel->id].function; }
};

std::vector<KernelOnIsa> kernels_on_isas();
std::string kernel_on_isa_name(const testing::TestParamInfo<KernelOnIsa>& info);
// PrintTo() keeps addresses out of the names of tests.
void PrintTo(const KernelOnIsa& value, std::ostream* out);

// KernelResult is a result and the partial result that it points to: zero where
// the operation gathers none.
struct KernelResult : Result {
  alignas(8) std::byte partial_bytes[64] = {};
};

// run_kernel() runs a kernel on one tile.
KernelResult run_kernel(KernelFunction function, const ArgsSample& args,
                        void* data, std::size_t count, std::size_t first = 0);

testing::AssertionResult same_result(const KernelResult& actual,
                                     const KernelResult& expected);

}  // namespace swamp::test

#endif  // SWAMP_TESTS_SLAVE_KERNEL_CASES_H_
