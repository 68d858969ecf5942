/// @file
/// Attention of 16-bit and float32 models, as flash attention computes it: the
/// matrix of scores is never in main memory. A slave computes a panel of
/// queries; keys and values stream through its LDM. All arithmetic is float32,
/// the probabilities too, with one rounding at the end. Every sum is added in
/// the order of its index, so the results have the same bits on every machine:
/// any number of slaves, any LDM, transfer mode and ISA.
///
/// Common to all functions: a Machine of null is the default machine. Data must
/// be aligned to its element and contiguous. Outputs must not overlap anything.
/// Everything is checked before the first write. Any thread may call, also
/// several at once on one machine. Error is thrown for bad arguments, and with
/// SWAMP_UNSUPPORTED if a head has more than 512 columns or, unless transfers
/// are views, the machine's LDM is too small: 256 KiB are enough up to 256
/// columns; 64 KiB are enough for forward up to 128 columns and backward up to
/// 64. The formulas are in slave/attention_args.h; they are those of
/// FlashAttention-2 (Dao 2023, arXiv 2307.08691).
#ifndef SWAMP_ATTENTION_H_
#define SWAMP_ATTENTION_H_

#include <cstddef>
#include <optional>

#include "swamp/export.h"
#include "swamp/machine.h"
#include "swamp/tensor.h"

namespace swamp {

/// Heads is an array [batch, heads, rows, columns] of float16, bfloat16 or
/// float32. The caller owns the memory.
struct Heads {
  void* data = nullptr;         ///< of the first element
  std::size_t batch = 0;        ///< size of dimension 0
  std::size_t heads = 0;        ///< size of dimension 1
  std::size_t rows = 0;         ///< size of dimension 2: queries or keys
  std::size_t columns = 0;      ///< size of dimension 3: channels of a head
  ScalarType dtype = kFloat32;  ///< of an element
};

/// AttentionCausal is which keys a query may see. Key 0 and query 0 are the
/// first ones.
enum class AttentionCausal {
  none,      ///< all keys
  top_left,  ///< key j <= query i, as PyTorch's is_causal
  /// key j <= query i + keys - queries, as FlashAttention from version 2.1 on:
  /// the last query sees all keys
  bottom_right
};

/// AttentionMask is added to the scores, or hides some of them. Its shape is
/// [batch, heads, queries, keys], and each of the four sizes is that of the
/// scores or 1, which means the same for all.
struct AttentionMask {
  const void* data = nullptr;  ///< null: no mask
  std::size_t batch = 1;       ///< 1, or q.batch
  std::size_t heads = 1;       ///< 1, or q.heads
  std::size_t queries = 1;     ///< 1, or q.rows
  std::size_t keys = 1;        ///< 1, or k.rows
  /// If true, the elements are bytes, and a key whose byte is 0 is hidden, as
  /// in PyTorch. If false, they are added to the scaled scores.
  bool is_bool = false;
  /// Of added elements: float32, or the dtype of q.
  ScalarType dtype = kFloat32;
};

/// The options of PyTorch's scaled_dot_product_attention.
struct AttentionOptions {
  /// Factor of the scores; absent: 1 / sqrt(q.columns).
  std::optional<float> scale;
  /// Together with a mask, a query sees the keys that both allow.
  AttentionCausal causal = AttentionCausal::none;
  AttentionMask mask;  ///< absent if its data is null
};

/// attention sets out to softmax(scale * q * k^T + mask) * v. Head h of q uses
/// head h / (q.heads / k.heads) of k and v (grouped-query attention). A query
/// that sees no key has out 0 and lse +inf. A query that sees a score which is
/// nan or +inf has out and lse nan.
///
/// lse is one float32 number a query, whose rounding loses the log of the sum
/// if scores are large. attention_backward() computes what was lost again for
/// queries with |lse| >= 64 (16-bit types: 1024), which takes the time of the
/// forward pass of their panels of queries: backward takes 1.4 to 1.7 times as
/// long if all queries need it. These are also queries all of whose keys a mask
/// of finite values, such as -1e9, hides.
///
/// @param q [batch, heads, queries, columns]
/// @param k [batch, key heads, keys, columns]; key heads divide q.heads
/// @param v [batch, key heads, keys, value columns]
/// @param[out] out [batch, heads, queries, value columns]
/// @param[out] lse float32, [batch, heads, queries]: log of the sum of the
///   exponentials of the scores, for backward
/// @param options scale, causal and mask
/// @param machine where to run; null: the default machine
SWAMP_API void attention(const Heads& q, const Heads& k, const Heads& v,
                         const Heads& out, float* lse,
                         const AttentionOptions& options = {},
                         Machine* machine = nullptr);

/// attention_backward computes the gradients of attention(). They are summed in
/// float32 and rounded once: dq over 64 keys at a time, dk and dv over 256
/// queries of a head at a time, and these sums in their order.
///
/// It keeps memory for the calling thread: include/swamp/README.md.
///
/// @param gradient of out: [batch, heads, queries, value columns]
/// @param q as in the forward call
/// @param k as in the forward call
/// @param v as in the forward call
/// @param out as attention() returned it
/// @param lse as attention() returned it. If k and v are a part of the keys
///   (ring attention), the lse and out of all keys give the part of dq
///   and its dk and dv; then the log that lse has lost is not computed again.
/// @param[out] dq of the shape of q
/// @param[out] dk of the shape of k
/// @param[out] dv of the shape of v
/// @param options as in the forward call
/// @param machine where to run; null: the default machine
SWAMP_API void attention_backward(const Heads& gradient, const Heads& q,
                                  const Heads& k, const Heads& v,
                                  const Heads& out, const float* lse,
                                  const Heads& dq, const Heads& dk,
                                  const Heads& dv,
                                  const AttentionOptions& options = {},
                                  Machine* machine = nullptr);

}  // namespace swamp

#endif  // SWAMP_ATTENTION_H_
