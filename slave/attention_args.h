// The arguments of the attention kernels, and the contract of each family.
// A panel is up to args.lanes consecutive rows of one head: queries, or, for
// the gradients of key and value, keys. A panel is computed in parallel, one
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

// attention_pack: x (in), packed (out, float32). A unit is a panel: `rows` rows
//   of `columns` elements of x. Element c of row i becomes packed[c * lanes +
//   i]; packed is 0 in the lanes from `rows` on.
// attention: k (in, rows), v (in, rows), packed q (in, constant), mask (in;
//   float32, `lanes` values for each key; absent: none), AttentionPosition
//   (constant). The units are keys. Partial result: AttentionState. Keys are
//   visited in steps of attention_keys(), counted from key 0 of the segment;
//   with m the largest e_ij of lane i up to and including a step:
//     a = E(m of the steps before - m), p_j = E(e_ij - m)
//     l = fma(l, a, sum of p_j)
//     o_c = fma(o_c, a, sum of fma(p_j, v_jc)), sums over the keys of the step
//   m is replaced by 0 in the differences as long as it is -inf. Tiles must
//   begin at a step.
// attention_output: out (out), AttentionState (in), lse (out, float32, of a
//   row). A unit is a panel: out_ic = r(o_c / l + 0); lse = LogSumExp::high of
//   attention_lse(). A row with no key but such with e_ij = -inf (l is 0): out
//   is 0, lse is +inf.
struct AttentionArgs {
  std::uint32_t columns;        // of a row of q and k
  std::uint32_t value_columns;  // of a row of v and out
  std::uint32_t lanes;          // a multiple of kAttentionLanes
  std::uint32_t rows;           // of the panel of a unit, at most `lanes`
  float scale;
  std::uint32_t reserved;
};

// attention_dot: g (in, rows of the gradient of out), out (in, rows), lse (in,
//   of a row), AttentionDot (out, of a row): LogSumExp {lse, 0}, and D = sum of
//   g_c * out_c by chains, as of a chunk of a row: slave/row_math.h.
// attention_widen: x (in, rows), wide (out, float32 rows of
//   attention_padded(columns), 0 in the columns after x).
// attention_backward: q (in, rows), g (in, rows), AttentionDot (in, of a row),
//   mask (in; float32, `lanes` values for each query; absent: none), dq
//   (inout, float32 rows of attention_padded(columns)), a panel of keys
//   (constant, float32): packed k, packed v, and k widened. The units are
//   queries; the lanes are keys. Partial result: dk, then dv, each `lanes`
//   floats for each of its columns. With t_ij = dot(g_i, v_j):
//     p = E(min(0, (e_ij - high_i) - low_i)), s = p * (t_ij - D_i)
//     dv_jc += sum of fma(p, g_ic), dk_jc += sum of fma(s, q_ic), sums over
//     kAttentionQueries units, counted from unit 0 of the segment. The master
//     adds the partial results of grains of kAttentionGrain units, in order.
//     dq_ic += sum of fma(s, k_jc), sums over kAttentionLanes keys
//   dq and dk lack the factor `scale`. Tiles must begin at a multiple of
//   kAttentionQueries.
// attention_unpack: x (out, rows), packed (in, float32). A unit is a panel, as
//   of attention_pack: x = r(packed * scale + 0).
// attention_round: x (out, rows), wide (in, float32, as of attention_widen):
//   x = r(wide * scale + 0).
struct AttentionBackwardArgs {
  std::uint32_t columns;        // of a row of q and k
  std::uint32_t value_columns;  // of a row of v and g
  std::uint32_t lanes;          // a multiple of kAttentionLanes
  std::uint32_t rows;           // keys of the panel, at most `lanes`
  float scale;
  std::uint32_t reserved;
  // Unit i sees the lanes below visible + i % period: units are the queries of
  // all heads that share the keys.
  std::int64_t visible;
  std::uint64_t period;
};

struct AttentionDot {
  LogSumExp lse;
  float dot;
};

inline constexpr std::size_t kAttentionLanes = 16;
inline constexpr std::size_t kMaxAttentionLanes = 64;
inline constexpr std::size_t kMaxAttentionColumns = 256;
inline constexpr std::size_t kMaxAttentionKeys = 32;
inline constexpr std::size_t kAttentionQueries = 16;
inline constexpr std::size_t kAttentionGrain = 1024;  // of queries

// attention_keys() is the number of keys after which the largest score is
// updated. A function of the columns alone: it changes the bits. Chosen so that
// two tiles of float32 keys and values fit into 32 KiB.
constexpr std::size_t attention_keys(std::size_t columns,
                                     std::size_t value_columns) noexcept {
  const std::size_t most = std::max(columns, value_columns);
  return most <= 64 ? kMaxAttentionKeys : most <= 128 ? 16 : 8;
}

// AttentionPosition is what causal attention hides in a segment: lane i sees
// the keys j < visible + i.
struct AttentionPosition {
  std::int64_t visible;

  static constexpr std::int64_t kAll = std::int64_t{1} << 62;
};

// AttentionState is the partial result of a panel: m, l and o, each of `lanes`
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

// attention_padded() is the columns of a float32 row that is whole vectors.
constexpr std::size_t attention_padded(std::size_t columns) noexcept {
  return (columns + kAttentionLanes - 1) / kAttentionLanes * kAttentionLanes;
}

// Returns the size of Tile::scratch for the operations that convert rows: one
// row as float32.
constexpr std::size_t attention_output_scratch_bytes(
    std::size_t columns) noexcept {
  return sizeof(float) *
         ((columns + kAttentionLanes - 1) / kAttentionLanes * kAttentionLanes);
}

// Returns the size of Tile::scratch for `attention_backward`: p and s, and, of
// a 16-bit type, the queries and gradients as float32.
constexpr std::size_t attention_backward_scratch_bytes(
    std::size_t columns, std::size_t value_columns, std::size_t lanes,
    bool is_float32) noexcept {
  return sizeof(float) * kAttentionQueries *
         (2 * lanes + (is_float32 ? 0 : columns + value_columns));
}

// attention_lse() returns the LogSumExp of a row, of its AttentionState.
inline LogSumExp attention_lse(float max, float sum) noexcept {
  if (sum == 0) return {std::numeric_limits<float>::infinity(), 0};
  return log_sum_exp(max, log_positive(static_cast<double>(sum)));
}

}  // namespace swamp::slave

#endif  // SWAMP_SLAVE_ATTENTION_ARGS_H_
