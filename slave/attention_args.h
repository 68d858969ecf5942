// The arguments of the attention kernels, and the contract of each family.
// A block is up to args.lanes consecutive rows of one head: queries, or, for
// the gradients of key and value, keys. A block is computed in parallel, one
// row in each lane, and the rows on the other side are the units of a segment,
// which stream through LDM: no sum is over lanes, so that the bits depend
// neither on the vectors of a CPU nor on the size of a block. All arithmetic is
// float32; fma() is rounded once; the terms of a sum are added in the order of
// their index.
//   dot(a, b)_ij = sum over c of fma(a_jc, b_ic): the sum starts with 0
//   e_ij = dot(q, k)_ij * scale + mask_ij  (no addition without a mask)
//   A pair (query i, key j) that causal attention hides is left out of every
//   sum over j or i; values there, nan included, have no effect.
#ifndef SWAMP_SLAVE_ATTENTION_ARGS_H_
#define SWAMP_SLAVE_ATTENTION_ARGS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "slave/row_math.h"

namespace swamp::slave {

// attention_pack: x (in), packed (out, float32). A unit is a block: `rows` rows
//   of `columns` elements of x. Element c of row i becomes packed[c * lanes +
//   i]; packed is 0 in the lanes from `rows` on.
// attention: k (in, rows), v (in, rows), packed q (in, constant), mask (in;
//   float32, `lanes` values for each key; absent: none), AttentionPosition
//   (constant). The units are keys. Partial result: AttentionState. Keys are
//   visited in steps of attention_keys(), counted from key 0 of the segment;
//   with m the largest e_ij of lane i up to and including a step:
//     a = E(m of the steps before - m); l = l * a, o = o * a  (not if a is 1 in
//     all lanes), then for each key of the step
//     p = E(e_ij - m); l = l + p; o_c = fma(p, v_jc, o_c)
//   m is replaced by 0 in the differences as long as it is -inf. Tiles must
//   begin at a step.
// attention_output: out (out), AttentionState (in), lse (out, float32, of a
//   row). A unit is a block: out_ic = r(o_c / l + 0); lse = f32(m + log(l)). A
//   row with no key but such with e_ij = -inf (l is 0): out is 0, lse is +inf.
struct AttentionArgs {
  std::uint32_t columns;        // of a row of q and k
  std::uint32_t value_columns;  // of a row of v and out
  std::uint32_t lanes;          // a multiple of kAttentionLanes
  std::uint32_t rows;           // of the block of a unit, at most `lanes`
  float scale;
  std::uint32_t reserved;
};

inline constexpr std::size_t kAttentionLanes = 16;
inline constexpr std::size_t kMaxAttentionLanes = 64;
inline constexpr std::size_t kMaxAttentionColumns = 256;
inline constexpr std::size_t kMaxAttentionKeys = 32;

// attention_keys() is the number of keys after which the largest score is
// updated. A function of the columns alone: it changes the bits. Two tiles of
// so many float32 keys and values are at most 32 KiB.
constexpr std::size_t attention_keys(std::size_t columns,
                                     std::size_t value_columns) noexcept {
  const std::size_t most = std::max(columns, value_columns);
  return most <= 64 ? kMaxAttentionKeys : most <= 128 ? 16 : 8;
}

// AttentionPosition is what causal attention hides in a segment.
// - If the lanes are queries: lane i sees the keys j < visible + i.
struct AttentionPosition {
  std::int64_t visible;

  static constexpr std::int64_t kAll = std::int64_t{1} << 62;
};

// AttentionState is the partial result of a block: m, l and o, each of `lanes`
// floats, and o once for each column of the value.
struct AttentionState {
  static constexpr std::size_t bytes(std::size_t lanes,
                                     std::size_t value_columns) noexcept {
    return (2 + value_columns) * lanes * sizeof(float);
  }
  static constexpr std::size_t kMax = 0, kSum = 1, kOut = 2;  // times `lanes`
};

// attention_scratch_bytes() is Operation::scratch_bytes of `attention`: the
// scores of a step, and, of a 16-bit type, its keys or values as float32.
constexpr std::size_t attention_scratch_bytes(std::size_t columns,
                                              std::size_t value_columns,
                                              std::size_t lanes,
                                              bool is_float32) noexcept {
  const std::size_t keys = attention_keys(columns, value_columns);
  return sizeof(float) * keys *
         (lanes + (is_float32 ? 0 : std::max(columns, value_columns)));
}

// attention_output_scratch_bytes() is the same of `attention_output` and of
// `attention_pack`.
constexpr std::size_t attention_output_scratch_bytes(
    std::size_t columns) noexcept {
  return sizeof(float) *
         ((columns + kAttentionLanes - 1) / kAttentionLanes * kAttentionLanes);
}

// attention_lse() is the log of the sum of the exponentials of a row.
inline float attention_lse(float max, float sum) noexcept {
  if (sum == 0) return std::numeric_limits<float>::infinity();
  return static_cast<float>(static_cast<double>(max) +
                            log_positive(static_cast<double>(sum)));
}

}  // namespace swamp::slave

#endif  // SWAMP_SLAVE_ATTENTION_ARGS_H_
