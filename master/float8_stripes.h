// Codes, values or largest magnitudes of blocks of a matrix, along rows and
// along columns.
#ifndef SWAMP_MASTER_FLOAT8_STRIPES_H_
#define SWAMP_MASTER_FLOAT8_STRIPES_H_

#include <cstddef>

#include "master/launch.h"
#include "master/partition.h"
#include "slave/quantize_args.h"
#include "swamp/float8.h"

namespace swamp::master {

// ScalingRule is the rule of a BlockScaling.
struct ScalingRule {
  const char* name;
  slave::BlockRule rule;
  bool skips_nan;
  bool power_of_2;
};

// BlockCall is one call, after validation of what rows and columns share.
struct BlockCall {
  const Matrix& x;
  const BlockOptions& options;
  const ScalingRule& scaling;
  ScalarType scales;  // their dtype
  std::size_t block;

  std::size_t scale_bytes() const { return kScalarTypeBytes[scales]; }
  // repeats() returns whether each row of a block has its scale.
  bool repeats() const { return !options.square || scale_bytes() == 1; }
  std::size_t scale_rows(std::size_t rows) const {
    return repeats() ? rows : divided(rows, block);
  }
};

// compute_stripes() launches stripes of rows of a matrix that has elements, and
// returns what the slaves have seen of its values. `rows` or `columns` is null
// if there are no codes along them.
slave::ValuePartial compute_stripes(const BlockCall& call,
                                    Machine::Impl& machine,
                                    const BlockCodes* rows,
                                    const BlockCodes* columns,
                                    const slave::BlockArgs& args);

}  // namespace swamp::master

#endif  // SWAMP_MASTER_FLOAT8_STRIPES_H_
