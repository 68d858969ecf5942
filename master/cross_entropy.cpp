// Cross entropy of rows of logits, and its gradient. If the classes are divided
// between ranks, the slaves give the parts of each row's sums, which this file
// combines over the ranks, and from which it computes the loss. The z-loss of
// routers is the same of rows without targets.
#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "master/row_launch.h"
#include "master/text.h"
#include "swamp/float_formats.h"
#include "swamp/moe.h"

namespace swamp {

using master::Workspace;
using slave::CrossEntropyArgs;
using slave::CrossEntropyParts;
using slave::CrossEntropyRow;

namespace {

struct Call {
  const VocabularyPart& part;
  const Matrix& logits;
  const std::int64_t* targets;
  const CrossEntropyOptions& options;
  Machine::Impl& machine;
  CrossEntropyArgs args;

  bool ignored(std::size_t i) const {
    return targets[i] == options.ignore_index;
  }
  float target_weight(std::size_t i) const {
    if (options.class_weights == nullptr || ignored(i)) return 1;
    return options.class_weights[targets[i] - part.first];
  }
};

// make_call() validates the arguments that all functions have.
Call make_call(const VocabularyPart& part, const Matrix& logits,
               const std::int64_t* targets, const CrossEntropyOptions& options,
               Machine* machine) {
  master::require_matrix("logits", logits);
  master::require_array("targets", targets, sizeof *targets, logits.rows);
  const double smoothing = options.label_smoothing;
  if (!(smoothing >= 0 && smoothing <= 1)) {
    master::refuse("options.label_smoothing", std::to_string(smoothing),
                   "a number from 0 to 1");
  }
  if (part.first < 0 || part.classes < logits.columns ||
      static_cast<std::size_t>(part.first) > part.classes - logits.columns) {
    const std::string first = std::to_string(part.first);
    master::refuse("part",
                   "classes " + first + " to " + first + " + " +
                       std::to_string(logits.columns) + " of " +
                       std::to_string(part.classes),
                   "classes that exist");
  }
  for (std::size_t i = 0; i < logits.rows; ++i) {
    const std::int64_t target = targets[i];
    if (target == options.ignore_index) continue;
    if (target >= 0 && static_cast<std::size_t>(target) < part.classes) {
      continue;
    }
    master::refuse("targets[" + std::to_string(i) + "]", std::to_string(target),
                   "a class from 0 to " + std::to_string(part.classes) +
                       " - 1, or ignore_index " +
                       std::to_string(options.ignore_index));
  }
  CrossEntropyArgs args{};
  args.columns = logits.columns;
  args.first_class = part.first;
  args.ignore_index = options.ignore_index;
  args.z_loss = options.z_loss;
  auto classes = static_cast<double>(part.classes);
  double factor = smoothing;
  if (options.megatron_smoothing && smoothing != 0) {
    classes = static_cast<double>(logits.columns);
    factor = smoothing * classes / (classes - 1);
  }
  args.confidence = 1 - factor;
  args.uniform = factor / classes;
  args.weight_sum = classes;
  if (options.class_weights != nullptr) {
    args.weight_sum = 0;
    for (std::size_t c = 0; c < logits.columns; ++c) {
      args.weight_sum += static_cast<double>(options.class_weights[c]);
    }
  }
  return {part, logits, targets, options, master::impl_of(machine), args};
}

void refuse_class_weights(const CrossEntropyOptions& options) {
  if (options.class_weights == nullptr) return;
  master::refuse("options.class_weights", "an array",
                 "null with a vocabulary that is split between ranks",
                 SWAMP_UNSUPPORTED);
}

CrossEntropyTotal total_of(const Call& call, const float* losses) {
  CrossEntropyTotal total;
  for (std::size_t i = 0; i < call.logits.rows; ++i) {
    if (call.ignored(i)) continue;
    total.loss += static_cast<double>(losses[i]);
    total.weight += static_cast<double>(call.target_weight(i));
  }
  return total;
}

// require_rows() checks the arrays of one value for each row.
void require_rows(const Matrix& logits, const float* losses,
                  const char* losses_name, const float* lse,
                  const float* lse_low) {
  master::require_array(losses_name, losses, sizeof *losses, logits.rows);
  master::require_array("lse", lse, sizeof *lse, logits.rows);
  if (lse_low == nullptr) return;
  master::require_array("lse_low", lse_low, sizeof *lse_low, logits.rows);
}

// run_forward() computes `first`, the losses or parts, and, if not null, lse
// and lse_low of all rows.
void run_forward(const Call& call, const CrossEntropyArgs& args, void* first,
                 std::size_t first_bytes, float* lse, float* lse_low) {
  const Matrix& x = call.logits;
  using At = slave::CrossEntropyOperand;
  Operation operation(master::row_kernel<KernelFamily::cross_entropy>(x.dtype),
                      &args, x.columns);
  if (call.options.class_weights == nullptr) {
    operation.remove_operand(At::weight);
  }
  if (call.targets == nullptr) operation.remove_operand(At::target);
  operation.set_unit_bytes(At::loss, first_bytes);
  if (lse == nullptr) operation.remove_operand(At::high);
  if (lse_low == nullptr) operation.remove_operand(At::low);
  master::run_rows(
      call.machine, "logits", x, operation,
      {x.data, call.targets, call.options.class_weights, first, lse, lse_low});
}

// The gradient of row i is gradients[i * gradient_step].
void backward(const Call& call, const float* lse, const float* lse_low,
              const float* gradients, std::size_t gradient_step,
              const Matrix& dx) {
  const Matrix& x = call.logits;
  require_rows(x, gradients, "gradients", lse, lse_low);
  master::require_like("dx", dx, "logits", x);
  if (x.rows == 0 || x.columns == 0) return;
  auto* const rows =
      Workspace::of_this_thread().row_values<CrossEntropyRow>(x.rows);
  for (std::size_t i = 0; i < x.rows; ++i) {
    rows[i] = {{lse[i], lse_low == nullptr ? 0 : lse_low[i]},
               gradients[i * gradient_step],
               call.target_weight(i)};
  }
  Operation operation(
      master::row_kernel<KernelFamily::cross_entropy_backward>(x.dtype),
      &call.args, x.columns);
  if (call.options.class_weights == nullptr) {
    operation.remove_operand(slave::CrossEntropyBackwardOperand::weight);
  }
  if (call.targets == nullptr) {
    operation.remove_operand(slave::CrossEntropyBackwardOperand::target);
  }
  master::run_rows(
      call.machine, "logits", x, operation,
      {x.data, call.targets, rows, call.options.class_weights, dx.data});
}

}  // namespace

CrossEntropyTotal cross_entropy(const Matrix& logits,
                                const std::int64_t* targets, float* losses,
                                float* lse, float* lse_low,
                                const CrossEntropyOptions& options,
                                Machine* machine) {
  const VocabularyPart all{0, logits.columns};
  const Call call = make_call(all, logits, targets, options, machine);
  require_rows(logits, losses, "losses", lse, lse_low);
  if (logits.rows == 0) return {};
  if (logits.columns == 0) {  // without classes, every row is ignored
    std::fill(losses, losses + logits.rows, 0.0f);
    std::fill(lse, lse + logits.rows, -std::numeric_limits<float>::infinity());
    if (lse_low != nullptr) std::fill(lse_low, lse_low + logits.rows, 0.0f);
    return {};
  }
  run_forward(call, call.args, losses, sizeof *losses, lse, lse_low);
  return total_of(call, losses);
}

CrossEntropyTotal vocab_parallel_cross_entropy(
    Communicator& ranks, const VocabularyPart& part, const Matrix& logits,
    const std::int64_t* targets, float* losses, float* lse, float* lse_low,
    const CrossEntropyOptions& options, Machine* machine) {
  refuse_class_weights(options);
  const Call call = make_call(part, logits, targets, options, machine);
  require_rows(logits, losses, "losses", lse, lse_low);
  std::vector<CrossEntropyParts> mine(logits.rows);
  if (logits.columns == 0) {  // a rank without classes adds nothing
    std::fill(mine.begin(), mine.end(),
              slave::combine_chunks(
                  static_cast<const slave::CrossEntropyChunk*>(nullptr), 0));
  } else if (logits.rows != 0) {
    CrossEntropyArgs args = call.args;
    args.gives_parts = 1;
    run_forward(call, args, mine.data(), sizeof mine[0], nullptr, nullptr);
  }
  const auto size = static_cast<std::size_t>(ranks.size());
  constexpr float lowest = -std::numeric_limits<float>::infinity();
  std::vector<CrossEntropyParts> all(size * logits.rows);
  ranks.all_gather(mine.data(), mine.size() * sizeof mine[0], all.data());
  for (std::size_t i = 0; i < logits.rows; ++i) {
    CrossEntropyParts sum = all[i];
    for (std::size_t r = 1; r < size; ++r) {
      const CrossEntropyParts& other = all[r * logits.rows + i];
      if (sum.max == sum.max && !(other.max <= sum.max)) sum.max = other.max;
    }
    sum.sum = sum.sum_x = 0;
    sum.target_x = 0;
    const float shift = slave::chunk_shift(sum.max);
    for (std::size_t r = 0; r < size; ++r) {
      const CrossEntropyParts& one = all[r * logits.rows + i];
      // A rank of nothing but -inf adds nothing; its own sum is nan.
      if (!(one.max == lowest && sum.max > lowest)) {
        sum.sum += one.sum * static_cast<double>(
                                 slave::exp_nonpositive(one.max - sum.max));
      }
      sum.sum_x += one.sum_x_from(shift);
      sum.target_x += one.target_x;
    }
    // Megatron-LM smooths over the rank's own classes only.
    if (options.megatron_smoothing) sum.sum_x = mine[i].sum_x_from(shift);
    const double log_sum = slave::log_positive(sum.sum);
    const slave::LogSumExp total = slave::log_sum_exp(sum.max, log_sum);
    lse[i] = total.high;
    if (lse_low != nullptr) lse_low[i] = total.low;
    losses[i] = call.ignored(i)
                    ? 0.0f
                    : slave::cross_entropy_loss(call.args, sum, log_sum, 1);
  }
  return total_of(call, losses);
}

void vocab_parallel_cross_entropy_backward(
    const VocabularyPart& part, const Matrix& logits,
    const std::int64_t* targets, const float* lse, const float* lse_low,
    const float* gradients, const Matrix& dx,
    const CrossEntropyOptions& options, Machine* machine) {
  if (part.classes != logits.columns) refuse_class_weights(options);
  backward(make_call(part, logits, targets, options, machine), lse, lse_low,
           gradients, 1, dx);
}

void cross_entropy_backward(const Matrix& logits, const std::int64_t* targets,
                            const float* lse, const float* lse_low,
                            const float* gradients, const Matrix& dx,
                            const CrossEntropyOptions& options,
                            Machine* machine) {
  const VocabularyPart all{0, logits.columns};
  backward(make_call(all, logits, targets, options, machine), lse, lse_low,
           gradients, 1, dx);
}

double moe_z_loss(const Matrix& logits, double coefficient, float* lse,
                  float* lse_low, Machine* machine) {
  master::require_matrix("logits", logits);
  require_rows(logits, lse, "lse", lse, lse_low);
  if (logits.columns == 0) {
    std::fill(lse, lse + logits.rows, -std::numeric_limits<float>::infinity());
    if (lse_low != nullptr) std::fill(lse_low, lse_low + logits.rows, 0.0f);
  } else if (logits.rows != 0) {
    const CrossEntropyOptions options;
    CrossEntropyArgs args{};
    args.columns = logits.columns;
    const VocabularyPart all{0, logits.columns};
    const Call call{all, logits, nullptr, options, master::impl_of(machine),
                    args};
    run_forward(call, args, nullptr, 0, lse, lse_low);
  }
  double sum = 0;
  for (std::size_t i = 0; i < logits.rows; ++i) {
    double one = static_cast<double>(lse[i]);
    if (lse_low != nullptr) one += static_cast<double>(lse_low[i]);
    sum += one * one;
  }
  return coefficient * (sum / static_cast<double>(logits.rows));
}

void moe_z_loss_backward(double gradient, const Matrix& logits,
                         double coefficient, const float* lse,
                         const float* lse_low, const Matrix& dx,
                         Machine* machine) {
  master::require_matrix("logits", logits);
  const CrossEntropyOptions options;
  CrossEntropyArgs args{};
  args.columns = logits.columns;
  args.z_loss = 1;
  const VocabularyPart all{0, logits.columns};
  const Call call{all, logits, nullptr, options, master::impl_of(machine),
                  args};
  const auto factor = static_cast<float>(gradient * coefficient /
                                         static_cast<double>(logits.rows));
  backward(call, lse, lse_low, &factor, 0, dx);
}

}  // namespace swamp
