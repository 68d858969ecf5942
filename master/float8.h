// What the conversions to formats of at most 8 bits have in common: validation,
// and the codes that a policy chooses.
#ifndef SWAMP_MASTER_FLOAT8_H_
#define SWAMP_MASTER_FLOAT8_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "master/partition.h"
#include "slave/quantize_args.h"
#include "swamp/float8.h"
#include "swamp/float_formats.h"

namespace swamp::master {

// code_elements() is the number of elements of a code.
constexpr std::size_t code_elements(const FloatFormat& format) {
  return format.width == 4 ? 2 : 1;
}

// require_code_format() returns the format of codes; `name` names the dtype.
// Elements of blocks need a format `with_sign`.
const FloatFormat& require_code_format(const std::string& name,
                                       const Tensor& codes,
                                       bool with_sign = true);

// require_whole_codes() throws unless this number of elements has whole codes.
void require_whole_codes(const std::string& name, std::size_t elements,
                         const FloatFormat& format);

// require_codes() throws unless there are `elements` elements in the codes, and
// their data are not null. `of` is what has these elements, an even number for
// float4.
void require_codes(const std::string& name, const Tensor& codes,
                   const FloatFormat& format, std::size_t elements,
                   const std::string& of);

// require_cast() throws unless rounding and policy have a rule for the format.
void require_cast(const FloatFormat& format, Rounding rounding,
                  CastPolicy policy);

// Returns the arguments of `quantize` for a scale of 1.
slave::QuantizeArgs cast_args(const FloatFormat& format, Rounding rounding,
                              CastPolicy policy, std::uint64_t seed);

// require_values() throws unless values may have this dtype.
void require_values(const char* name, ScalarType dtype);

// Makes the arguments those of values of this dtype instead of codes.
void set_values(slave::QuantizeArgs& args, ScalarType values);

// rounding_key() chooses random bits by a seed.
slave::RoundingKey rounding_key(std::uint64_t seed);

// Returns the arguments of `dequantize` for a scale of 1, and the float32 value
// of each of the 256 codes.
slave::DequantizeArgs decoding_args(const FloatFormat& format);
const std::array<float, 256>& code_values(const FloatFormat& format);

}  // namespace swamp::master

#endif  // SWAMP_MASTER_FLOAT8_H_
