// Attention without a matrix of scores. The queries of every head are divided
// into panels of rows ("lanes"), which a slave packs. Keys and values stream
// past each panel; its state (maximum, sum, output) is a partial result, which
// a last launch turns into rows. The size of a panel follows from LDM and does
// not change the bits. The kernels and their formulas are in
// slave/attention_args.h.
//
// The caller keeps one float32 number for the log-sum-exp of a query. Backward
// computes what its rounding lost again, by the forward launches, for queries
// whose scores are so large that it matters.
#include "master/attention.h"

#include <limits>
#include <string>
#include <vector>

#include "master/text.h"

namespace swamp {
namespace master {

using slave::AttentionArgs;
using slave::AttentionPosition;
using slave::AttentionState;

namespace {

// require_heads() throws Error unless the dtype is one of the three and the
// data are aligned, not null and of a possible size.
void require_heads(const char* name, const Heads& x) {
  const Checker check(name);
  // The number of rows of a matrix of all heads.
  std::size_t rows = x.rows;
  for (const auto& [size, text] :
       {std::pair{x.heads, "heads"}, std::pair{x.batch, "batch"}}) {
    if (size == 0 || rows == 0) {
      rows = 0;
      break;
    }
    check.at_most(text, size, kMaxBytes / rows);
    rows *= size;
  }
  require_matrix(name, {x.data, rows, x.columns, x.dtype});
  if (x.columns == 0 || x.columns > slave::kMaxAttentionColumns) {
    refuse(std::string(name) + ".columns", std::to_string(x.columns),
           "1 to " + std::to_string(slave::kMaxAttentionColumns),
           x.columns == 0 ? SWAMP_INVALID_ARGUMENT : SWAMP_UNSUPPORTED);
  }
}

}  // namespace

void require_attention(const Heads& q, const Heads& k, const Heads& v,
                       const AttentionOptions& options) {
  require_heads("q", q);
  require_heads("k", k);
  require_heads("v", v);
  Checker("k")
      .dtype(k.dtype, q.dtype, "q")
      .same("batch", k.batch, q.batch, "q")
      .same("columns", k.columns, q.columns, "q");
  Checker("v")
      .dtype(v.dtype, q.dtype, "q")
      .same("batch", v.batch, q.batch, "q")
      .same("heads", v.heads, k.heads, "k")
      .same("rows", v.rows, k.rows, "k");
  if (k.heads == 0 ? q.heads != 0 : q.heads % k.heads != 0) {
    refuse("k.heads", std::to_string(k.heads),
           "a divisor of q.heads, " + std::to_string(q.heads));
  }
  require_mask(q, k, options.mask);
}

void require_like_heads(const char* name, const Heads& x, const Heads& other,
                        const char* other_name, std::size_t columns,
                        const char* columns_of) {
  require_heads(name, x);
  Checker(name)
      .dtype(x.dtype, other.dtype, other_name)
      .same("batch", x.batch, other.batch, other_name)
      .same("heads", x.heads, other.heads, other_name)
      .same("rows", x.rows, other.rows, other_name)
      .same("columns", x.columns, columns, columns_of);
}

namespace {

// AttentionForward is a call of attention().
struct AttentionForward : Attention {
  bool shares_keys = false;  // slaves share the keys of a query

  explicit AttentionForward(const Attention& call) : Attention(call) {}

  // attention_operations() stream keys and values past a panel of queries.
  PanelOperations attention_operations() const {
    using At = slave::AttentionOperand;
    return {row_kernel<KernelFamily::attention>(q.dtype), args, queries,
            slave::attention_scratch_bytes(q.columns, v.columns, args.lanes,
                                           q.dtype == kFloat32),
            [&](Operation& operation, std::size_t rows) {
              operation.set_unit_bytes(At::k, q.columns * element_bytes);
              operation.set_unit_bytes(At::v, v.columns * element_bytes);
              operation.set_unit_bytes(At::q, rows * q.columns * element_bytes);
              operation.set_unit_bytes(At::mask,
                                       options.mask.data == nullptr
                                           ? 0
                                           : args.lanes * sizeof(float));
              operation.tile_step = static_cast<std::uint32_t>(
                  slave::attention_keys(q.columns, v.columns));
            }};
  }
  std::size_t state_bytes() const {
    return AttentionState::bytes(args.lanes, v.columns);
  }
  PanelOperations output_operations() const {
    using At = slave::AttentionOutputOperand;
    return {row_kernel<KernelFamily::attention_output>(q.dtype), args, queries,
            0, [&](Operation& operation, std::size_t rows) {
              operation.set_unit_bytes(At::out,
                                       rows * v.columns * element_bytes);
              operation.set_unit_bytes(At::state, state_bytes());
              operation.set_unit_bytes(At::lse, rows * sizeof(float));
            }};
  }

  // run_forward() computes the states of `count` heads of queries from head
  // `first` on. wants(row, rows) returns whether a panel of queries is
  // computed, and finish(panels, first_row, states) gets the panels of some
  // heads, their first query and their states.
  template <class Wants, class Finish>
  void run_forward(std::size_t first, std::size_t count, Wants wants,
                   Finish finish) {
    const auto slaves = static_cast<std::size_t>(machine.slaves());
    // Smaller panels if there are less than 4 for each slave, and not an even
    // number. Half as many lanes are as fast, a quarter is not.
    constexpr std::size_t kMostLanes = slave::kMaxAttentionLanes;
    const std::size_t most_panels = Panels{count, q.rows, kMostLanes}.count();
    const bool few =
        most_panels < 4 * slaves && most_panels % (2 * slaves) != 0;
    const bool one = q.rows == 1;
    shares_keys = one && one_query_shares_keys(*this, count);
    const std::size_t most = one ? 1 : few ? kMostLanes / 2 : kMostLanes;
    choose_lanes(queries, most, [&] {
      const auto need = [&](const Operation& operation, std::size_t partial) {
        return runtime::ldm_need(machine, operation, partial);
      };
      return std::max(
          {need(attention_operations().operations[0], state_bytes()),
           need(output_operations().operations[0], 0),
           shares_keys ? one_query_need(*this) : runtime::LdmNeed{}},
          [](const runtime::LdmNeed& a, const runtime::LdmNeed& b) {
            return a.needed_bytes < b.needed_bytes;
          });
    });
    // As many heads at once as need 16 MiB of float32 memory, but at least 32
    // panels for each slave, so that all end at nearly the same time, and
    // spawns and joins take little time.
    const std::size_t mask_floats =
        options.mask.data == nullptr ? 0 : k.rows * args.lanes;
    const std::size_t head_floats =
        queries.per_head() * (state_bytes() / sizeof(float) + mask_floats) +
        (shares_keys ? one_query_floats(*this) : 0);
    constexpr std::size_t kMostFloats = std::size_t{4} << 20;
    const std::size_t enough =
        shares_keys
            ? 1
            : (32 * slaves + queries.per_head() - 1) / queries.per_head();
    const std::size_t heads =
        heads_at_once(std::max(kMostFloats / head_floats, enough), count);
    PackedMask mask(machine, options.mask, q, k);
    for (std::size_t done = 0; done < count; done += heads) {
      forward_heads(mask, first + done, std::min(heads, count - done), wants,
                    finish);
    }
  }

  // forward_heads() computes the states of `heads` heads, from `first` on.
  template <class Wants, class Finish>
  void forward_heads(PackedMask& mask, std::size_t first, std::size_t heads,
                     const Wants& wants, const Finish& finish) const {
    const Panels panels{heads, queries.rows, queries.lanes};
    const std::size_t count = panels.count();
    const std::size_t first_row = first * q.rows;
    const std::size_t state_floats = state_bytes() / sizeof(float);
    mask.pack_queries(panels, first, heads);
    if (shares_keys) {
      std::vector<bool> wanted(heads);
      for (std::size_t i = 0; i < heads; ++i) wanted[i] = wants(first + i, 1);
      finish(panels, first, one_query_states(*this, mask, first, wanted));
      return;
    }
    std::vector<AttentionPosition> positions(panels.per_head());
    for (std::size_t i = 0; i < positions.size(); ++i) {
      positions[i] = {visible_keys() +
                      static_cast<std::int64_t>(panels.row(i))};
    }
    Workspace& workspace = Workspace::of_this_thread();
    // The state of a panel that sees no key.
    float* const empty = workspace.row_values<float>(state_floats);
    std::fill(empty, empty + state_floats, 0.0f);
    const PanelOperations operations = attention_operations();
    const GrainRule whole_segments{std::max<std::size_t>(1, k.rows),
                                   ~std::size_t{0}, false};
    RowTable table(operations.operations, 2, count, false, whole_segments,
                   workspace.segments());
    // Causal panels of a head see more and more keys: the first one, the last
    // one, the second one, and so on, so that neighbours have equal sums.
    const std::size_t per_head = positions.size();
    const auto panel_of = [&](std::size_t segment) {
      return segment % 2 == 0 ? segment / 2 : per_head - 1 - segment / 2;
    };
    for (std::size_t head = 0; head < heads; ++head) {
      const std::size_t first_key = key_head(first + head) * k.rows;
      for (std::size_t segment = 0; segment < per_head; ++segment) {
        const std::size_t i = panel_of(segment), at = i * panels.lanes;
        const std::size_t panel_rows = std::min(panels.lanes, q.rows - at);
        const AttentionPosition& position = positions[i];
        const std::int64_t last =
            position.visible + static_cast<std::int64_t>(panel_rows) - 1;
        const bool wanted = wants(first_row + head * q.rows + at, panel_rows);
        const auto keys = static_cast<std::size_t>(std::clamp<std::int64_t>(
            last, 0, wanted ? static_cast<std::int64_t>(k.rows) : 0));
        table.add(keys,
                  {row(k, first_key), row(v, first_key),
                   row(q, first_row + head * q.rows + at), mask.values(head, i),
                   &position},
                  queries.is_last(i));
      }
    }
    workspace.run(machine, table.list(), state_bytes());

    std::vector<const void*> states(count, empty);
    workspace.for_each_partial<float>(
        table.list(), [&](std::size_t segment, const float& state) {
          const std::size_t i = segment % per_head;
          states[segment - i + panel_of(i)] = &state;
        });
    finish(panels, first_row, states);
  }

  void forward(const Heads& out, float* lse) {
    const auto write = [&](const Panels& panels, std::size_t first_row,
                           const std::vector<const void*>& states) {
      Workspace& workspace = Workspace::of_this_thread();
      const PanelOperations output = output_operations();
      RowTable outputs = output.table(panels.count(), workspace.segments());
      std::size_t i = 0;
      for (std::size_t head = 0; head < panels.heads; ++head) {
        for (std::size_t at = 0; at < q.rows; at += panels.lanes, ++i) {
          const std::size_t first = first_row + head * q.rows + at;
          outputs.add(1, {row(out, first), states[i], lse + first},
                      q.rows - at < panels.lanes ? 1 : 0);
        }
      }
      workspace.run(machine, outputs.list());
    };
    run_forward(
        0, queries.heads, [](auto...) { return true; }, write);
  }

  // find_lost_lse() computes LogSumExp::low of each query for its `lse`.
  void find_lost_lse(const float* lse, slave::AttentionDot* dots) {
    const auto is_large = [&](std::size_t i) {
      return slave::has_lost_lse(lse[i], q.dtype == kFloat32);
    };
    const auto has_large = [&](std::size_t first, std::size_t rows) {
      for (std::size_t i = first; i < first + rows; ++i) {
        if (is_large(i)) return true;
      }
      return false;
    };
    const auto write = [&](const Panels& panels, std::size_t first_row,
                           const std::vector<const void*>& states) {
      for (std::size_t i = 0; i < panels.count(); ++i) {
        const auto* state = static_cast<const float*>(states[i]);
        for (std::size_t r = 0; r < panels.rows_of(i); ++r) {
          const std::size_t at = first_row + panels.flat_row(i) + r;
          if (!is_large(at)) continue;
          const float max = state[AttentionState::kMax * args.lanes + r];
          const float sum = state[AttentionState::kSum * args.lanes + r];
          const double high = static_cast<double>(lse[at]);
          const double low = (static_cast<double>(max) - high) +
                             slave::log_positive(static_cast<double>(sum));
          // Rounding loses no more. If the difference is larger, the lse covers
          // more keys than these: the caller computes them in panels.
          if (std::fabs(low) <= 0x1.1p-24 * std::fabs(high)) {
            dots[at].lse.low = static_cast<float>(low);
          }
        }
      }
    };
    for (std::size_t head = 0; head < queries.heads;) {
      std::size_t end = head;
      while (end < queries.heads && has_large(end * q.rows, q.rows)) ++end;
      if (end != head) run_forward(head, end - head, has_large, write);
      head = std::max(end, head + 1);
    }
  }
};

}  // namespace

void find_lost_lse(const Attention& call, const float* lse,
                   slave::AttentionDot* dots) {
  AttentionForward(call).find_lost_lse(lse, dots);
}

}  // namespace master

void attention(const Heads& q, const Heads& k, const Heads& v, const Heads& out,
               float* lse, const AttentionOptions& options, Machine* machine) {
  master::require_attention(q, k, v, options);
  master::require_like_heads("out", out, q, "q", v.columns, "v");
  const std::size_t rows = q.batch * q.heads * q.rows;
  master::require_array("lse", lse, sizeof(float), rows);
  Machine::Impl& impl = master::impl_of(machine);
  if (rows == 0) return;
  master::AttentionForward(master::Attention(impl, q, k, v, options))
      .forward(out, lse);
}

}  // namespace swamp
