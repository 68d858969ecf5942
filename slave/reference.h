// What the sources of the scalar references share. A reference is one function
// for each kernel of the list, with its name and signature; the kernels are
// tested against it.
#ifndef SWAMP_SLAVE_REFERENCE_H_
#define SWAMP_SLAVE_REFERENCE_H_

#include <cstddef>
#include <limits>

#include "slave/formats.h"
#include "slave/kernel_table.h"
#include "slave/row_math.h"

namespace swamp::slave::reference {

using namespace element;  // the formats
template <std::uint8_t kType>
using FormatOf =
    NamedFormat<kType, Float16, BFloat16, Float32, Float8E4M3FN, Float8E5M2>;

// chain_sum() adds the elements of one chunk, in the order of slave/row_math.h.
template <class Number>
Number chain_sum(const Number* terms, std::size_t count,
                 std::size_t chains = kChains) {
  Number chain[kChains] = {};
  for (std::size_t j = 0; j < count; ++j) chain[j % chains] += terms[j];
  for (std::size_t distance = chains / 2; distance != 0; distance /= 2) {
    for (std::size_t i = 0; i < distance; ++i) chain[i] += chain[i + distance];
  }
  return chain[0];
}

// softmax_chunk() is the partial result of softmax and cross entropy.
inline SoftmaxChunk softmax_chunk(const float* e, std::size_t count) {
  float max = -std::numeric_limits<float>::infinity();
  for (std::size_t j = 0; j < count; ++j) {
    if (max == max && !(e[j] <= max)) max = e[j];
  }
  if (max == 0) max = 0;  // not -0
  float chain[kChains] = {};
  for (std::size_t j = 0; j < count; ++j) {
    chain[j % kChains] += exp_nonpositive(e[j] - chunk_shift(max));
  }
  const float sum = chain_sum(chain, kChains);
  return {sum == sum ? max : sum, sum};
}

}  // namespace swamp::slave::reference

#endif  // SWAMP_SLAVE_REFERENCE_H_
