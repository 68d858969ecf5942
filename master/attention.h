// What attention and its gradients have in common: validation, panels of rows,
// and one call after validation.
#ifndef SWAMP_MASTER_ATTENTION_H_
#define SWAMP_MASTER_ATTENTION_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "master/attention_mask.h"
#include "master/row_launch.h"
#include "slave/attention_args.h"
#include "swamp/attention.h"

namespace swamp::master {

// require_attention() checks what forward and backward have in common.
void require_attention(const Heads& q, const Heads& k, const Heads& v,
                       const AttentionOptions& options);
// require_like_heads() checks an array that has the shape of `other`, but the
// columns of `columns_of`.
void require_like_heads(const char* name, const Heads& x, const Heads& other,
                        const char* other_name, std::size_t columns,
                        const char* columns_of);

// PanelOperations is an operation whose unit is a panel: [0] of `lanes` rows,
// [1] of the last panel of a head.
struct PanelOperations {
  slave::AttentionArgs args[2];
  Operation operations[2];

  // set_bytes(operation, rows) sets the bytes of the operands of a panel.
  template <class SetBytes>
  PanelOperations(const KernelInfo& kernel, const slave::AttentionArgs& common,
                  const Panels& panels, std::size_t scratch_bytes,
                  SetBytes set_bytes) {
    const std::size_t last = panels.rows % panels.lanes;
    for (int i = 0; i < 2; ++i) {
      const std::size_t rows = i == 1 && last != 0 ? last : panels.lanes;
      args[i] = common;
      args[i].rows = static_cast<std::uint32_t>(rows);
      operations[i] = Operation(kernel, &args[i]);
      operations[i].scratch_bytes = static_cast<std::uint32_t>(scratch_bytes);
      set_bytes(operations[i], rows);
    }
  }
  PanelOperations(const PanelOperations&) = delete;

  RowTable table(std::size_t count, Buffer<std::byte>& memory) const {
    return {operations, 2, count, false, {1, ~std::size_t{0}}, memory};
  }
};

// Attention is one call, after validation.
struct Attention {
  Machine::Impl& machine;
  const Heads& q;
  const Heads& k;
  const Heads& v;
  const AttentionOptions& options;
  slave::AttentionArgs args;
  Panels queries;
  std::size_t element_bytes;

  Attention(Machine::Impl& where, const Heads& query, const Heads& key,
            const Heads& value, const AttentionOptions& how)
      : machine(where),
        q(query),
        k(key),
        v(value),
        options(how),
        args{static_cast<std::uint32_t>(q.columns),
             static_cast<std::uint32_t>(v.columns),
             0,
             0,
             how.scale.value_or(static_cast<float>(
                 1 / std::sqrt(static_cast<double>(q.columns)))),
             0,
             0},
        queries{q.batch * q.heads, q.rows, 0},
        element_bytes(kScalarTypeBytes[q.dtype]) {}

  std::byte* row(const Heads& x, std::size_t i) const {
    return static_cast<std::byte*>(x.data) + i * x.columns * element_bytes;
  }
  // visible_keys() is the number of keys that query 0 sees: query i sees i
  // more. Negative if it sees none.
  std::int64_t visible_keys() const {
    switch (options.causal) {
      case AttentionCausal::top_left:
        return 1;
      case AttentionCausal::bottom_right:
        return 1 + static_cast<std::int64_t>(k.rows) -
               static_cast<std::int64_t>(q.rows);
      case AttentionCausal::none:
        break;
    }
    return slave::AttentionPosition::kAll;
  }

  // key_head() is the head of k and v, of all batches, that a head of q uses.
  std::size_t key_head(std::size_t head) const {
    return head / (q.heads / k.heads);
  }

  // pack_operations() returns the operations that pack rows of x. `wide` is
  // whether they also widen them. Packed panels are `step` floats apart.
  PanelOperations pack_operations(const Heads& x, const Panels& panels,
                                  bool wide, std::size_t step) const {
    using At = slave::AttentionPackOperand;
    slave::AttentionArgs packed = args;
    packed.columns = static_cast<std::uint32_t>(x.columns);
    const std::size_t wide_bytes =
        wide ? slave::attention_padded(x.columns) * sizeof(float) : 0;
    return {row_kernel<KernelFamily::attention_pack>(x.dtype), packed, panels,
            0, [&](Operation& operation, std::size_t rows) {
              operation.set_unit_bytes(At::x, rows * x.columns * element_bytes);
              operation.set_unit_bytes(
                  At::packed, panels.lanes * x.columns * sizeof(float));
              // Transposing takes longer than the transfers.
              operation.traffic_bytes +=
                  3 * operation.operands[At::packed].unit_bytes;
              operation.set_unit_bytes(At::wide, rows * wide_bytes);
              for (int s = At::packed; s < At::count; ++s) {
                Operand& packed_operand = operation.operands[s];
                if (packed_operand.unit_bytes == 0) continue;
                packed_operand.unit_step = step * sizeof(float);
              }
            }};
  }

  // choose_lanes() sets the size of a panel: the largest that fits into LDM,
  // but not more than `most`, and not twice as many lanes as rows. need_of()
  // returns the need of the operation that needs the most LDM.
  template <class Need>
  void choose_lanes(Panels& panels, std::size_t most, Need need_of) {
    for (std::size_t lanes = most;; lanes /= 2) {
      panels.lanes = lanes;
      args.lanes = static_cast<std::uint32_t>(lanes);
      if (lanes <= slave::kAttentionLanes) {
        require_ldm("q", {q.data, q.rows, q.columns, q.dtype}, need_of());
        return;
      }
      if (lanes / 2 < panels.rows && need_of().fits()) return;
    }
  }

  // heads_at_once() returns how many heads are computed at once if `wanted` are
  // enough, so that the last ones are about as many.
  static std::size_t heads_at_once(std::size_t wanted, std::size_t heads) {
    const std::size_t most = std::clamp<std::size_t>(wanted, 1, heads);
    const std::size_t times = (heads + most - 1) / most;
    return (heads + times - 1) / times;
  }
};

// One query of a head. one_query_shares_keys() returns whether slaves share the
// keys of `heads` heads, because heads alone would leave many of them without
// work. one_query_need() is the most LDM that the launches need,
// one_query_floats() their memory for a head, and one_query_states() computes
// the AttentionState of each head that is `wanted`, from head `first` on, after
// mask.pack_queries(). A head without keys has the state of no key. The states
// are valid until the next launch.
bool one_query_shares_keys(const Attention& call, std::size_t heads);
runtime::LdmNeed one_query_need(const Attention& call);
std::size_t one_query_floats(const Attention& call);
std::vector<const void*> one_query_states(const Attention& call,
                                          PackedMask& mask, std::size_t first,
                                          const std::vector<bool>& wanted);

// find_lost_lse() computes LogSumExp::low of each query for its `lse`, if
// has_lost_lse(). It uses Workspace::row_values().
void find_lost_lse(const Attention& call, const float* lse,
                   slave::AttentionDot* dots);

}  // namespace swamp::master

#endif  // SWAMP_MASTER_ATTENTION_H_
