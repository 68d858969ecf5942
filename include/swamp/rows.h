/// @file
/// Row operators of 16-bit models: softmax, cross entropy, normalization and
/// residual connections, with float32 arithmetic inside and one rounding at the
/// end. Every slave computes whole rows, or, if a row does not fit into LDM,
/// pieces of a row; the results have the same bits on every machine.
///
/// Common to all functions: a Machine of null is the default machine. Matrices
/// are float16, bfloat16 or float32; those of one call have the same dtype
/// unless a function states otherwise. Data must be aligned to its element.
/// Matrices must not overlap, except that an output may be the same matrix as
/// an input (in place) if its description allows that. Everything is checked
/// before the first write. Any thread may call, also several at once on one
/// machine. Error is thrown for bad arguments, and with SWAMP_UNSUPPORTED if
/// the machine's LDM is too small for the operator. The formulas are in
/// slave/row_args.h.
#ifndef SWAMP_ROWS_H_
#define SWAMP_ROWS_H_

#include <cstddef>
#include <cstdint>

#include "swamp/communicator.h"
#include "swamp/export.h"
#include "swamp/machine.h"
#include "swamp/tensor.h"

namespace swamp {

/// Matrix is {data, rows, columns, dtype}: `rows` rows of `columns` elements,
/// one after another. The caller owns the memory.
using Matrix = swamp_matrix;

/// SoftmaxMask marks the scores that do not count: a score becomes -10000 if
/// its byte of the mask is not 0. The scores are [b, heads, query_rows,
/// columns]; the mask is [batches, query_rows, columns] bytes, the same for all
/// heads.
struct SoftmaxMask {
  const std::uint8_t* data = nullptr;  ///< null: nothing is masked
  std::size_t batches = 1;             ///< b, or 1: the same mask for all
  std::size_t heads = 1;               ///< heads of a batch
  std::size_t query_rows = 0;          ///< rows of a head
};

/// SoftmaxOptions selects one of Megatron-LM's fused softmax operators.
struct SoftmaxOptions {
  float scale = 1;           ///< factor of the scores
  bool round_scale = false;  ///< rounds scale to dtype first, as apex does
  /// If not 0, only the first i % causal_rows + 1 columns of row i count, and
  /// y is 0 in the others.
  std::size_t causal_rows = 0;
  SoftmaxMask mask;  ///< not together with causal_rows
  /// A row whose scores are all masked becomes 0, as in apex; otherwise it is
  /// uniform, as in Megatron-LM without apex.
  bool zero_masked_rows = true;
};

/// scaled_softmax sets each row of y to softmax(scale * x). A row that contains
/// nan or +inf, or nothing but -inf, becomes nan.
///
/// @param x the scores
/// @param y as many rows and columns; may be x
/// @param options scale, mask and causal_rows
/// @param machine where to run; null: the default machine
SWAMP_API void scaled_softmax(const Matrix& x, const Matrix& y,
                              const SoftmaxOptions& options = {},
                              Machine* machine = nullptr);

/// scaled_softmax_backward sets each row of dx to
/// scale * (gradient * y - y * sum(gradient * y)).
///
/// @param gradient of y
/// @param y as scaled_softmax() returned it
/// @param dx as many rows and columns; may be gradient or y
/// @param options scale and causal_rows, as in the forward call; the others are
///   not used
/// @param machine where to run; null: the default machine
SWAMP_API void scaled_softmax_backward(const Matrix& gradient, const Matrix& y,
                                       const Matrix& dx,
                                       const SoftmaxOptions& options = {},
                                       Machine* machine = nullptr);

/// The options of torch.nn.functional.cross_entropy, and the z-loss of PaLM.
struct CrossEntropyOptions {
  std::int64_t ignore_index = -100;      ///< rows with this target do not count
  double label_smoothing = 0;            ///< in [0, 1]
  const float* class_weights = nullptr;  ///< one for each class; null: all 1
  double z_loss = 0;                     ///< adds z_loss * lse^2 to each loss
  /// Only with ranks: smooths as Megatron-LM does, over the K classes of each
  /// rank alone and by label_smoothing * K / (K - 1).
  bool megatron_smoothing = false;
};

/// CrossEntropyTotal has the sums over the rows that count, in their order. The
/// mean loss is loss / weight.
struct CrossEntropyTotal {
  double loss = 0;  ///< sum of the losses
  /// Sum of the weights of the targets; without weights, the number of rows.
  double weight = 0;
};

/// cross_entropy computes the loss of each row of logits.
///
/// The log of the sum of the exponentials, which backward needs, is two float32
/// numbers a row: lse, and what its rounding to float32 lost. lse alone has a
/// relative error of 2^-24, which is an error of 2^-24 * |lse| of each
/// probability: 6e-6 at logits of 100, and of logits of 1e7 nothing is right.
///
/// @param logits a row for each target, a column for each class; only read
/// @param targets a class or options.ignore_index for each row
/// @param[out] losses float32, one per row; 0 if the row is ignored
/// @param[out] lse float32, one per row: log(sum of exp(logits)), for backward
/// @param[out] lse_low float32, one per row: the exact log minus lse, for
///   backward; null: not computed
/// @param options ignore_index, label smoothing, class weights and z-loss
/// @param machine where to run; null: the default machine
/// @return the sums of the losses and of the weights of the rows that count
SWAMP_API CrossEntropyTotal cross_entropy(
    const Matrix& logits, const std::int64_t* targets, float* losses,
    float* lse, float* lse_low, const CrossEntropyOptions& options = {},
    Machine* machine = nullptr);

/// cross_entropy_backward computes the gradient of the logits. It multiplies by
/// the gradients of the losses, which include the loss scale, in float32, and
/// then rounds once to dtype.
///
/// @param logits as in the forward call
/// @param targets as in the forward call
/// @param lse as cross_entropy() returned it
/// @param lse_low as cross_entropy() returned it; null: 0
/// @param gradients float32, of each row's loss: for the mean loss, each is
///   the gradient of the mean divided by CrossEntropyTotal::weight
/// @param[out] dx as many rows and columns as logits; may be logits
/// @param options as in the forward call
/// @param machine where to run; null: the default machine
SWAMP_API void cross_entropy_backward(const Matrix& logits,
                                      const std::int64_t* targets,
                                      const float* lse, const float* lse_low,
                                      const float* gradients, const Matrix& dx,
                                      const CrossEntropyOptions& options = {},
                                      Machine* machine = nullptr);

/// log_softmax sets each row of y to x - log(sum of exp(x)), with one rounding
/// to dtype. The log is kept as two float32 numbers, so y is right for any x.
///
/// @param x the scores
/// @param y as many rows and columns; may be x
/// @param machine where to run; null: the default machine
SWAMP_API void log_softmax(const Matrix& x, const Matrix& y,
                           Machine* machine = nullptr);

/// log_softmax_backward sets each row of dx to
/// gradient - exp(y) * sum(gradient).
///
/// @param gradient of y
/// @param y as log_softmax() returned it
/// @param dx as many rows and columns; may be gradient or y
/// @param machine where to run; null: the default machine
SWAMP_API void log_softmax_backward(const Matrix& gradient, const Matrix& y,
                                    const Matrix& dx,
                                    Machine* machine = nullptr);

/// VocabularyPart is a rank's part of the classes: the columns of its logits
/// are the classes [first, first + logits.columns).
struct VocabularyPart {
  std::int64_t first = 0;   ///< class of column 0
  std::size_t classes = 0;  ///< number of classes of all ranks together
};

/// vocab_parallel_cross_entropy is cross_entropy() for classes that are split
/// between the ranks of `ranks`. Collective: one all-gather of 32 bytes per
/// row. Every rank gets the losses of all rows, with the same bits.
/// class_weights must be null (SWAMP_UNSUPPORTED).
SWAMP_API CrossEntropyTotal vocab_parallel_cross_entropy(
    Communicator& ranks, const VocabularyPart& part, const Matrix& logits,
    const std::int64_t* targets, float* losses, float* lse, float* lse_low,
    const CrossEntropyOptions& options = {}, Machine* machine = nullptr);

/// vocab_parallel_cross_entropy_backward computes the gradient of a rank's
/// logits; see cross_entropy_backward(). Not collective. class_weights must be
/// null (SWAMP_UNSUPPORTED), unless the rank has all classes.
SWAMP_API void vocab_parallel_cross_entropy_backward(
    const VocabularyPart& part, const Matrix& logits,
    const std::int64_t* targets, const float* lse, const float* lse_low,
    const float* gradients, const Matrix& dx,
    const CrossEntropyOptions& options = {}, Machine* machine = nullptr);

/// RowVector is {data, dtype}: one value for each column of a matrix. It is
/// absent if data is null. Its dtype is float32 or the matrix's.
using RowVector = swamp_row_vector;

/// The options of layer_norm() and rms_norm().
struct NormOptions {
  double eps = 1e-5;                  ///< added to the variance or mean square
  bool zero_centered_weight = false;  ///< 1 is added to the weight
};

/// layer_norm sets each row of y to (x - mean) * rstd * weight + bias, rounded
/// once to dtype. The statistics are float32, from sums in double.
///
/// @param x the input
/// @param weight 1 if absent
/// @param bias 0 if absent; of the same dtype as weight if both are present
/// @param[out] y as many rows and columns; may be x
/// @param[out] mean float32, one per row
/// @param[out] rstd float32, one per row: 1 / sqrt(variance + eps)
/// @param options eps and zero_centered_weight
/// @param machine where to run; null: the default machine
SWAMP_API void layer_norm(const Matrix& x, const RowVector& weight,
                          const RowVector& bias, const Matrix& y, float* mean,
                          float* rstd, const NormOptions& options = {},
                          Machine* machine = nullptr);

/// layer_norm_backward computes the gradients. Those of weight and bias are
/// summed over the rows in double, in an order that depends on the shape alone,
/// and rounded once.
///
/// @param gradient of y
/// @param x as in the forward call
/// @param mean as layer_norm() returned it
/// @param rstd as layer_norm() returned it
/// @param weight as in the forward call
/// @param[out] dx may be gradient or x; not computed if its data is null
/// @param[out] dweight float32, one per column; null: not computed
/// @param[out] dbias float32, one per column; null: not computed
/// @param options as in the forward call
/// @param machine where to run; null: the default machine
SWAMP_API void layer_norm_backward(const Matrix& gradient, const Matrix& x,
                                   const float* mean, const float* rstd,
                                   const RowVector& weight, const Matrix& dx,
                                   float* dweight, float* dbias,
                                   const NormOptions& options = {},
                                   Machine* machine = nullptr);

/// rms_norm sets each row of y to x * rstd * weight; see layer_norm().
///
/// @param x the input
/// @param weight 1 if absent
/// @param[out] y as many rows and columns; may be x
/// @param[out] rstd float32, one per row: 1 / sqrt(mean of the squares + eps)
/// @param options eps and zero_centered_weight
/// @param machine where to run; null: the default machine
SWAMP_API void rms_norm(const Matrix& x, const RowVector& weight,
                        const Matrix& y, float* rstd,
                        const NormOptions& options = {},
                        Machine* machine = nullptr);

/// rms_norm_backward computes the gradients; see layer_norm_backward().
SWAMP_API void rms_norm_backward(const Matrix& gradient, const Matrix& x,
                                 const float* rstd, const RowVector& weight,
                                 const Matrix& dx, float* dweight,
                                 const NormOptions& options = {},
                                 Machine* machine = nullptr);

/// residual_add_ adds x + bias to a residual stream in float32: the residual
/// connection of Megatron-LM's --fp32-residual-connection.
///
/// @param[in,out] residual float32
/// @param x as many rows and columns, of any of the three dtypes
/// @param bias 0 if absent
/// @param machine where to run; null: the default machine
SWAMP_API void residual_add_(const Matrix& residual, const Matrix& x,
                             const RowVector& bias = {nullptr, kFloat32},
                             Machine* machine = nullptr);

}  // namespace swamp

#endif  // SWAMP_ROWS_H_
