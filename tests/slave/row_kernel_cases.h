// The cases in which every row kernel of the list is tested. A new kernel is
// tested without a new line; a new type of arguments needs a sample, and
// operands that are of no ScalarType their values.
#ifndef SWAMP_TESTS_SLAVE_ROW_KERNEL_CASES_H_
#define SWAMP_TESTS_SLAVE_ROW_KERNEL_CASES_H_

#include <string>
#include <vector>

#include "row_cases.h"

namespace swamp::test {

using Bytes = std::vector<std::byte>;

// Variant 0 is plain options and ordinary values. The others are other options,
// absent operands, special values, outputs in place of an input, hints and
// scratch memory.
inline constexpr int kVariants = 6;

// RowKernelCase is a row kernel with arguments and operands.
struct RowKernelCase {
  const KernelInfo* kernel;
  std::size_t columns;
  int variant;
  Bytes args;
  std::vector<Bytes> operands;  // empty: null
  std::vector<bool> written;
  std::size_t units, first;
  Bytes partial;
  // The output is in the memory of this input; -1: none is.
  int in_place = -1;
  std::size_t output = 0;

  std::string text() const {
    return std::string(kernel->name) + " columns " + std::to_string(columns) +
           " variant " + std::to_string(variant);
  }
};

// make_row_kernel_cases() makes those of every kernel. With minus infinities, a
// third of the logits are such.
std::vector<RowKernelCase> make_row_kernel_cases(std::size_t columns,
                                                 bool with_minus_infinity,
                                                 int variant = 0);

}  // namespace swamp::test

#endif  // SWAMP_TESTS_SLAVE_ROW_KERNEL_CASES_H_
