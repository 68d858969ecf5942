// Attention of one query, as in generation with a cache: keys are shared
// between slaves. The first launch computes scores, the second one a state for
// each step of keys, and the third one merges the states of a head in order.
#include <algorithm>
#include <limits>
#include <vector>

#include "master/attention.h"

namespace swamp::master {
namespace {

using slave::AttentionArgs;
using slave::AttentionState;

// keys_of() returns the number of keys that the query of a head sees.
std::size_t keys_of(const Attention& call) {
  return static_cast<std::size_t>(std::clamp<std::int64_t>(
      call.visible_keys(), 0, static_cast<std::int64_t>(call.k.rows)));
}

// OneQuery is a call with one query for each head.
struct OneQuery : Attention {
  static constexpr std::size_t kGrain = slave::kAttentionGrain;

  std::size_t keys;           // that the query sees
  std::size_t step;           // keys of a step
  AttentionArgs whole, last;  // of steps, and of the last one if it has fewer
  Operation scores, whole_steps, last_step, merge;

  explicit OneQuery(const Attention& call)
      : Attention(call),
        keys(keys_of(call)),
        step(slave::attention_keys(q.columns, v.columns)),
        whole(args),
        last(args),
        scores(row_kernel<KernelFamily::attention_scores>(q.dtype), &args),
        merge(row_kernel<KernelFamily::attention_merge>(kFloat32), &args) {
    using At = slave::AttentionScoresOperand;
    scores.set_unit_bytes(At::k, q.columns * element_bytes);
    scores.set_unit_bytes(At::q, q.columns * element_bytes);
    scores.set_unit_bytes(At::mask,
                          options.mask.data == nullptr ? 0 : sizeof(float));
    scores.scratch_bytes = static_cast<std::uint32_t>(
        slave::attention_row_scratch_bytes(q.columns));
    whole.rows = static_cast<std::uint32_t>(step);
    last.rows = static_cast<std::uint32_t>(keys % step);
    whole_steps = steps_operation(whole);
    last_step = steps_operation(last);
    merge.set_unit_bytes(0, state_floats() * sizeof(float));
  }
  OneQuery(const OneQuery&) = delete;

  Operation steps_operation(const AttentionArgs& steps) const {
    using At = slave::AttentionStepsOperand;
    Operation operation(row_kernel<KernelFamily::attention_steps>(q.dtype),
                        &steps);
    operation.set_unit_bytes(At::v, steps.rows * v.columns * element_bytes);
    operation.set_unit_bytes(At::e, steps.rows * sizeof(float));
    operation.set_unit_bytes(At::state, state_floats() * sizeof(float));
    return operation;
  }
  std::size_t state_floats() const {
    return AttentionState::bytes(1, v.columns) / sizeof(float);
  }
  // The keys of whole steps, and the grains of keys. The last step is a grain
  // of its own if it has fewer keys.
  std::size_t whole_keys() const { return keys - last.rows; }
  std::size_t grains() const {
    return divided(whole_keys(), kGrain) + (last.rows != 0 ? 1 : 0);
  }
  std::size_t first_key(std::size_t grain) const {
    return std::min(grain * kGrain, whole_keys());
  }
};

}  // namespace

bool one_query_shares_keys(const Attention& call, std::size_t heads) {
  const std::size_t keys = keys_of(call);
  const std::uint64_t bytes = static_cast<std::uint64_t>(heads) * keys *
                              (call.q.columns + call.v.columns) *
                              call.element_bytes;
  const auto slaves = static_cast<std::size_t>(std::min(
      runtime::divide(call.machine, bytes).slaves, call.machine.slaves()));
  // Sharing costs two more launches and a tenth of the time of a slave.
  const std::size_t rounds = divided(heads, slaves);
  return keys >= 2 * OneQuery::kGrain && 5 * heads < 4 * rounds * slaves;
}

runtime::LdmNeed one_query_need(const Attention& call) {
  const OneQuery one(call);
  const std::size_t state_bytes = one.state_floats() * sizeof(float);
  return std::max(
      {runtime::ldm_need(one.machine, one.scores, sizeof(float)),
       runtime::ldm_need(one.machine, one.whole_steps, sizeof(float)),
       runtime::ldm_need(one.machine, one.merge, state_bytes)},
      [](const runtime::LdmNeed& a, const runtime::LdmNeed& b) {
        return a.needed_bytes < b.needed_bytes;
      });
}

std::size_t one_query_floats(const Attention& call) {
  const OneQuery one(call);
  return one.keys + one.grains() +
         (divided(one.keys, one.step) + 1) * one.state_floats();
}

std::vector<const void*> one_query_states(const Attention& call,
                                          PackedMask& mask, std::size_t first,
                                          const std::vector<bool>& wanted) {
  const OneQuery one(call);
  const std::size_t heads = wanted.size(), keys = one.keys;
  const std::size_t steps = divided(keys, one.step);
  const std::size_t grains = one.grains(), floats = one.state_floats();
  Workspace& workspace = Workspace::of_this_thread();
  // Scores of all heads, the largest ones before each grain, the states of
  // steps, and the state of no key.
  float* const e = workspace.row_values<float>(
      heads * (keys + grains + steps * floats) + floats);
  float* const before = e + heads * keys;
  float* const states = before + heads * grains;
  float* const empty = states + heads * steps * floats;
  std::fill(empty, empty + floats, 0.0f);
  std::vector<const void*> result(heads, empty);
  if (keys == 0) return result;
  const auto key = [&](const Heads& x, std::size_t head, std::size_t i) {
    return one.row(x, one.key_head(first + head) * one.k.rows + i);
  };
  const auto for_heads = [&](const auto& visit) {
    for (std::size_t head = 0; head < heads; ++head) {
      if (wanted[head]) visit(head);
    }
  };
  const GrainRule grain_rule{OneQuery::kGrain, ~std::size_t{0}, false};
  const GrainRule whole_segments{keys, ~std::size_t{0}, false};

  RowTable scores(one.scores, 2 * heads, true, grain_rule,
                  workspace.segments());
  for_heads([&](std::size_t head) {
    const float* const values = mask.values(head, 0);
    const auto add = [&](std::size_t begin, std::size_t count) {
      if (count == 0) return;
      scores.add(count, {key(one.k, head, begin), one.row(one.q, first + head),
                         values == nullptr ? nullptr : values + begin,
                         e + head * keys + begin});
    };
    add(0, one.whole_keys());
    add(one.whole_keys(), one.last.rows);
  });
  workspace.run_by_grain(one.machine, scores.list(), sizeof(float));
  const float* largest = workspace.partials<float>();
  for_heads([&](std::size_t head) {
    float most = -std::numeric_limits<float>::infinity();
    for (std::size_t i = 0; i < grains; ++i) {
      before[head * grains + i] = most;
      most = std::max(most, *largest++);
    }
  });

  const Operation operations[] = {one.whole_steps, one.last_step};
  RowTable table(operations, 2, heads * grains, false, whole_segments,
                 workspace.segments());
  for_heads([&](std::size_t head) {
    for (std::size_t i = 0; i < grains; ++i) {
      const std::size_t begin = one.first_key(i);
      const std::size_t end = i + 1 == grains ? keys : one.first_key(i + 1);
      const bool is_last = begin == one.whole_keys();
      table.add(divided(end - begin, one.step),
                {key(one.v, head, begin), e + head * keys + begin,
                 before + head * grains + i,
                 states + (head * steps + begin / one.step) * floats},
                is_last ? 1 : 0);
    }
  });
  workspace.run(one.machine, table.list(), sizeof(float));

  RowTable merge(one.merge, heads, false, whole_segments, workspace.segments());
  std::vector<std::size_t> of_segment;
  for_heads([&](std::size_t head) {
    merge.add(steps, {states + head * steps * floats});
    of_segment.push_back(head);
  });
  workspace.run(one.machine, merge.list(), floats * sizeof(float));
  workspace.for_each_partial<float>(
      merge.list(), [&](std::size_t segment, const float& state) {
        result[of_segment[segment]] = &state;
      });
  return result;
}

}  // namespace swamp::master
