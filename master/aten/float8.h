// What the operators of formats of at most 8 bits share. Codes have PyTorch's
// dtypes, int8 for MXINT8, or uint8 if PyTorch has none, so that operators take
// the number of a format; it and the numbers of enumerations are those of the
// C++ API. What a training step computes itself (a scale, a seed) is a tensor
// of one element, so that torch.compile need not know its value.
#ifndef SWAMP_MASTER_ATEN_FLOAT8_H_
#define SWAMP_MASTER_ATEN_FLOAT8_H_

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <cstdint>
#include <vector>

#include "master/aten/row_tensors.h"
#include "swamp/float8.h"
#include "swamp/float_formats.h"

namespace swamp::aten {

// enumerator() keeps a number that libswamp refuses out of range.
template <class Enum>
Enum enumerator(std::int64_t number) {
  return static_cast<Enum>(number < 0 || number > 255 ? 255 : number);
}

// format_of() throws for a number without a format.
const FloatFormat& format_of(std::int64_t number);

// dtype_of() returns the dtype of codes and scales of a format.
at::ScalarType dtype_of(ScalarType format);

inline bool is_packed(const FloatFormat& format) { return format.width == 4; }

void require_matrix(const at::Tensor& tensor, const char* name);

// require_scales() and require_codes() throw unless the tensor may hold such
// scales or codes.
void require_scales(const at::Tensor& scales, ScalarType type);
void require_codes(const at::Tensor& codes, const FloatFormat& format);

// array_of() takes a row_major() tensor.
swamp::Tensor array_of(const at::Tensor& tensor, ScalarType type);
swamp::Tensor array_of(const at::Tensor& tensor);

// code_sizes() returns the sizes of the codes of elements of these sizes,
// value_sizes() the sizes of the elements of codes.
std::vector<c10::SymInt> code_sizes(std::vector<c10::SymInt> sizes,
                                    const FloatFormat& format);
std::vector<c10::SymInt> value_sizes(const at::Tensor& codes,
                                     const FloatFormat& format);

// random_bytes() returns the random bytes, an undefined tensor for none.
at::Tensor random_bytes(const OptionalTensor& random, const at::Tensor& x);

// amax_of() returns nan, which NVFP4 refuses, without a tensor.
float amax_of(const OptionalTensor& tensor);

// amax_or_nan() returns nan if what has that largest magnitude also has a nan.
float amax_or_nan(float amax, bool has_nan);

// Blocks is how a matrix is divided, as BlockScaling describes it.
struct Blocks {
  BlockScaling scaling;
  ScalarType scales;
  c10::SymInt size;
  bool square;

  Blocks(std::int64_t number, std::int64_t block, bool is_square,
         const c10::SymInt& columns)
      : scaling(enumerator<BlockScaling>(number)),
        scales(block_scales(scaling).dtype),
        size(columns),
        square(is_square) {
    TORCH_CHECK(block >= 0, "block: got ", block,
                ", expected at least 0 (0: that of the scaling)");
    const std::size_t own = block_scales(scaling).block;
    if (block == 0) block = static_cast<std::int64_t>(own);
    if (block > 0) size = block;
  }

  std::vector<c10::SymInt> scale_sizes(const c10::SymInt& rows,
                                       const c10::SymInt& columns) const {
    const auto count = [&](const c10::SymInt& elements) {
      return size == 0 ? c10::SymInt(0) : (elements + size - 1) / size;
    };
    return {square && scales == kFloat32 ? count(rows) : rows, count(columns)};
  }
};

}  // namespace swamp::aten

#endif  // SWAMP_MASTER_ATEN_FLOAT8_H_
