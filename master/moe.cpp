#include "swamp/moe.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "master/partition.h"
#include "master/rows.h"
#include "master/text.h"

namespace swamp {

using master::GrainRule;
using master::RowTable;
using master::Workspace;
using slave::MoeArgs;
using slave::MoeFactors;

namespace {

const std::byte* row_of(const Matrix& matrix, std::size_t i) {
  return static_cast<const std::byte*>(matrix.data) +
         i * matrix.columns * master::kScalarTypeBytes[matrix.dtype];
}

// ---- Counts and positions

// width() is the number of positions of one number, or of one token of a map.
std::size_t width(const ExpertChoices& choices) {
  return choices.kind == ExpertChoices::kMap ? choices.experts : 1;
}

std::size_t unit_bytes(const ExpertChoices& choices) {
  if (choices.kind == ExpertChoices::kMap) return choices.experts;
  return choices.kind == ExpertChoices::kInt64 ? 8 : 4;
}

void require_choices(const ExpertChoices& choices) {
  if (choices.kind > ExpertChoices::kMap) {
    master::refuse("choices.kind", std::to_string(choices.kind),
                   "0 (int32), 1 (int64) or 2 (map)");
  }
  constexpr std::size_t kMost = std::numeric_limits<std::int32_t>::max();
  if (choices.experts == 0 || choices.experts > kMost) {
    master::refuse("choices.experts", std::to_string(choices.experts),
                   "1 to " + std::to_string(kMost));
  }
  if (choices.count > kMost / width(choices)) {
    master::refuse("choices.count", std::to_string(choices.count),
                   "at most " + std::to_string(kMost / width(choices)));
  }
  const std::size_t alignment =
      choices.kind == ExpertChoices::kMap ? 1 : unit_bytes(choices);
  master::require_array("choices.data", choices.data, alignment, choices.count);
}

// moe_grains() is the grain rule of choices. There are few grains, because each
// has a number for every expert.
GrainRule moe_grains(const ExpertChoices& choices) {
  constexpr std::size_t kPositions = 2048;
  return {std::max<std::size_t>(1, kPositions / width(choices)), 256};
}

MoeArgs moe_args(const ExpertChoices& choices, std::int64_t capacity) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  MoeArgs args{};
  args.experts = static_cast<std::uint32_t>(choices.experts);
  args.capacity = static_cast<std::uint32_t>(
      capacity < 0 ? kMost : std::min(capacity, kMost));
  return args;
}

std::size_t counts_bytes(const MoeArgs& args) {
  return args.counts() * sizeof(std::uint32_t);
}

Operation moe_operation(const ExpertChoices& choices, const KernelId (&ids)[3],
                        const MoeArgs& args) {
  return Operation(slave::kKernels[ids[choices.kind]], &args, args.experts);
}

void require_moe_ldm(const MoeArgs& args, const runtime::LdmNeed& need) {
  if (need.fits()) return;
  master::refuse("choices.experts", std::to_string(args.experts),
                 "fewer experts or more LDM: they need " +
                     std::to_string(need.needed_bytes) +
                     " bytes, a slave has " + std::to_string(need.ldm_bytes) +
                     " (SWAMP_LDM_BYTES)",
                 SWAMP_UNSUPPORTED);
}

// count_grains() counts the entries of each expert in each grain: the partial
// results of the workspace. Throws Error if one is not an expert.
void count_grains(Machine::Impl& machine, const ExpertChoices& choices,
                  const MoeArgs& args) {
  constexpr KernelId kIds[] = {slave::kernel_id::moe_count_int32,
                               slave::kernel_id::moe_count_int64,
                               slave::kernel_id::moe_count_map};
  const Operation operation = moe_operation(choices, kIds, args);
  require_moe_ldm(args,
                  runtime::ldm_need(machine, operation, counts_bytes(args)));
  Workspace& workspace = Workspace::of_this_thread();
  RowTable table(operation, 1, true, moe_grains(choices), workspace.segments());
  table.add(choices.count, {choices.data});
  const runtime::SlaveResult result =
      workspace.run_by_grain(machine, table.list(), counts_bytes(args));
  if (result.flagged_elements == 0) return;
  const std::size_t i = result.first_index;
  const std::int64_t expert =
      choices.kind == ExpertChoices::kInt64
          ? static_cast<const std::int64_t*>(choices.data)[i]
          : static_cast<const std::int32_t*>(choices.data)[i];
  master::refuse(
      "choices.data[" + std::to_string(i) + "]", std::to_string(expert),
      "an expert from 0 to " + std::to_string(choices.experts) + " - 1, or -1");
}

// ---- Sums of rows

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
// multiplied by probs[sources.prob(i, k)]. A visit adds kMoeSources rows; sums
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

void moe_histogram(const ExpertChoices& choices, std::int64_t* counts,
                   Machine* machine) {
  require_choices(choices);
  master::require_array("counts", counts, sizeof *counts, choices.experts);
  const MoeArgs args = moe_args(choices, -1);
  count_grains(master::impl_of(machine), choices, args);
  std::fill(counts, counts + choices.experts, 0);
  if (choices.count == 0) return;
  const std::size_t grain =
      master::grain_rows(choices.count, moe_grains(choices));
  const auto* partials = Workspace::of_this_thread().partials<std::uint32_t>();
  for (std::size_t at = 0; at < choices.count; at += grain) {
    for (std::size_t e = 0; e < choices.experts; ++e) counts[e] += partials[e];
    partials += args.counts();
  }
}

void moe_positions(const ExpertChoices& choices, std::int64_t capacity,
                   std::int32_t* positions, Machine* machine) {
  require_choices(choices);
  master::require_array("positions", positions, sizeof *positions,
                        choices.count * width(choices));
  Machine::Impl& impl = master::impl_of(machine);
  const MoeArgs args = moe_args(choices, capacity);
  constexpr KernelId kIds[] = {slave::kernel_id::moe_position_int32,
                               slave::kernel_id::moe_position_int64,
                               slave::kernel_id::moe_position_map};
  const Operation operation = moe_operation(choices, kIds, args);
  require_moe_ldm(args, runtime::ldm_need(impl, operation, counts_bytes(args)));
  if (choices.count == 0) return;
  count_grains(impl, choices, args);

  // The exclusive scan of the counts over the grains.
  Workspace& workspace = Workspace::of_this_thread();
  const std::size_t grain =
      master::grain_rows(choices.count, moe_grains(choices));
  const std::size_t grains = (choices.count - 1) / grain + 1;
  const auto* partials = workspace.partials<std::uint32_t>();
  std::vector<std::uint32_t> bases(grains * args.experts);
  for (std::size_t g = 1; g < grains; ++g, partials += args.counts()) {
    for (std::size_t e = 0; e < args.experts; ++e) {
      bases[g * args.experts + e] =
          bases[(g - 1) * args.experts + e] + partials[e];
    }
  }
  RowTable table(operation, grains, true, {grain, ~std::size_t{0}},
                 workspace.segments());
  const auto* data = static_cast<const std::byte*>(choices.data);
  for (std::size_t g = 0; g < grains; ++g) {
    const std::size_t at = g * grain;
    table.add(std::min(grain, choices.count - at),
              {data + at * unit_bytes(choices), &bases[g * args.experts],
               positions + at * width(choices)});
  }
  workspace.run_by_grain(impl, table.list(), counts_bytes(args));
}

void moe_apply_capacity(const Matrix& probs, const std::uint8_t* map,
                        const CapacityOptions& options, std::uint8_t* kept,
                        Machine* machine) {
  const bool by_probs = options.policy == DropPolicy::probs;
  if (!by_probs && options.policy != DropPolicy::position) {
    master::refuse("options.policy",
                   std::to_string(static_cast<std::uint32_t>(options.policy)),
                   "0 (probs) or 1 (position)");
  }
  if (by_probs) master::require_matrix("probs", probs);
  if (options.capacity < 0) {
    master::refuse("options.capacity", std::to_string(options.capacity),
                   "at least 0");
  }
  const std::size_t tokens = probs.rows;
  const std::size_t experts = probs.columns;
  if (tokens == 0 || experts == 0) return;
  const ExpertChoices choices{map, ExpertChoices::kMap, tokens, experts};
  require_choices(choices);
  const std::size_t all = tokens * experts;
  master::require_array("kept", kept, 1, all);
  const auto capacity = static_cast<std::size_t>(options.capacity);
  if (capacity > tokens) {
    for (std::size_t i = 0; i < all; ++i) {
      kept[i] = options.pad || map[i] != 0 ? 1 : 0;
    }
    return;
  }
  if (by_probs) {
    // The `capacity` highest keys of each expert; the key of nan is the
    // highest.
    struct Token {
      std::int64_t key;
      std::size_t index;
    };
    std::vector<Token> column(tokens);
    const auto before = [](const Token& a, const Token& b) {
      return a.key != b.key ? a.key > b.key : a.index < b.index;
    };
    for (std::size_t e = 0; e < experts; ++e) {
      for (std::size_t t = 0; t < tokens; ++t) {
        const std::byte* at =
            row_of(probs, t) + e * master::kScalarTypeBytes[probs.dtype];
        float value;
        if (probs.dtype == kFloat32) {
          std::memcpy(&value, at, sizeof value);
        } else {
          std::uint16_t bits;
          std::memcpy(&bits, at, sizeof bits);
          value = probs.dtype == kFloat16 ? float16_to_float(bits)
                                          : bfloat16_to_float(bits);
        }
        const std::uint32_t number = float_to_bits(value);
        const std::int64_t magnitude = number & 0x7fffffffu;
        column[t] = {magnitude, t};
        if (magnitude > 0x7f800000) {
          column[t].key = std::int64_t{1} << 32;
        } else if (number >> 31 != 0) {
          column[t].key = -magnitude;
        }
      }
      if (capacity < tokens) {
        std::nth_element(column.begin(),
                         column.begin() + static_cast<std::ptrdiff_t>(capacity),
                         column.end(), before);
      }
      for (std::size_t i = 0; i < tokens; ++i) {
        const std::size_t at = column[i].index * experts + e;
        kept[at] = i < capacity && (options.pad || map[at] != 0) ? 1 : 0;
      }
    }
    return;
  }
  std::vector<std::int32_t> positions(all);
  moe_positions(choices, options.capacity, positions.data(), machine);
  std::vector<std::size_t> counts(experts);
  for (std::size_t i = 0; i < all; ++i) {
    kept[i] = positions[i] >= 0 ? 1 : 0;
    counts[i % experts] += kept[i];
  }
  if (!options.pad) return;
  // An expert that is not full has kept all tokens that chose it.
  for (std::size_t i = 0; i < all; ++i) {
    if (kept[i] != 0 || counts[i % experts] == capacity) continue;
    kept[i] = 1;
    ++counts[i % experts];
  }
}

std::size_t moe_permutation(const ExpertChoices& choices,
                            const std::int32_t* positions,
                            std::size_t rows_per_expert, std::size_t rows,
                            std::int64_t* entries) {
  require_choices(choices);
  const std::size_t all = choices.count * width(choices);
  master::require_array("positions", positions, sizeof *positions, all);
  master::require_array("entries", entries, sizeof *entries, rows);
  const auto expert_of = [&](std::size_t i) -> std::size_t {
    switch (choices.kind) {
      case ExpertChoices::kMap:
        return i % choices.experts;
      case ExpertChoices::kInt64:
        return static_cast<std::size_t>(
            static_cast<const std::int64_t*>(choices.data)[i]);
      default:
        return static_cast<std::size_t>(
            static_cast<const std::int32_t*>(choices.data)[i]);
    }
  };
  const auto bad_position = [&](std::size_t i) {
    master::refuse("positions[" + std::to_string(i) + "]",
                   std::to_string(positions[i]),
                   "a position of moe_positions() for these choices");
  };
  std::vector<std::size_t> first(choices.experts + 1);
  for (std::size_t i = 0; i < all; ++i) {
    if (positions[i] < 0) continue;
    if (expert_of(i) >= choices.experts) bad_position(i);
    ++first[expert_of(i) + 1];
  }
  if (rows_per_expert > rows / choices.experts) {
    master::refuse("rows_per_expert", std::to_string(rows_per_expert),
                   "at most " + std::to_string(rows / choices.experts) + ", " +
                       std::to_string(rows) + " rows / " +
                       std::to_string(choices.experts) + " experts");
  }
  for (std::size_t e = 0; e < choices.experts; ++e) {
    if (rows_per_expert != 0) first[e + 1] = rows_per_expert;
    first[e + 1] += first[e];
  }
  const std::size_t used = first.back();
  if (used > rows) {
    master::refuse("rows", std::to_string(rows),
                   "at least " + std::to_string(used));
  }
  for (std::size_t i = 0; i < all; ++i) {
    if (positions[i] < 0) continue;
    const std::size_t e = expert_of(i);
    if (static_cast<std::size_t>(positions[i]) >= first[e + 1] - first[e]) {
      bad_position(i);
    }
  }
  std::fill(entries, entries + rows, -1);
  for (std::size_t i = 0; i < all; ++i) {
    if (positions[i] < 0) continue;
    entries[first[expert_of(i)] + static_cast<std::size_t>(positions[i])] =
        static_cast<std::int64_t>(i);
  }
  return used;
}

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
      master::row_kernel<KernelFamily::softmax_backward_sum, 3>(tokens.dtype),
      &args);
  sum.tile_step = slave::kChains;
  sum.remove_operand(2);
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
                       row_of(permuted, r), nullptr});
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
                  Machine* machine) {
  master::require_matrix("logits", logits);
  master::require_array("lse", lse, sizeof *lse, logits.rows);
  if (logits.columns == 0) {
    std::fill(lse, lse + logits.rows, -std::numeric_limits<float>::infinity());
  } else if (logits.rows != 0) {
    // Cross entropy computes lse also of rows that it ignores.
    const CrossEntropyOptions options;
    const std::vector<std::int64_t> targets(logits.rows, options.ignore_index);
    std::vector<float> losses(logits.rows);
    cross_entropy(logits, targets.data(), losses.data(), lse, options, machine);
  }
  double sum = 0;
  for (std::size_t i = 0; i < logits.rows; ++i) {
    sum += static_cast<double>(lse[i]) * static_cast<double>(lse[i]);
  }
  return coefficient * (sum / static_cast<double>(logits.rows));
}

void moe_z_loss_backward(double gradient, const Matrix& logits,
                         double coefficient, const float* lse, const Matrix& dx,
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
  cross_entropy_backward(logits, targets.data(), lse, gradients.data(), dx,
                         options, machine);
}

}  // namespace swamp
