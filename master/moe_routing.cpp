// Mixtures of experts: counts, positions, capacity and permutation. A token's
// position among those of its expert is a prefix sum: a launch counts the
// entries of each expert by grain, the master adds the counts up, and a second
// launch numbers the entries of each grain from there.
#include <algorithm>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "master/partition.h"
#include "master/row_launch.h"
#include "master/text.h"
#include "swamp/moe.h"

namespace swamp {

using master::GrainRule;
using master::RowTable;
using master::Workspace;
using slave::MoeArgs;

namespace {

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
  const std::size_t alignment =
      choices.kind == ExpertChoices::kMap ? 1 : unit_bytes(choices);
  master::Checker("choices")
      .at_most("count", choices.count, kMost / width(choices))
      .data(choices.data, alignment, choices.count);
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

// moe_operation() is an operation on numbers of experts, or on a map.
Operation moe_operation(const ExpertChoices& choices, KernelFamily of_numbers,
                        KernelFamily of_map, const MoeArgs& args) {
  const KernelId id =
      choices.kind == ExpertChoices::kMap
          ? slave::kernel_of(of_map, {})
          : slave::kernel_of(of_numbers, choices.kind == ExpertChoices::kInt32
                                             ? slave::kInt32
                                             : slave::kInt64);
  return Operation(slave::kKernels[id], &args, args.experts);
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
  const Operation operation = moe_operation(choices, KernelFamily::moe_count,
                                            KernelFamily::moe_count_map, args);
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

// priority_of() orders the tokens of an expert by their probability, of equal
// ones the lowest first: in the high 32 bits a number that grows with it, that
// of nan is the highest; in the others one that falls with the token.
// Positive probabilities have priorities above kZeroPriority.
constexpr std::uint64_t kZeroPriority = std::uint64_t{0x80000000u} << 32 | ~0u;
std::uint64_t priority_of(float prob, std::size_t token) {
  const std::uint32_t bits = float_to_bits(prob);
  constexpr std::uint32_t kZero = kZeroPriority >> 32;
  const std::uint32_t magnitude = bits & ~kZero;
  std::uint32_t key =
      (bits & kZero) != 0 ? kZero - magnitude : kZero + magnitude;
  if (magnitude > 0x7f800000u) key = ~0u;
  return std::uint64_t{key} << 32 | (0xfffffffeu - token);
}

// lowest_kept() returns the `capacity`-th highest of `count` priorities.
// `scratch` holds `count` numbers.
std::uint64_t lowest_kept(const std::uint64_t* all, std::size_t count,
                          std::size_t capacity, std::uint64_t* scratch) {
  const auto is_positive = [](std::uint64_t x) { return x > kZeroPriority; };
  std::uint64_t* const nth = scratch + (capacity - 1);
  std::uint64_t* from = scratch;
  std::uint64_t* to = std::copy_if(all, all + count, from, is_positive);
  if (nth >= to) {
    from = to;
    to = std::remove_copy_if(all, all + count, from, is_positive);
  }
  // Most probabilities are 0, and their priorities are in order already.
  if (!std::is_sorted(from, to, std::greater<>())) {
    std::nth_element(from, nth, to, std::greater<>());
  }
  return *nth;
}

// keep_by_probs() keeps the `capacity` tokens of the highest priority of each
// expert; widen() returns an element of probs as a float.
template <class Element, class Widen>
void keep_by_probs(const Matrix& probs, const std::uint8_t* map,
                   std::size_t capacity, bool pad, std::uint8_t* kept,
                   const Widen& widen) {
  // A few experts at a time, because their probabilities lie side by side. The
  // stride is not a power of 2, which would use few lines of a cache.
  constexpr std::size_t kTogether = 16;
  const std::size_t tokens = probs.rows, experts = probs.columns;
  const std::size_t stride = tokens + 8;
  std::vector<std::uint64_t> priorities(kTogether * stride), scratch(tokens);
  const auto* x = static_cast<const Element*>(probs.data);
  for (std::size_t first = 0; first < experts; first += kTogether) {
    const std::size_t count = std::min(kTogether, experts - first);
    for (std::size_t t = 0; t < tokens; ++t) {
      for (std::size_t i = 0; i < count; ++i) {
        priorities[i * stride + t] =
            priority_of(widen(x[t * experts + first + i]), t);
      }
    }
    std::uint64_t lowest[kTogether];
    for (std::size_t i = 0; i < count; ++i) {
      lowest[i] = capacity == 0 ? ~std::uint64_t{0}  // above all
                                : lowest_kept(&priorities[i * stride], tokens,
                                              capacity, scratch.data());
    }
    for (std::size_t t = 0; t < tokens; ++t) {
      for (std::size_t i = 0; i < count; ++i) {
        const std::size_t at = t * experts + first + i;
        const bool chosen = pad || map[at] != 0;
        kept[at] = chosen && priorities[i * stride + t] >= lowest[i] ? 1 : 0;
      }
    }
  }
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
  const Operation operation =
      moe_operation(choices, KernelFamily::moe_position,
                    KernelFamily::moe_position_map, args);
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
  if (by_probs && probs.dtype == kFloat16) {
    return keep_by_probs<std::uint16_t>(probs, map, capacity, options.pad, kept,
                                        float16_to_float);
  }
  if (by_probs && probs.dtype == kBFloat16) {
    return keep_by_probs<std::uint16_t>(probs, map, capacity, options.pad, kept,
                                        bfloat16_to_float);
  }
  if (by_probs) {
    return keep_by_probs<float>(probs, map, capacity, options.pad, kept,
                                [](float x) { return x; });
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

}  // namespace swamp
