// Mixtures of experts: the operators on the rows of tokens, and the losses.
// Permuting, unpermuting and their gradients are all sums of a few rows for
// each output row, so that one kernel and sum_rows() serve them.
#include <algorithm>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "master/partition.h"
#include "master/row_launch.h"
#include "master/text.h"
#include "swamp/moe.h"

namespace swamp {

using master::row_of;
using master::RowTable;
using master::Workspace;
using slave::MoeFactors;

namespace {

// SumOperations are the operations of sums of up to kMoeSources rows.
class SumOperations {
 public:
  // A sum is final if y is written, otherwise it is a float32 sum.
  SumOperations(ScalarType type, bool with_factors) {
    static constexpr slave::KernelGroup kGroup =
        slave::kernel_group(KernelFamily::moe_sum, 6);
    for (int i = 0; i < kCount; ++i) {
      const bool final = i & kFinal;
      const std::uint32_t fits =
          kGroup.fits[0][type] & kGroup.fits[5][final ? type : kFloat32];
      all_[i] =
          Operation(slave::kKernels[kGroup.ids[__builtin_ctz(fits)]], &args_);
      for (int s = i % kFinal; s < slave::kMoeSources; ++s) {
        all_[i].remove_operand(s);
      }
      if ((i & kBefore) == 0) all_[i].remove_operand(3);
      if (!with_factors) all_[i].remove_operand(4);
    }
  }

  static std::size_t index(std::size_t sources, bool final, bool with_sum) {
    return sources | (final ? kFinal : 0u) | (with_sum ? kBefore : 0u);
  }
  const Operation* all() const noexcept { return all_; }
  static constexpr int kCount = 16;

 private:
  static constexpr int kFinal = 4, kBefore = 8;
  slave::MoeSumArgs args_;
  Operation all_[kCount];
};

// sum_rows() sets row i of y to the sum of the rows of x that `sources` lists:
// sources.count(i) is their number and sources.row(i, k) is number k, which is
// multiplied by probs[sources.prob(i, k)]. A launch adds kMoeSources rows; sums
// that need several are float32 between them.
template <class Sources>
void sum_rows(Machine::Impl& machine, const Matrix& x, const Sources& sources,
              const float* probs, const Matrix& y) {
  constexpr std::size_t kStep = slave::kMoeSources;
  const std::size_t columns = y.columns;
  const SumOperations operations(y.dtype, probs != nullptr);
  for (int i = 0; i < SumOperations::kCount; ++i) {
    master::require_ldm("tokens", y,
                        runtime::ldm_need(machine, operations.all()[i], 0));
  }
  std::size_t most = 0;
  std::size_t long_rows = 0;
  for (std::size_t i = 0; i < y.rows; ++i) {
    most = std::max(most, sources.count(i));
    long_rows += sources.count(i) > kStep ? 1 : 0;
  }
  std::vector<float> sums(y.dtype == kFloat32 ? 0 : long_rows * columns);
  std::vector<MoeFactors> factors(probs != nullptr ? y.rows : 0);
  Workspace& workspace = Workspace::of_this_thread();
  for (std::size_t done = 0; done == 0 || done < most; done += kStep) {
    RowTable table(operations.all(), SumOperations::kCount, y.rows, false, {},
                   workspace.segments());
    std::size_t long_row = 0;
    for (std::size_t i = 0; i < y.rows; ++i) {
      const std::size_t count = sources.count(i);
      const void* target = row_of(y, i);
      const void* sum = target;
      if (count > kStep && y.dtype != kFloat32) {
        sum = &sums[long_row++ * columns];
      }
      if (done != 0 && count <= done) continue;
      const bool final = count <= done + kStep;
      const std::size_t take = std::min(kStep, count - done);
      const void* from[kStep] = {};
      for (std::size_t k = 0; k < take; ++k) {
        from[k] = row_of(x, sources.row(i, done + k));
        if (probs != nullptr) {
          factors[i].factor[k] = probs[sources.prob(i, done + k)];
        }
      }
      table.add(
          columns,
          {from[0], from[1], from[2], done != 0 ? sum : nullptr,
           probs != nullptr ? &factors[i] : nullptr, final ? target : sum},
          SumOperations::index(take, final, done != 0));
    }
    workspace.run(machine, table.list());
  }
}

// One is at most one source for each row: token_of[i].
struct One {
  const std::int64_t* token_of;

  std::size_t count(std::size_t i) const { return token_of[i] >= 0 ? 1 : 0; }
  std::size_t row(std::size_t i, std::size_t) const {
    return static_cast<std::size_t>(token_of[i]);
  }
  std::size_t prob(std::size_t i, std::size_t) const { return i; }
};

// Several is the inverse: all rows of a token, in their order.
struct Several {
  std::vector<std::size_t> begin, rows;

  Several(const std::int64_t* token_of, std::size_t row_count,
          std::size_t tokens)
      : begin(tokens + 2) {
    for (std::size_t r = 0; r < row_count; ++r) {
      if (token_of[r] >= 0) ++begin[static_cast<std::size_t>(token_of[r]) + 2];
    }
    for (std::size_t t = 2; t < begin.size(); ++t) begin[t] += begin[t - 1];
    rows.resize(begin.back());
    for (std::size_t r = 0; r < row_count; ++r) {
      if (token_of[r] < 0) continue;
      rows[begin[static_cast<std::size_t>(token_of[r]) + 1]++] = r;
    }
  }
  std::size_t count(std::size_t i) const { return begin[i + 1] - begin[i]; }
  std::size_t row(std::size_t i, std::size_t k) const {
    return rows[begin[i] + k];
  }
  std::size_t prob(std::size_t i, std::size_t k) const { return row(i, k); }
};

// require_permutation() validates what the permutations have in common.
void require_permutation(const Matrix& tokens, const std::int64_t* token_of,
                         const float* probs, const Matrix& permuted) {
  master::require_matrix("tokens", tokens);
  Matrix expected = tokens;
  expected.rows = permuted.rows;
  master::require_like("permuted", permuted, "tokens", expected);
  master::require_array("token_of", token_of, sizeof *token_of, permuted.rows);
  if (probs != nullptr) {
    master::require_array("probs", probs, sizeof *probs, permuted.rows);
  }
  for (std::size_t r = 0; r < permuted.rows; ++r) {
    if (token_of[r] < -1 ||
        token_of[r] >= static_cast<std::int64_t>(tokens.rows)) {
      master::refuse(
          "token_of[" + std::to_string(r) + "]", std::to_string(token_of[r]),
          "a token from 0 to " + std::to_string(tokens.rows) + " - 1, or -1");
    }
  }
}

// aux_factor() is what the loss multiplies the sums and counts by.
double aux_factor(const Matrix& probs, const AuxLossOptions& options) {
  if (options.choices == 0) {
    master::refuse("options.choices", "0", "at least 1");
  }
  const auto tokens =
      static_cast<double>(options.tokens != 0 ? options.tokens : probs.rows);
  return static_cast<double>(probs.columns) * options.coefficient /
         (static_cast<double>(options.choices) * tokens * tokens);
}

}  // namespace

void moe_permute(const Matrix& tokens, const std::int64_t* token_of,
                 const float* probs, const Matrix& permuted, Machine* machine) {
  require_permutation(tokens, token_of, probs, permuted);
  Machine::Impl& impl = master::impl_of(machine);
  if (permuted.rows == 0 || permuted.columns == 0) return;
  sum_rows(impl, tokens, One{token_of}, probs, permuted);
}

void moe_unpermute(const Matrix& permuted, const std::int64_t* token_of,
                   const float* probs, const Matrix& tokens, Machine* machine) {
  require_permutation(tokens, token_of, probs, permuted);
  Machine::Impl& impl = master::impl_of(machine);
  if (tokens.rows == 0 || tokens.columns == 0) return;
  sum_rows(impl, permuted, Several(token_of, permuted.rows, tokens.rows), probs,
           tokens);
}

void moe_dot(const Matrix& tokens, const std::int64_t* token_of,
             const Matrix& permuted, float* products, Machine* machine) {
  require_permutation(tokens, token_of, nullptr, permuted);
  master::require_array("products", products, sizeof *products, permuted.rows);
  Machine::Impl& impl = master::impl_of(machine);
  // The sum of a softmax's backward is the same sum of products.
  const slave::SoftmaxBackwardArgs args{};
  Operation sum(
      master::row_kernel<KernelFamily::softmax_backward, 5>(tokens.dtype),
      &args, Pass::sum);
  sum.tile_step = slave::kChains;
  sum.remove_operand(3);
  sum.remove_operand(4);
  master::require_ldm("tokens", tokens,
                      runtime::ldm_need(impl, sum, sizeof(slave::ChainSums)));
  if (permuted.rows == 0) return;
  std::fill(products, products + permuted.rows, 0.0f);
  const std::size_t columns = tokens.columns;
  if (columns == 0) return;
  Workspace& workspace = Workspace::of_this_thread();
  RowTable rows(sum, permuted.rows, true, master::chunk_grains(columns),
                workspace.segments());
  for (std::size_t r = 0; r < permuted.rows; ++r) {
    if (token_of[r] < 0) continue;
    rows.add(columns, {row_of(tokens, static_cast<std::size_t>(token_of[r])),
                       row_of(permuted, r), nullptr, nullptr, nullptr});
  }
  workspace.run_by_grain(impl, rows.list(), sizeof(slave::ChainSums));
  const std::size_t chunks = master::chunks_of(columns);
  const auto* sums = workspace.partials<slave::ChainSums>();
  for (std::size_t r = 0; r < permuted.rows; ++r) {
    if (token_of[r] < 0) continue;
    double dot = 0;
    for (std::size_t c = 0; c < chunks; ++c) {
      dot += static_cast<double>((sums++)->total());
    }
    products[r] = static_cast<float>(dot);
  }
}

double moe_aux_loss(const Matrix& probs, const std::int64_t* counts,
                    const AuxLossOptions& options, Machine* machine) {
  master::require_matrix("probs", probs);
  master::require_array("counts", counts, sizeof *counts, probs.columns);
  const double factor = aux_factor(probs, options);
  if (probs.rows == 0 || probs.columns == 0) return 0 * factor;
  // The gradient of a norm's bias is the sum of the columns.
  std::vector<float> sums(probs.columns);
  const std::vector<float> zeros(probs.rows);
  Matrix none = probs;
  none.data = nullptr;
  layer_norm_backward(probs, probs, zeros.data(), zeros.data(),
                      {nullptr, kFloat32}, none, nullptr, sums.data(), {},
                      machine);
  double sum = 0;
  for (std::size_t e = 0; e < probs.columns; ++e) {
    sum += static_cast<double>(sums[e]) * static_cast<double>(counts[e]);
  }
  return sum * factor;
}

void moe_aux_loss_backward(double gradient, const std::int64_t* counts,
                           const Matrix& dprobs, const AuxLossOptions& options,
                           Machine* machine) {
  master::require_matrix("dprobs", dprobs);
  master::require_array("counts", counts, sizeof *counts, dprobs.columns);
  const double factor = gradient * aux_factor(dprobs, options);
  if (dprobs.rows == 0 || dprobs.columns == 0) return;
  std::vector<float> row(dprobs.columns);  // one of dprobs, in its dtype
  for (std::size_t e = 0; e < dprobs.columns; ++e) {
    const auto value =
        static_cast<float>(factor * static_cast<double>(counts[e]));
    auto* narrow = reinterpret_cast<std::uint16_t*>(row.data()) + e;
    if (dprobs.dtype == kFloat32) {
      row[e] = value;
    } else {
      const std::uint16_t bits = dprobs.dtype == kFloat16
                                     ? float16_from_float(value)
                                     : bfloat16_from_float(value);
      std::memcpy(narrow, &bits, sizeof bits);
    }
  }
  const std::vector<std::int64_t> same(dprobs.rows, 0);
  moe_permute({row.data(), 1, dprobs.columns, dprobs.dtype}, same.data(),
              nullptr, dprobs, machine);
}

double moe_z_loss(const Matrix& logits, double coefficient, float* lse,
                  float* lse_low, Machine* machine) {
  master::require_matrix("logits", logits);
  master::require_array("lse", lse, sizeof *lse, logits.rows);
  if (logits.columns == 0) {
    std::fill(lse, lse + logits.rows, -std::numeric_limits<float>::infinity());
    if (lse_low != nullptr) std::fill(lse_low, lse_low + logits.rows, 0.0f);
  } else if (logits.rows != 0) {
    // Cross entropy computes lse also of rows that it ignores.
    const CrossEntropyOptions options;
    const std::vector<std::int64_t> targets(logits.rows, options.ignore_index);
    std::vector<float> losses(logits.rows);
    cross_entropy(logits, targets.data(), losses.data(), lse, lse_low, options,
                  machine);
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
  master::require_array("lse", lse, sizeof *lse, logits.rows);
  master::require_like("dx", dx, "logits", logits);
  if (logits.rows == 0 || logits.columns == 0) return;
  // The z-loss of cross entropy whose classes all have the weight 0.
  const std::vector<float> zeros(logits.columns);
  CrossEntropyOptions options;
  options.z_loss = 1;
  options.class_weights = zeros.data();
  const std::vector<std::int64_t> targets(logits.rows, 0);
  const std::vector<float> gradients(
      logits.rows, static_cast<float>(gradient * coefficient /
                                      static_cast<double>(logits.rows)));
  cross_entropy_backward(logits, targets.data(), lse, lse_low, gradients.data(),
                         dx, options, machine);
}

}  // namespace swamp
