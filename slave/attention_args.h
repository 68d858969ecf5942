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
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "slave/row_math.h"

namespace swamp::slave {

// attention_pack: x (in), packed (out, float32), wide (out, float32 rows of
//   attention_padded(columns); absent: none). A unit is a panel: `rows` rows of
//   `columns` elements of x. Element c of row i becomes packed[c * lanes + i]
//   and wide[i][c]; packed is 0 in the lanes from `rows` on, wide in the
//   columns after x.
// attention_mask: mask (in; lines of an element, or one line), values (out,
//   `lanes` float32). Unit u is what is added to the scores of `rows` lanes
//   with key u of a panel of queries, or with query u of a panel of keys. Lane
//   i has element i of the unit, or, if `shared`, element 0; it is 0 from
//   `rows` on. If `bytes`, elements are bytes, and give 0, or -inf if they are
//   0.
// attention: k (in, rows), v (in, rows), q (constant, the rows of a panel),
//   mask (in; float32, `lanes` values for each key; absent: none),
//   AttentionPosition (constant). The units are keys. Partial result:
//   AttentionState. Keys are visited in steps of attention_keys(), counted from
//   key 0 of the segment; with m the largest e_ij of lane i up to and including
//   a step:
//     a = E(m of the steps before - m), p_j = E(e_ij - m)
//     l = fma(l, a, sum of p_j)
//     o_c = fma(o_c, a, sum of fma(p_j, v_jc)), sums over the keys of the step
//   m is replaced by 0 in the differences as long as it is -inf. Tiles must
//   begin at a step.
// A single query has kernels of its own, so that all slaves share its keys,
// with the bits of a lane of `attention`. It sees all keys, and `lanes` is 1:
// attention_scores: k (in, rows), q (in, a row, constant), mask (in, float32;
//   absent: none), e (out, float32). The units are keys: e_j. Partial result:
//   float, the largest e_j of a grain of kAttentionGrain units.
// attention_steps: v (in, rows), e (in, float32), before (float32, constant),
//   state (out). A unit is a step of `rows` keys: m, the sum of p_j, and each
//   sum of fma(p_j, v_jc), as an AttentionState. `before` is m of the steps
//   before the segment. Partial result: float, m.
// attention_merge: state (in). The units are the steps. Partial result: the
//   AttentionState of all of them.
// attention_output: out (out), AttentionState (in), lse (out, float32, of a
//   row). A unit is a panel: out_ic = r(o_c / l + 0); lse = LogSumExp::high of
//   attention_lse(). A row with no key but such with e_ij = -inf (l is 0): out
//   is 0, lse is +inf.
struct AttentionArgs {
  std::uint32_t columns;        // of a row of q and k
  std::uint32_t value_columns;  // of a row of v and out
  // A multiple of kAttentionLanes; or, forward, 1: of one query, which sees all
  // keys of its segment.
  std::uint32_t lanes;
  // Of the panel of a unit, at most `lanes`; of attention_steps, of a step.
  std::uint32_t rows;
  float scale;
  std::uint32_t continues;  // of attention_backward and the sums: 0 or 1
  // Of attention_backward: unit i sees the lanes below visible + i.
  std::int64_t visible;
};
struct AttentionMaskArgs {
  std::uint32_t lanes;   // as in AttentionArgs
  std::uint32_t rows;    // of the panel, at most `lanes`
  std::uint32_t shared;  // 0 or 1
  std::uint32_t bytes;   // 0 or 1: of the kernel of float32
};
struct AttentionMaskOperand {
  enum : int { mask, values, count };
};
struct AttentionPackOperand {
  enum : int { x, packed, wide, count };
};
struct AttentionOperand {
  enum : int { k, v, q, mask, position, count };
};
struct AttentionScoresOperand {
  enum : int { k, q, mask, e, count };
};
struct AttentionStepsOperand {
  enum : int { v, e, before, state, count };
};
struct AttentionOutputOperand {
  enum : int { out, state, lse, count };
};

// attention_dot: g (in, rows of the gradient of out), out (in, rows), lse (in,
//   of a row), AttentionDot (out, of a row): LogSumExp {lse, 0}, and D = sum of
//   g_c * out_c by chains, as of a chunk of a row: slave/row_math.h. Flags the
//   rows with has_lost_lse().
// attention_backward: q (in, rows), g (in, rows), AttentionDot (in, of a row),
//   mask (in; float32, `lanes` values for each query; absent: none), dq (out,
//   or, if `continues`, inout; float32 rows of attention_padded(columns)), a
//   panel of `rows` keys (constant): packed k, packed v, and k widened, each
//   float32. The units are queries; the lanes are keys. Partial result: dk,
//   then dv, each `lanes` floats for each of its columns. With t_ij = dot(g_i,
//   v_j):
//     p = E(min(0, (e_ij - high_i) - low_i)), s = p * (t_ij - D_i)
//     dv_jc += sum of fma(p, g_ic), dk_jc += sum of fma(s, q_ic), sums over
//     kAttentionQueries units, counted from unit 0 of the segment. The partial
//     results of grains of kAttentionGrain units are added in order.
//     dq_ic = sum of fma(s, k_jc), which goes on from dq_ic if `continues`. The
//     sum over kMaxAttentionLanes keys, of one panel or of several smaller
//     ones, is a term of dq; terms are added in order.
//   dq and dk lack the factor `scale`. Tiles must begin at a multiple of
//   kAttentionQueries.
// attention_sum: x (out, rows; absent: none), sum (inout, or, unless
//   `continues`, out; absent: none), terms (in, lines; absent: no line), rows
//   of attention_padded(columns) float32. sum' is the lines of terms, added in
//   order to sum if `continues`, else to 0. x = r(sum' * scale + 0). Without x,
//   sum' is stored in sum.
// attention_unpack: as attention_sum, but a unit is `columns` columns of a
//   panel of `rows` rows, as in attention_pack: sum and a line of terms have
//   `lanes` float32 for each column, x (lines) has the part of each row.
struct AttentionDotOperand {
  enum : int { g, out, lse, dot, count };
};
struct AttentionSumOperand {
  enum : int { x, sum, terms, count };
};
struct AttentionBackwardOperand {
  enum : int { q, g, dot, mask, dq, keys, count };
};

struct AttentionDot {
  LogSumExp lse;
  float dot;
};

inline constexpr std::size_t kAttentionLanes = 16;
inline constexpr std::size_t kMaxAttentionLanes = 64;
inline constexpr std::size_t kMaxAttentionColumns = 512;
inline constexpr std::size_t kMaxAttentionKeys = 32;
inline constexpr std::size_t kAttentionQueries = 16;
inline constexpr std::size_t kAttentionGrain = 256;  // of queries, or of keys
inline constexpr std::size_t kAttentionLines = 16;   // of a sum

// attention_keys() is the number of keys after which the largest score is
// updated. A function of the columns alone: it changes the bits. Chosen so that
// two tiles of float32 keys and values fit into 32 KiB.
constexpr std::size_t attention_keys(std::size_t columns,
                                     std::size_t value_columns) noexcept {
  const std::size_t most = std::max(columns, value_columns);
  return most <= 64    ? kMaxAttentionKeys
         : most <= 128 ? 16
         : most <= 256 ? 8
                       : 4;
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
// packed queries, the scores of a step, and, of a 16-bit type, its keys or
// values as float32. One query of a 16-bit type needs itself as float32.
constexpr std::size_t attention_scratch_bytes(std::size_t columns,
                                              std::size_t value_columns,
                                              std::size_t lanes,
                                              bool is_float32) noexcept {
  if (lanes == 1) return is_float32 ? 0 : sizeof(float) * columns;
  const std::size_t keys = attention_keys(columns, value_columns);
  const std::size_t row = is_float32 ? 0 : std::max(columns, value_columns);
  return sizeof(float) * (columns * lanes + keys * (lanes + row));
}

// attention_padded() is the columns of a float32 row that is whole vectors.
constexpr std::size_t attention_padded(std::size_t columns) noexcept {
  return (columns + kAttentionLanes - 1) / kAttentionLanes * kAttentionLanes;
}

// Returns the size of Tile::scratch for the operations that convert rows: one
// row as float32.
constexpr std::size_t attention_row_scratch_bytes(
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

// attention_unpack_columns() returns the columns of a unit of attention_unpack,
// a divisor of those of a row: at most 16, and fewer for small panels, which are
// chosen if LDM has little room.
constexpr std::size_t attention_unpack_columns(std::size_t columns,
                                               std::size_t lanes) noexcept {
  return std::min(columns & (~columns + 1), lanes / 4);
}

// has_lost_lse() returns whether LogSumExp::low of a row with this lse matters:
// for a small |lse| it is less than the rounding of a score or, of 16 bits, of
// the result.
inline bool has_lost_lse(float lse, bool is_float32) noexcept {
  return std::fabs(lse) >= (is_float32 ? 64.0f : 1024.0f) && std::isfinite(lse);
}

// attention_lse() returns the LogSumExp of a row, of its AttentionState.
inline LogSumExp attention_lse(float max, float sum) noexcept {
  if (sum == 0) return {std::numeric_limits<float>::infinity(), 0};
  return log_sum_exp(max, log_positive(static_cast<double>(sum)));
}

}  // namespace swamp::slave

#endif  // SWAMP_SLAVE_ATTENTION_ARGS_H_
