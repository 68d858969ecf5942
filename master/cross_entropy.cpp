// Cross entropy of rows of logits, and its gradient. Rows that fit into LDM
// take one launch. Of a longer row, or of classes that are divided between
// ranks, Pass::sum gives the parts of the softmax's sum, which this file
// combines, over the ranks too, and from which it computes the loss. The
// gradient needs only lse, so its Pass::map takes any piece of a row.
// log_softmax() is x - lse, by the kernel of LayerNorm.
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

// finish() sets the loss and lse of row i.
void finish(const Call& call, std::size_t i, const CrossEntropyParts& parts,
            float* losses, float* lse) {
  const double exact = slave::cross_entropy_lse(parts);
  lse[i] = static_cast<float>(exact);
  losses[i] = call.ignored(i)
                  ? 0.0f
                  : slave::cross_entropy_loss(call.args, parts, exact,
                                              call.target_weight(i));
}

// row_operation() is an operation of whole rows, or a pass on columns.
template <KernelFamily kFamily, class Units>
Operation row_operation(const Call& call, Units units, int weight) {
  Operation operation(master::row_kernel<kFamily, 5>(call.logits.dtype),
                      &call.args, units);
  if (call.options.class_weights == nullptr) operation.remove_operand(weight);
  return operation;
}

// add_weighted_sums() sets sum_x of all chunks in a separate pass. A whole
// chunk of both x and the weights in float32 does not fit into a small LDM, but
// their products can be summed in pieces of a chunk.
void add_weighted_sums(const Call& call,
                       std::vector<CrossEntropyChunk>& chunks) {
  const Matrix& x = call.logits;
  const slave::SoftmaxBackwardArgs args{};
  Operation products(
      master::row_kernel<KernelFamily::softmax_backward, 5>(x.dtype), &args,
      Pass::sum);
  products.tile_step = slave::kChains;
  products.remove_operand(3);
  products.remove_operand(4);
  const auto* sums = master::sum_columns<slave::ChainSums>(
      call.machine, "logits", x, products, [&](RowTable& table, std::size_t i) {
        table.add(x.columns, {row_of(x, i), call.options.class_weights, nullptr,
                              nullptr, nullptr});
      });
  for (std::size_t c = 0; c < chunks.size(); ++c) {
    chunks[c].sum_x = sums[c].total();
  }
}

// run_chunks() computes the parts of each row by a pass on its columns, and
// calls visit(i, parts).
template <class Visit>
void run_chunks(const Call& call, Visit visit) {
  const Matrix& x = call.logits;
  Operation sum =
      row_operation<KernelFamily::cross_entropy>(call, Pass::sum, 2);
  sum.remove_operand(1);
  // Only smoothing needs the weights of all classes.
  const float* weights =
      call.args.uniform != 0 ? call.options.class_weights : nullptr;
  sum.tile_step = master::chunk_step(x.columns);
  const bool weights_apart =
      weights != nullptr && x.dtype == kFloat32 &&
      !runtime::ldm_need(call.machine, sum, sizeof(CrossEntropyChunk)).fits();
  if (weights_apart) weights = nullptr;
  if (weights == nullptr) sum.remove_operand(2);
  const std::size_t chunks = master::chunks_of(x.columns);
  const auto* partials = master::sum_columns<CrossEntropyChunk>(
      call.machine, "logits", x, sum, [&](RowTable& table, std::size_t i) {
        table.add(x.columns,
                  {row_of(x, i), nullptr, weights, nullptr, nullptr});
      });
  std::vector<CrossEntropyChunk> kept;
  if (weights_apart) {
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

// Rows of log_softmax() that are read twice have so many elements.
constexpr std::size_t kCachedElements = std::size_t{1} << 20;

void backward(const Call& call, const float* lse, const float* gradients,
              const Matrix& dx) {
  const Matrix& x = call.logits;
  master::require_array("lse", lse, sizeof *lse, x.rows);
  master::require_array("gradients", gradients, sizeof *gradients, x.rows);
  master::require_like("dx", dx, "logits", x);
  if (x.rows == 0 || x.columns == 0) return;
  auto* const rows =
      Workspace::of_this_thread().row_values<CrossEntropyRow>(x.rows);
  for (std::size_t i = 0; i < x.rows; ++i) {
    rows[i] = {lse[i], gradients[i], call.target_weight(i)};
  }
  const Operation whole =
      row_operation<KernelFamily::cross_entropy_backward>(call, x.columns, 3);
  if (runtime::ldm_need(call.machine, whole, 0).fits()) {
    master::run_rows(
        call.machine, whole, x,
        {x.data, call.targets, rows, call.options.class_weights, dx.data});
    return;
  }
  const Operation map =
      row_operation<KernelFamily::cross_entropy_backward>(call, Pass::map, 3);
  master::map_columns(
      call.machine, "logits", x, map, [&](RowTable& table, std::size_t i) {
        table.add(x.columns, {row_of(x, i), &call.targets[i], &rows[i],
                              call.options.class_weights, row_of(dx, i)});
      });
}

}  // namespace

CrossEntropyTotal cross_entropy(const Matrix& logits,
                                const std::int64_t* targets, float* losses,
                                float* lse, const CrossEntropyOptions& options,
                                Machine* machine) {
  const VocabularyPart all{0, logits.columns};
  const Call call = make_call(all, logits, targets, options, machine);
  master::require_array("losses", losses, sizeof *losses, logits.rows);
  master::require_array("lse", lse, sizeof *lse, logits.rows);
  if (logits.rows == 0) return {};
  if (logits.columns == 0) {  // without classes, every row is ignored
    std::fill(losses, losses + logits.rows, 0.0f);
    std::fill(lse, lse + logits.rows, -std::numeric_limits<float>::infinity());
    return {};
  }
  const Operation whole =
      row_operation<KernelFamily::cross_entropy>(call, logits.columns, 2);
  if (master::fits_rows(call.machine, logits, whole)) {
    master::run_rows(
        call.machine, whole, logits,
        {logits.data, targets, options.class_weights, losses, lse});
  } else {
    run_chunks(call, [&](std::size_t i, const CrossEntropyParts& parts) {
      finish(call, i, parts, losses, lse);
    });
  }
  return total_of(call, losses);
}

void log_softmax(const Matrix& x, const Matrix& y, Machine* machine) {
  master::require_matrix("x", x);
  master::require_like("y", y, "x", x);
  if (x.rows == 0 || x.columns == 0) return;
  // x - lse is (x - mean) * rstd.
  const slave::RowNormArgs args{x.columns, 0, 0, 0};
  Operation map(master::row_kernel<KernelFamily::layer_norm, 6>(x.dtype), &args,
                Pass::map);
  map.remove_operand(1);
  map.remove_operand(2);
  Machine::Impl& impl = master::impl_of(machine);
  master::require_ldm("x", x, runtime::ldm_need(impl, map, 0));
  const float rstd = 1;
  // So many rows that they are still in a cache when they are read again.
  const std::size_t most =
      std::max<std::size_t>(1, kCachedElements / x.columns);
  const std::vector<std::int64_t> ignored(std::min(most, x.rows), -100);
  std::vector<float> losses(ignored.size()), lse(ignored.size());
  for (std::size_t first = 0; first < x.rows; first += most) {
    const std::size_t count = std::min(most, x.rows - first);
    const Matrix part{const_cast<std::byte*>(row_of(x, first)), count,
                      x.columns, x.dtype};
    cross_entropy(part, ignored.data(), losses.data(), lse.data(), {}, machine);
    master::map_columns(
        impl, "x", part, map, [&](RowTable& table, std::size_t i) {
          table.add(x.columns, {row_of(part, i), nullptr, nullptr,
                                row_of(y, first + i), &lse[i], &rstd});
        });
  }
}

CrossEntropyTotal vocab_parallel_cross_entropy(
    Communicator& ranks, const VocabularyPart& part, const Matrix& logits,
    const std::int64_t* targets, float* losses, float* lse,
    const CrossEntropyOptions& options, Machine* machine) {
  refuse_class_weights(options);
  const Call call = make_call(part, logits, targets, options, machine);
  master::require_array("losses", losses, sizeof *losses, logits.rows);
  master::require_array("lse", lse, sizeof *lse, logits.rows);
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
    for (std::size_t r = 0; r < size; ++r) {
      const CrossEntropyParts& one = all[r * logits.rows + i];
      sum.sum += one.sum *
                 static_cast<double>(slave::exp_nonpositive(one.max - sum.max));
      sum.sum_x += one.sum_x;
      sum.target_x += one.target_x;
    }
    // Megatron-LM smooths over the rank's own classes only.
    if (options.megatron_smoothing) sum.sum_x = mine[i].sum_x;
    finish(call, i, sum, losses, lse);
  }
  return total_of(call, losses);
}

void vocab_parallel_cross_entropy_backward(
    const VocabularyPart& part, const Matrix& logits,
    const std::int64_t* targets, const float* lse, const float* gradients,
    const Matrix& dx, const CrossEntropyOptions& options, Machine* machine) {
  if (part.classes != logits.columns) refuse_class_weights(options);
  backward(make_call(part, logits, targets, options, machine), lse, gradients,
           dx);
}

void cross_entropy_backward(const Matrix& logits, const std::int64_t* targets,
                            const float* lse, const float* gradients,
                            const Matrix& dx,
                            const CrossEntropyOptions& options,
                            Machine* machine) {
  const VocabularyPart all{0, logits.columns};
  backward(make_call(all, logits, targets, options, machine), lse, gradients,
           dx);
}

}  // namespace swamp
