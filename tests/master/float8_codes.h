// Codes and scales of matrices for tests, and the machines they are made on.
#ifndef SWAMP_TESTS_MASTER_FLOAT8_CODES_H_
#define SWAMP_TESTS_MASTER_FLOAT8_CODES_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <string>
#include <vector>

#include "machines.h"
#include "support/operators.h"
#include "swamp/float8.h"
#include "swamp/float_formats.h"

namespace swamp::test {

using Octets = std::vector<std::uint8_t>;
using S = BlockScaling;

inline ScalarType code_type(const std::string& name) {
  const auto* const found =
      std::find_if(std::begin(kFloatFormats), std::end(kFloatFormats),
                   [&](const FloatFormat& format) {
                     return std::strstr(format.name, name.c_str()) != nullptr;
                   });
  return found->type;
}

// Output owns the codes and scales of a matrix of this shape.
struct Output {
  Octets codes, scales;
  BlockCodes view;

  Output(std::size_t rows, std::size_t columns, ScalarType format,
         const BlockOptions& options) {
    const BlockScales how = block_scales(options.scaling);
    const std::size_t block = options.block != 0 ? options.block
                              : how.block != 0   ? how.block
                                                 : columns;
    const std::size_t blocks = (columns + block - 1) / block;
    const bool single = options.square && how.dtype == kFloat32;
    const std::size_t scale_count =
        blocks * (single ? (rows + block - 1) / block : rows);
    codes.assign(rows * columns / (format == kFloat4E2M1FNX2 ? 2 : 1), 0xa5);
    scales.assign(scale_count * (how.dtype == kFloat32 ? 4 : 1), 0xa5);
    view = {{codes.data(), codes.size(), format},
            {scales.data(), scale_count, how.dtype}};
  }
};

struct Both {
  Output rows, columns;
};

inline Both run(const Matrix& x, ScalarType format, const BlockOptions& options,
                bool with_rows, bool with_columns, Machine* machine) {
  Both out{Output(x.rows, x.columns, format, options),
           Output(x.columns, x.rows, format, options)};
  quantize_blocks(x, with_rows ? &out.rows.view : nullptr,
                  with_columns ? &out.columns.view : nullptr, options, machine);
  return out;
}

}  // namespace swamp::test

#endif  // SWAMP_TESTS_MASTER_FLOAT8_CODES_H_
