/// @file
/// Operators of mixtures of experts: tokens by expert, positions and capacity,
/// permutation of the tokens by expert, and the router's losses. Integers are
/// those of Megatron-LM and MindFormers; if those leave an order open, it is
/// stated here. Sums are float32 in the order of the experts, with one rounding
/// at the end. Results have the same bits on every machine.
///
/// Common to all functions: see rows.h. The choices of a call have at most
/// 2^31 - 1 entries.
#ifndef SWAMP_MOE_H_
#define SWAMP_MOE_H_

#include <cstddef>
#include <cstdint>

#include "swamp/export.h"
#include "swamp/machine.h"
#include "swamp/rows.h"

namespace swamp {

/// ExpertChoices are the experts that the tokens chose, as an array of expert
/// numbers (-1: none), or as a routing map: a byte for each pair of a token and
/// an expert, not 0 if the token chose the expert. The caller owns the memory.
///
/// The order of the entries is their priority if experts are full. Numbers
/// [tokens, choices] give a token's choices the same priority (Megatron-LM,
/// MindFormers' "sdrop"), numbers [choices, tokens] give all first choices
/// priority over all second ones (MindFormers' TopkRouter and "kdrop").
struct ExpertChoices {
  /// Kind is the type of the entries.
  enum Kind : std::uint32_t { kInt32, kInt64, kMap };
  const void* data = nullptr;  ///< the entries
  Kind kind = kInt32;          ///< their type
  std::size_t count = 0;       ///< numbers; of a map, tokens
  std::size_t experts = 0;     ///< at least 1
};

/// moe_histogram counts the tokens of each expert. MindFormers'
/// `save_token_distribution` does not count the last token of a group: pass one
/// token fewer for its counts.
///
/// @param choices whose entries are counted
/// @param[out] counts one an expert
/// @param machine where to run; null: the default machine
SWAMP_API void moe_histogram(const ExpertChoices& choices, std::int64_t* counts,
                             Machine* machine = nullptr);

/// moe_positions computes the position of each entry within its expert: the
/// number of earlier entries of the expert, or -1 if the entry is none or that
/// number is not below the capacity. MindFormers' TopkRouterV2 counts from 1
/// and has 0 for dropped tokens: position + 1.
///
/// @param choices the entries, in order of priority
/// @param capacity the most tokens of an expert; negative: no limit
/// @param[out] positions one an entry
/// @param machine where to run; null: the default machine
SWAMP_API void moe_positions(const ExpertChoices& choices,
                             std::int64_t capacity, std::int32_t* positions,
                             Machine* machine = nullptr);

/// DropPolicy is which tokens an expert keeps that has more than its capacity.
enum class DropPolicy : std::uint32_t {
  probs,    ///< those of the highest probability, of equal ones the lowest
  position  ///< the lowest
};

/// The options of moe_apply_capacity().
struct CapacityOptions {
  std::int64_t capacity = 0;              ///< at least 0
  DropPolicy policy = DropPolicy::probs;  ///< which tokens are kept
  bool pad = false;  ///< each expert gets exactly `capacity` tokens
};

/// moe_apply_capacity limits a routing map to a capacity, as Megatron-LM's
/// apply_router_token_dropping does. Nothing is dropped if the capacity is
/// above the number of tokens. With `pad`, tokens that did not choose an expert
/// fill it: with the policy `probs` by their probability as well, which is 0
/// for them; with `position` the lowest. If the capacity is above the number of
/// tokens, they all do. The policy `probs` runs on the calling thread.
///
/// @param probs [tokens, experts], nan is the highest; not read for `position`
/// @param map [tokens, experts] bytes
/// @param options the capacity and the policy
/// @param[out] kept as many bytes as map, 0 or 1; may be map
/// @param machine where to run; null: the default machine
SWAMP_API void moe_apply_capacity(const Matrix& probs, const std::uint8_t* map,
                                  const CapacityOptions& options,
                                  std::uint8_t* kept,
                                  Machine* machine = nullptr);

/// moe_permutation sorts the entries that have a position by expert and
/// position. Row r of the permuted tokens then belongs to entry entries[r].
///
/// @param choices the entries
/// @param positions as moe_positions() computed them for these choices
/// @param rows_per_expert 0: the experts' rows follow one another; otherwise
///   each expert has that many rows, and rows without a token are -1
/// @param rows number of elements of `entries`; those that are not used are
///   set to -1
/// @param[out] entries the index of an entry, or -1
/// @return the number of rows used
SWAMP_API std::size_t moe_permutation(const ExpertChoices& choices,
                                      const std::int32_t* positions,
                                      std::size_t rows_per_expert,
                                      std::size_t rows, std::int64_t* entries);

/// moe_permute copies tokens: row r of `permuted` is token token_of[r], times
/// probs[r] if there are probabilities; it is 0 if token_of[r] is -1. This is
/// also the gradient of moe_unpermute().
///
/// @param tokens [tokens, columns]
/// @param token_of the token of each row of `permuted`, or -1
/// @param probs float32, one a row of `permuted`; null: all 1
/// @param[out] permuted of the same columns and dtype
/// @param machine where to run; null: the default machine
SWAMP_API void moe_permute(const Matrix& tokens, const std::int64_t* token_of,
                           const float* probs, const Matrix& permuted,
                           Machine* machine = nullptr);

/// moe_unpermute adds the rows of each token, times probs[r] if there are
/// probabilities, in the order of the rows, which is the experts' order. A
/// token without rows is 0. This is also the gradient of moe_permute().
///
/// @param permuted a row for each entry of token_of
/// @param token_of as of moe_permute()
/// @param probs float32, one a row of `permuted`; null: all 1
/// @param[out] tokens of the same columns and dtype
/// @param machine where to run; null: the default machine
SWAMP_API void moe_unpermute(const Matrix& permuted,
                             const std::int64_t* token_of, const float* probs,
                             const Matrix& tokens, Machine* machine = nullptr);

/// moe_add adds its rows to each token, in their order: PyTorch's index_add().
/// Of 16 bits the sum is float32, rounded once.
///
/// @param tokens [tokens, columns]
/// @param token_of the token of each row of `permuted`, or -1
/// @param permuted of the same columns and dtype
/// @param[out] sums like tokens
/// @param machine where to run; null: the default machine
SWAMP_API void moe_add(const Matrix& tokens, const std::int64_t* token_of,
                       const Matrix& permuted, const Matrix& sums,
                       Machine* machine = nullptr);

/// moe_dot computes the gradients of the probabilities: the products of row r
/// of `permuted` and token token_of[r], summed.
///
/// @param tokens the gradient of moe_unpermute()'s result, or the tokens
/// @param token_of as of moe_permute()
/// @param permuted the permuted tokens, or the gradient of moe_permute()'s
/// @param[out] products float32, one a row; 0 if token_of[r] is -1
/// @param machine where to run; null: the default machine
SWAMP_API void moe_dot(const Matrix& tokens, const std::int64_t* token_of,
                       const Matrix& permuted, float* products,
                       Machine* machine = nullptr);

/// The options of moe_aux_loss().
struct AuxLossOptions {
  double coefficient = 1;   ///< factor of the loss
  std::size_t tokens = 0;   ///< T: those that `counts` counts; 0: probs.rows
  std::size_t choices = 1;  ///< k: experts of a token
};

/// moe_aux_loss computes the load-balancing loss of Switch Transformer, as
/// Megatron-LM does: coefficient * E / (k * T^2) * sum over the experts of
/// (sum of its probabilities) * (its tokens). The sums of the probabilities are
/// float64, rounded to float32.
///
/// @param probs [tokens, experts], all probabilities of the router
/// @param counts the tokens of each expert
/// @param options the coefficient, k and T
/// @param machine where to run; null: the default machine
/// @return the loss
SWAMP_API double moe_aux_loss(const Matrix& probs, const std::int64_t* counts,
                              const AuxLossOptions& options = {},
                              Machine* machine = nullptr);

/// moe_aux_loss_backward computes the gradient of the probabilities.
///
/// @param gradient of the loss
/// @param counts as in the forward call
/// @param dprobs as many rows and columns as probs
/// @param options as in the forward call
/// @param machine where to run; null: the default machine
SWAMP_API void moe_aux_loss_backward(double gradient,
                                     const std::int64_t* counts,
                                     const Matrix& dprobs,
                                     const AuxLossOptions& options = {},
                                     Machine* machine = nullptr);

/// moe_z_loss computes coefficient * mean(lse^2), with lse = log(sum of
/// exp(logits)) of each token.
///
/// @param logits [tokens, experts]
/// @param coefficient factor of the loss
/// @param[out] lse float32, one a token, for backward
/// @param[out] lse_low float32, one a token, for backward: the exact log minus
///   lse; null: not computed. See cross_entropy().
/// @param machine where to run; null: the default machine
/// @return the loss; nan without tokens, inf of tokens without experts
SWAMP_API double moe_z_loss(const Matrix& logits, double coefficient,
                            float* lse, float* lse_low,
                            Machine* machine = nullptr);

/// moe_z_loss_backward computes the gradient of the logits.
///
/// @param gradient of the loss
/// @param logits as in the forward call
/// @param coefficient as in the forward call
/// @param lse as moe_z_loss() returned it
/// @param lse_low as moe_z_loss() returned it; null: 0
/// @param[out] dx as many rows and columns as logits; may be logits
/// @param machine where to run; null: the default machine
SWAMP_API void moe_z_loss_backward(double gradient, const Matrix& logits,
                                   double coefficient, const float* lse,
                                   const float* lse_low, const Matrix& dx,
                                   Machine* machine = nullptr);

}  // namespace swamp

#endif  // SWAMP_MOE_H_
