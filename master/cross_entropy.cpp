// Cross entropy of rows of logits, and its gradient. Rows that fit into LDM
// take one launch. Of a longer row, or of classes that are divided between
// ranks, Pass::sum gives the parts of the softmax's sum, which this file
// combines, over the ranks too, and from which it computes the loss. The
// gradient needs only the LogSumExp of the row, so its Pass::map takes any
// piece of it.
#include <algorithm>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "master/row_launch.h"
#include "master/text.h"
#include "swamp/float_formats.h"

namespace swamp {

using master::row_of;
using master::RowTable;
using master::Workspace;
using slave::CrossEntropyArgs;
using slave::CrossEntropyChunk;
using slave::CrossEntropyParts;
using slave::CrossEntropyRow;
using slave::kChunkColumns;

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
  // target_logit() returns x_t of row i, or 0 if the target is a class of
  // another rank.
  float target_logit(std::size_t i) const {
    const std::int64_t column = targets[i] - part.first;
    if (ignored(i) || column < 0 ||
        static_cast<std::size_t>(column) >= logits.columns) {
      return 0;
    }
    const std::byte* at = row_of(logits, i, static_cast<std::size_t>(column));
    if (logits.dtype == kFloat32) {
      float value;
      std::memcpy(&value, at, sizeof value);
      return value;
    }
    std::uint16_t bits;
    std::memcpy(&bits, at, sizeof bits);
    return logits.dtype == kFloat16 ? float16_to_float(bits)
                                    : bfloat16_to_float(bits);
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
  args.target_bytes = sizeof *targets;
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

// finish() sets the loss, lse and lse_low of row i.
void finish(const Call& call, std::size_t i, const CrossEntropyParts& parts,
            float* losses, float* lse, float* lse_low) {
  const double log_sum = slave::log_positive(parts.sum);
  const slave::LogSumExp total = slave::log_sum_exp(parts.max, log_sum);
  lse[i] = total.high;
  if (lse_low != nullptr) lse_low[i] = total.low;
  losses[i] = call.ignored(i)
                  ? 0.0f
                  : slave::cross_entropy_loss(call.args, parts, log_sum,
                                              call.target_weight(i));
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

// row_operation() is an operation of whole rows, or a pass on columns.
template <KernelFamily kFamily, int kOperands, class Units>
Operation row_operation(const Call& call, Units units, int weight) {
  Operation operation(master::row_kernel<kFamily, kOperands>(call.logits.dtype),
                      &call.args, units);
  if (call.options.class_weights == nullptr) operation.remove_operand(weight);
  return operation;
}

// forward_operation() is the same of the forward kernel.
template <class Units>
Operation forward_operation(const Call& call, Units units,
                            const float* lse_low) {
  Operation operation =
      row_operation<KernelFamily::cross_entropy, 6>(call, units, 2);
  if (lse_low == nullptr) operation.remove_operand(5);
  return operation;
}

// add_weighted_sums() sets sum_x and weight of all chunks, for which each chunk
// is read again: its maximum must be known, and a chunk of both x and the
// weights in float32 would not fit into a small LDM.
void add_weighted_sums(const Call& call,
                       std::vector<CrossEntropyChunk>& chunks) {
  const Matrix& x = call.logits;
  Operation sum = forward_operation(call, Pass::sum, nullptr);
  sum.tile_step = slave::kChains;
  const std::size_t row_chunks = master::chunks_of(x.columns);
  const auto add = [&](RowTable& table, std::size_t i) {
    for (std::size_t c = 0; c < row_chunks; ++c) {
      const std::size_t begin = c * kChunkColumns;
      table.add(
          std::min(kChunkColumns, x.columns - begin),
          {row_of(x, i, begin), &chunks[i * row_chunks + c].exp,
           call.options.class_weights + begin, nullptr, nullptr, nullptr});
    }
  };
  const auto* sums = master::sum_columns<slave::CrossEntropySums>(
      call.machine, "logits", x, sum, add, row_chunks);
  for (std::size_t c = 0; c < chunks.size(); ++c) {
    chunks[c].sum_x = sums[c].x.total();
    chunks[c].weight = sums[c].weight.total();
  }
}

// run_chunks() computes the parts of each row by a pass on its columns, and
// calls visit(i, parts).
template <class Visit>
void run_chunks(const Call& call, Visit visit) {
  const Matrix& x = call.logits;
  Operation sum = forward_operation(call, Pass::sum, nullptr);
  sum.remove_operand(1);
  sum.remove_operand(2);
  sum.tile_step = master::chunk_step(x.columns);
  const std::size_t chunks = master::chunks_of(x.columns);
  const auto* partials = master::sum_columns<CrossEntropyChunk>(
      call.machine, "logits", x, sum, [&](RowTable& table, std::size_t i) {
        table.add(x.columns,
                  {row_of(x, i), nullptr, nullptr, nullptr, nullptr, nullptr});
      });
  std::vector<CrossEntropyChunk> kept;
  // Only smoothing needs the weights of all classes.
  if (call.args.uniform != 0 && call.options.class_weights != nullptr) {
    kept.assign(partials, partials + x.rows * chunks);
    add_weighted_sums(call, kept);
    partials = kept.data();
  }
  for (std::size_t i = 0; i < x.rows; ++i) {
    CrossEntropyParts parts =
        slave::combine_chunks(partials + i * chunks, chunks);
    parts.target_x = call.target_logit(i);
    visit(i, parts);
  }
}

void backward(const Call& call, const float* lse, const float* lse_low,
              const float* gradients, const Matrix& dx) {
  const Matrix& x = call.logits;
  require_rows(x, gradients, "gradients", lse, lse_low);
  master::require_like("dx", dx, "logits", x);
  if (x.rows == 0 || x.columns == 0) return;
  auto* const rows =
      Workspace::of_this_thread().row_values<CrossEntropyRow>(x.rows);
  for (std::size_t i = 0; i < x.rows; ++i) {
    rows[i] = {{lse[i], lse_low == nullptr ? 0 : lse_low[i]},
               gradients[i],
               call.target_weight(i)};
  }
  const Operation whole =
      row_operation<KernelFamily::cross_entropy_backward, 5>(call, x.columns,
                                                             3);
  if (runtime::ldm_need(call.machine, whole, 0).fits()) {
    master::run_rows(
        call.machine, whole, x,
        {x.data, call.targets, rows, call.options.class_weights, dx.data});
    return;
  }
  const Operation map = row_operation<KernelFamily::cross_entropy_backward, 5>(
      call, Pass::map, 3);
  master::map_columns(
      call.machine, "logits", x, map, [&](RowTable& table, std::size_t i) {
        table.add(x.columns, {row_of(x, i), &call.targets[i], &rows[i],
                              call.options.class_weights, row_of(dx, i)});
      });
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
  const Operation whole = forward_operation(call, logits.columns, lse_low);
  if (master::fits_rows(call.machine, logits, whole)) {
    master::run_rows(
        call.machine, whole, logits,
        {logits.data, targets, options.class_weights, losses, lse, lse_low});
  } else {
    run_chunks(call, [&](std::size_t i, const CrossEntropyParts& parts) {
      finish(call, i, parts, losses, lse, lse_low);
    });
  }
  return total_of(call, losses);
}

CrossEntropyTotal vocab_parallel_cross_entropy(
    Communicator& ranks, const VocabularyPart& part, const Matrix& logits,
    const std::int64_t* targets, float* losses, float* lse, float* lse_low,
    const CrossEntropyOptions& options, Machine* machine) {
  refuse_class_weights(options);
  const Call call = make_call(part, logits, targets, options, machine);
  require_rows(logits, losses, "losses", lse, lse_low);
  // A rank without classes adds nothing.
  std::vector<CrossEntropyParts> mine(
      logits.rows,
      slave::combine_chunks(static_cast<const CrossEntropyChunk*>(nullptr), 0));
  if (logits.rows != 0 && logits.columns != 0) {
    run_chunks(call, [&](std::size_t i, const CrossEntropyParts& parts) {
      mine[i] = parts;
    });
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
    finish(call, i, sum, losses, lse, lse_low);
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
           gradients, dx);
}

void cross_entropy_backward(const Matrix& logits, const std::int64_t* targets,
                            const float* lse, const float* lse_low,
                            const float* gradients, const Matrix& dx,
                            const CrossEntropyOptions& options,
                            Machine* machine) {
  const VocabularyPart all{0, logits.columns};
  backward(make_call(all, logits, targets, options, machine), lse, lse_low,
           gradients, dx);
}

}  // namespace swamp
