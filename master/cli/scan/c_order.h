// Arrays in Fortran order: their elements lie in memory with the first index
// running fastest, but a flat index means C order, the last running fastest.
#ifndef SWAMP_MASTER_CLI_SCAN_C_ORDER_H_
#define SWAMP_MASTER_CLI_SCAN_C_ORDER_H_

#include <cstdint>

#include "master/cli/scan/tensor_file.h"

namespace swamp::cli {

// differs_from_c_order() is false for arrays that are the same in both orders.
bool differs_from_c_order(const FileTensor& tensor);

// first_in_c_order() reads a tensor that has inf or nan once more, one element
// after the other, and returns the lowest flat index of one.
std::uint64_t first_in_c_order(const FileTensor& tensor);

}  // namespace swamp::cli

#endif  // SWAMP_MASTER_CLI_SCAN_C_ORDER_H_
