// Mixtures of experts: the operators on the rows of tokens, and the auxiliary
// loss. Permuting, unpermuting and their gradients are all sums of a few rows
// for each output row, so that one kernel and sum_rows() serve them.
#include <algorithm>
#include <memory>
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
using slave::MoeSumOperand;

namespace {

// SumOperations are the operations of sums of up to kMoeSources rows.
class SumOperations {
 public:
  // A sum is final if y is written, otherwise it is a float32 sum.
  SumOperations(ScalarType type, bool with_factors) {
    static constexpr slave::KernelGroup kGroup =
        slave::kernel_group(KernelFamily::moe_sum, MoeSumOperand::count);
    for (int i = 0; i < kCount; ++i) {
      const bool final = i & kFinal;
      const std::uint32_t fits =
          kGroup.fits[MoeSumOperand::x0][type] &
          kGroup.fits[MoeSumOperand::y][final ? type : kFloat32];
      all_[i] =
          Operation(slave::kKernels[kGroup.ids[__builtin_ctz(fits)]], &args_);
      for (int s = i % kFinal; s < slave::kMoeSources; ++s) {
        all_[i].remove_operand(MoeSumOperand::x0 + s);
      }
      if ((i & kBefore) == 0) all_[i].remove_operand(MoeSumOperand::sum);
      if (!with_factors) all_[i].remove_operand(MoeSumOperand::factors);
    }
  }

  static std::size_t index(std::size_t sources, bool final, bool with_sum) {
    return sources | (final ? kFinal : 0u) | (with_sum ? kBefore : 0u);
  }
  // are_final() returns whether all sums of these operations, bit i for
  // index i, are final.
  static bool are_final(std::uint32_t used) {
    for (std::size_t i = 0; i < kCount; ++i) {
      if ((used >> i & 1u) != 0 && (i & kFinal) == 0) return false;
    }
    return true;
  }
  const Operation* all() const noexcept { return all_; }
  static constexpr int kCount = 16;

 private:
  static constexpr int kFinal = 4, kBefore = 8;
  slave::MoeSumArgs args_;
  Operation all_[kCount];
};

// source_of() returns the row of x that is number k of the sources of row i.
template <class Sources>
const void* source_of(const Sources& sources, const Matrix& x, std::size_t i,
                      std::size_t k) {
  return row_of(x, sources.row(i, k));
}

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
  std::unique_ptr<float[]> sums;
  const std::unique_ptr<MoeFactors[]> factors(
      probs != nullptr ? new MoeFactors[y.rows] : nullptr);
  Workspace& workspace = Workspace::of_this_thread();
  bool is_final = false;
  for (std::size_t done = 0; !is_final; done += kStep) {
    RowTable table(operations.all(), SumOperations::kCount, y.rows, false, {},
                   workspace.segments());
    const auto fill = [&] {
      table.fill(machine, y.rows, [&](std::size_t i, const auto& set) {
        const std::size_t count = sources.count(i);
        const std::size_t take = std::min(kStep, count - std::min(count, done));
        const bool final = count <= done + kStep;
        const void* const target = row_of(y, i);
        const void* const sum =
            sums ? &sums[sources.long_row(i) * columns] : target;
        const void* from[kStep] = {};
        for (std::size_t k = 0; k < take; ++k) {
          from[k] = source_of(sources, x, i, done + k);
          if (probs != nullptr) {
            factors[i].factor[k] = probs[sources.prob(i, done + k)];
          }
        }
        set(done == 0 || take != 0 ? columns : 0,
            {from[0], from[1], from[2], done != 0 ? sum : nullptr,
             probs != nullptr ? &factors[i] : nullptr, final ? target : sum},
            SumOperations::index(take, final, done != 0));
      });
      return SumOperations::are_final(table.list().table.operations_used);
    };
    is_final = fill();
    if (!is_final && !sums && y.dtype != kFloat32) {
      sums.reset(new float[sources.long_rows() * columns]);
      fill();
    }
    workspace.run(machine, table.list());
  }
}

// TokenOf is the token of each row, or -1: of at most one source for each row.
struct TokenOf {
  const std::int64_t* token_of;
  std::size_t tokens;

  // at() throws Error unless the entry is a token or -1.
  std::int64_t at(std::size_t r) const {
    const std::int64_t token = token_of[r];
    if (token >= -1 && token < static_cast<std::int64_t>(tokens)) return token;
    master::refuse(
        "token_of[" + std::to_string(r) + "]", std::to_string(token),
        "a token from 0 to " + std::to_string(tokens) + " - 1, or -1");
  }
  std::size_t count(std::size_t i) const { return at(i) >= 0 ? 1 : 0; }
  std::size_t row(std::size_t i, std::size_t) const {
    return static_cast<std::size_t>(token_of[i]);
  }
  std::size_t prob(std::size_t i, std::size_t) const { return i; }
  static std::size_t long_rows() { return 0; }
  static std::size_t long_row(std::size_t) { return 0; }
};

// RowsOf is the inverse: all rows of a token, in their order.
class RowsOf {
 public:
  RowsOf(Machine::Impl& machine, const TokenOf& token_of, std::size_t rows)
      : begin_(new std::size_t[token_of.tokens + 1]),
        rows_(new std::size_t[rows]),
        row_count_(rows) {
    begin_[0] = 0;
    // Each part of the tokens finds its rows among all.
    const auto find = [&](std::size_t first, std::size_t end) {
      const std::size_t tokens = end - first;
      // The number of a token's rows, then where the next one goes, which is
      // where those of the next token begin in the end.
      std::size_t* const next = &begin_[first + 1];
      std::fill(next, next + tokens, std::size_t{0});
      std::size_t before = 0;
      for (std::size_t r = 0; r < rows; ++r) {
        const auto token = static_cast<std::size_t>(token_of.at(r));
        before += token < first ? 1 : 0;
        if (token - first < tokens) ++next[token - first];
      }
      for (std::size_t t = 0; t < tokens; ++t) {
        const std::size_t count = next[t];
        next[t] = before;
        before += count;
      }
      for (std::size_t r = 0; r < rows; ++r) {
        const std::size_t token = token_of.row(r, 0) - first;
        if (token < tokens) rows_[next[token]++] = r;
      }
    };
    constexpr std::uint64_t kTraffic = 64;  // of a token, and of a row
    runtime::run_parts(machine, token_of.tokens,
                       kTraffic + kTraffic * rows / token_of.tokens, find);
  }

  std::size_t count(std::size_t i) const { return begin_[i + 1] - begin_[i]; }
  std::size_t row(std::size_t i, std::size_t k) const {
    return rows_[begin_[i] + k];
  }
  std::size_t prob(std::size_t i, std::size_t k) const { return row(i, k); }
  // A token of more than kMoeSources sources, its rows and `others`, has a
  // number of its own.
  std::size_t long_row(std::size_t i, std::size_t others = 0) const {
    return begin_[i] / (slave::kMoeSources + 1 - others);
  }
  std::size_t long_rows(std::size_t others = 0) const {
    return row_count_ / (slave::kMoeSources + 1 - others);
  }

 private:
  std::unique_ptr<std::size_t[]> begin_, rows_;
  std::size_t row_count_;
};

// RowsOnto is a row of another matrix, then all rows of its token.
struct RowsOnto {
  const RowsOf& rows;
  const Matrix& onto;

  std::size_t count(std::size_t i) const { return rows.count(i) + 1; }
  static std::size_t prob(std::size_t, std::size_t) { return 0; }
  std::size_t long_row(std::size_t i) const { return rows.long_row(i, 1); }
  std::size_t long_rows() const { return rows.long_rows(1); }
};
const void* source_of(const RowsOnto& sources, const Matrix& x, std::size_t i,
                      std::size_t k) {
  return k == 0 ? row_of(sources.onto, i)
                : row_of(x, sources.rows.row(i, k - 1));
}

// FirstRow is the same source for all rows.
struct FirstRow {
  static std::size_t count(std::size_t) { return 1; }
  static std::size_t row(std::size_t, std::size_t) { return 0; }
  static std::size_t prob(std::size_t, std::size_t) { return 0; }
  static std::size_t long_row(std::size_t) { return 0; }
  static std::size_t long_rows() { return 0; }
};

// require_permutation() validates what the permutations have in common, but for
// the tokens of rows that a launch reads: TokenOf::at() does that.
TokenOf require_permutation(const Matrix& tokens, const std::int64_t* token_of,
                            const float* probs, const Matrix& permuted) {
  master::require_matrix("tokens", tokens);
  Matrix expected = tokens;
  expected.rows = permuted.rows;
  master::require_like("permuted", permuted, "tokens", expected);
  master::require_array("token_of", token_of, sizeof *token_of, permuted.rows);
  if (probs != nullptr) {
    master::require_array("probs", probs, sizeof *probs, permuted.rows);
  }
  const TokenOf of{token_of, tokens.rows};
  if (tokens.rows == 0 || tokens.columns == 0) {
    for (std::size_t r = 0; r < permuted.rows; ++r) of.at(r);
  }
  return of;
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
  const TokenOf of = require_permutation(tokens, token_of, probs, permuted);
  Machine::Impl& impl = master::impl_of(machine);
  if (permuted.rows == 0 || permuted.columns == 0) return;
  sum_rows(impl, tokens, of, probs, permuted);
}

void moe_unpermute(const Matrix& permuted, const std::int64_t* token_of,
                   const float* probs, const Matrix& tokens, Machine* machine) {
  const TokenOf of = require_permutation(tokens, token_of, probs, permuted);
  Machine::Impl& impl = master::impl_of(machine);
  if (tokens.rows == 0 || tokens.columns == 0) return;
  sum_rows(impl, permuted, RowsOf(impl, of, permuted.rows), probs, tokens);
}

void moe_add(const Matrix& tokens, const std::int64_t* token_of,
             const Matrix& permuted, const Matrix& sums, Machine* machine) {
  const TokenOf of = require_permutation(tokens, token_of, nullptr, permuted);
  master::require_like("sums", sums, "tokens", tokens);
  Machine::Impl& impl = master::impl_of(machine);
  if (tokens.rows == 0 || tokens.columns == 0) return;
  const RowsOf rows(impl, of, permuted.rows);
  sum_rows(impl, permuted, RowsOnto{rows, tokens}, nullptr, sums);
}

void moe_dot(const Matrix& tokens, const std::int64_t* token_of,
             const Matrix& permuted, float* products, Machine* machine) {
  const TokenOf of = require_permutation(tokens, token_of, nullptr, permuted);
  master::require_array("products", products, sizeof *products, permuted.rows);
  Machine::Impl& impl = master::impl_of(machine);
  if (permuted.rows == 0) return;
  if (tokens.columns == 0) {
    std::fill(products, products + permuted.rows, 0.0f);
    return;
  }
  // D of a softmax's backward is the same sum of products.
  slave::SoftmaxBackwardArgs args{};
  args.columns = tokens.columns;
  Operation operation(
      master::row_kernel<KernelFamily::softmax_backward>(tokens.dtype), &args,
      tokens.columns);
  operation.remove_operand(slave::SoftmaxBackwardOperand::dx);
  master::require_ldm("tokens", tokens, runtime::ldm_need(impl, operation, 0));
  Workspace& workspace = Workspace::of_this_thread();
  RowTable rows(operation, permuted.rows, false,
                master::row_grains(tokens.columns), workspace.segments());
  const std::vector<float> zeros(tokens.columns);  // of any dtype, for no token
  rows.fill(impl, permuted.rows, [&](std::size_t r, const auto& set) {
    const void *x = zeros.data(), *y = zeros.data();
    if (of.count(r) != 0) {
      x = row_of(tokens, of.row(r, 0));
      y = row_of(permuted, r);
    }
    set(1, {x, y, nullptr, products + r});
  });
  workspace.run(impl, rows.list());
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
    master::store_rounded(
        dprobs.dtype,
        static_cast<float>(factor * static_cast<double>(counts[e])), row.data(),
        e);
  }
  sum_rows(master::impl_of(machine),
           {row.data(), 1, dprobs.columns, dprobs.dtype}, FirstRow(), nullptr,
           dprobs);
}

}  // namespace swamp
