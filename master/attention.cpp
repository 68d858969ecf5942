// Attention without a matrix of scores. Forward divides the queries of every
// head into panels of rows ("lanes"), which are packed for the kernels. Keys
// and values stream past each panel; its state (maximum, sum, output) is a
// partial result, which a last launch turns into rows. Backward divides the
// keys: a launch is one panel of keys of every head, past which the queries
// stream. The gradients of keys and values are its partial results, one for
// each grain of queries, and that of q is added in float32 in main memory,
// panel after panel in the order of the keys. The size of a panel follows from
// LDM and does not change the bits. The kernels and their formulas are in
// slave/attention_args.h.
//
// The caller keeps one float32 number for the log-sum-exp of a query. Backward
// computes what its rounding lost again, by the forward launches, for queries
// whose scores are so large that it matters.
#include "swamp/attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "master/attention_mask.h"
#include "master/row_launch.h"
#include "master/text.h"
#include "slave/attention_args.h"

namespace swamp {

using master::PackedMask;
using master::Panels;
using master::RowTable;
using master::Workspace;
using slave::AttentionArgs;
using slave::AttentionPosition;
using slave::AttentionState;

namespace {

// ---- Validation

// require_heads() throws Error unless the dtype is one of the three and the
// data are aligned, not null and of a possible size.
void require_heads(const char* name, const Heads& x) {
  const auto field = [&](const char* text) {
    return std::string(name) + "." + text;
  };
  // The number of rows of a matrix of all heads; 0 if it is too large.
  std::size_t rows = x.rows;
  for (const auto& [size, text] :
       {std::pair{x.heads, "heads"}, std::pair{x.batch, "batch"}}) {
    if (size == 0 || rows == 0) {
      rows = 0;
      break;
    }
    if (rows > master::kMaxBytes / size) {
      master::refuse(field(text), std::to_string(size),
                     "at most " + std::to_string(master::kMaxBytes / rows));
    }
    rows *= size;
  }
  master::require_matrix(name, {x.data, rows, x.columns, x.dtype});
  if (x.columns == 0 || x.columns > slave::kMaxAttentionColumns) {
    master::refuse(field("columns"), std::to_string(x.columns),
                   "1 to " + std::to_string(slave::kMaxAttentionColumns),
                   x.columns == 0 ? SWAMP_INVALID_ARGUMENT : SWAMP_UNSUPPORTED);
  }
}

// require_field() throws unless a field of `name` is as `why` requires.
void require_field(const std::string& name, std::size_t got,
                   std::size_t expected, const char* why) {
  if (got == expected) return;
  master::refuse(name, std::to_string(got),
                 std::to_string(expected) + " (as '" + why + "' has)");
}

// require_attention() checks what forward and backward have in common.
void require_attention(const Heads& q, const Heads& k, const Heads& v,
                       const AttentionOptions& options) {
  require_heads("q", q);
  require_heads("k", k);
  require_heads("v", v);
  require_field("k.dtype", k.dtype, q.dtype, "q");
  require_field("v.dtype", v.dtype, q.dtype, "q");
  require_field("k.batch", k.batch, q.batch, "q");
  require_field("v.batch", v.batch, q.batch, "q");
  require_field("k.columns", k.columns, q.columns, "q");
  require_field("v.heads", v.heads, k.heads, "k");
  require_field("v.rows", v.rows, k.rows, "k");
  if (k.heads == 0 ? q.heads != 0 : q.heads % k.heads != 0) {
    master::refuse("k.heads", std::to_string(k.heads),
                   "a divisor of q.heads, " + std::to_string(q.heads));
  }
  master::require_mask(q, k, options.mask);
}

// require_like() checks an array that has the shape of `other`, but the columns
// of `columns_of`.
void require_like(const char* name, const Heads& x, const Heads& other,
                  const char* other_name, std::size_t columns,
                  const char* columns_of) {
  const auto field = [&](const char* text) {
    return std::string(name) + "." + text;
  };
  require_heads(name, x);
  require_field(field("dtype"), x.dtype, other.dtype, other_name);
  require_field(field("batch"), x.batch, other.batch, other_name);
  require_field(field("heads"), x.heads, other.heads, other_name);
  require_field(field("rows"), x.rows, other.rows, other_name);
  require_field(field("columns"), x.columns, columns, columns_of);
}

// ---- Panels

// PanelOperations is an operation whose unit is a panel: [0] of `lanes` rows,
// [1] of the last panel of a head.
struct PanelOperations {
  AttentionArgs args[2];
  Operation operations[2];

  // set_bytes(operation, rows) sets the bytes of the operands of a panel.
  template <class SetBytes>
  PanelOperations(const KernelInfo& kernel, const AttentionArgs& common,
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

  RowTable table(std::size_t count, master::Buffer<std::byte>& memory) const {
    return {operations, 2, count, false, {1, ~std::size_t{0}}, memory};
  }
};

// ---- Attention

// Attention is one call, after validation.
struct Attention {
  Machine::Impl& machine;
  const Heads& q;
  const Heads& k;
  const Heads& v;
  const AttentionOptions& options;
  AttentionArgs args;
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
             0},
        queries{q.batch * q.heads, q.rows, 0},
        element_bytes(kScalarTypeBytes[q.dtype]) {}

  std::byte* row(const Heads& x, std::size_t i) const {
    return static_cast<std::byte*>(x.data) + i * x.columns * element_bytes;
  }
  Heads from_row(const Heads& x, std::size_t i) const {
    Heads rest = x;
    rest.data = row(x, i);
    return rest;
  }
  // key_head() is the head of k and v, of all batches, that a head of q uses.
  std::size_t key_head(std::size_t head) const {
    return head / (q.heads / k.heads);
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
    return AttentionPosition::kAll;
  }

  // attention_operation() streams keys and values past a panel of queries.
  Operation attention_operation() const {
    Operation operation(master::row_kernel<KernelFamily::attention, 5>(q.dtype),
                        &args);
    operation.set_unit_bytes(0, q.columns * element_bytes);
    operation.set_unit_bytes(1, v.columns * element_bytes);
    operation.set_unit_bytes(2, q.columns * args.lanes * sizeof(float));
    operation.set_unit_bytes(
        3, options.mask.data == nullptr ? 0 : args.lanes * sizeof(float));
    operation.tile_step =
        static_cast<std::uint32_t>(slave::attention_keys(q.columns, v.columns));
    operation.scratch_bytes =
        static_cast<std::uint32_t>(slave::attention_scratch_bytes(
            q.columns, v.columns, args.lanes, q.dtype == kFloat32));
    return operation;
  }
  std::size_t state_bytes() const {
    return AttentionState::bytes(args.lanes, v.columns);
  }
  PanelOperations pack_operations(const Heads& x, const Panels& panels) const {
    AttentionArgs packed = args;
    packed.columns = static_cast<std::uint32_t>(x.columns);
    return {master::row_kernel<KernelFamily::attention_pack, 2>(x.dtype),
            packed, panels, slave::attention_output_scratch_bytes(x.columns),
            [&](Operation& operation, std::size_t rows) {
              operation.set_unit_bytes(0, rows * x.columns * element_bytes);
              operation.set_unit_bytes(
                  1, panels.lanes * x.columns * sizeof(float));
            }};
  }
  PanelOperations output_operations() const {
    return {master::row_kernel<KernelFamily::attention_output, 3>(q.dtype),
            args, queries, slave::attention_output_scratch_bytes(v.columns),
            [&](Operation& operation, std::size_t rows) {
              operation.set_unit_bytes(0, rows * v.columns * element_bytes);
              operation.set_unit_bytes(1, state_bytes());
              operation.set_unit_bytes(2, rows * sizeof(float));
            }};
  }

  // choose_lanes() sets the size of a panel: the largest that fits into LDM,
  // but not twice as many lanes as `rows`. fits() returns the need of the
  // operation that needs the most LDM.
  template <class Need>
  void choose_lanes(Panels& panels, Need need_of) {
    for (std::size_t lanes = slave::kMaxAttentionLanes;; lanes /= 2) {
      panels.lanes = lanes;
      args.lanes = static_cast<std::uint32_t>(lanes);
      if (lanes == slave::kAttentionLanes) {
        master::require_ldm("q", {q.data, q.rows, q.columns, q.dtype},
                            need_of());
        return;
      }
      if (lanes / 2 < panels.rows && need_of().fits()) return;
    }
  }

  // pack() computes the packed panels of x, `stride` floats apart.
  void pack(const Heads& x, const Panels& panels, float* packed,
            std::size_t stride) const {
    Workspace& workspace = Workspace::of_this_thread();
    const PanelOperations pack = pack_operations(x, panels);
    RowTable table = pack.table(panels.count(), workspace.segments());
    for (std::size_t i = 0; i < panels.count(); ++i) {
      table.add(1, {row(x, panels.flat_row(i)), packed + i * stride},
                panels.is_last(i));
    }
    workspace.run(machine, table.list());
  }

  // run_forward() computes the states of `count` heads of queries from head
  // `first` on. wants(row, rows) returns whether a panel of queries is
  // computed, and finish(panels, first_row, states) gets the panels of some
  // heads, their first query and their states.
  template <class Wants, class Finish>
  void run_forward(std::size_t first, std::size_t count, Wants wants,
                   Finish finish) {
    choose_lanes(queries, [&] {
      const auto need = [&](const Operation& operation, std::size_t partial) {
        return runtime::ldm_need(machine, operation, partial);
      };
      return std::max({need(attention_operation(), state_bytes()),
                       need(pack_operations(q, queries).operations[0], 0),
                       need(output_operations().operations[0], 0)},
                      [](const runtime::LdmNeed& a, const runtime::LdmNeed& b) {
                        return a.needed_bytes < b.needed_bytes;
                      });
    });
    // As many heads at once as need 16 MiB of float32 memory, but at least 16
    // panels for each slave, so that all end at nearly the same time.
    const std::size_t head_floats =
        queries.per_head() *
        (q.columns * args.lanes + state_bytes() / sizeof(float) +
         (options.mask.data == nullptr ? 0 : k.rows * args.lanes));
    constexpr std::size_t kMostFloats = std::size_t{4} << 20;
    const auto panels = 16 * static_cast<std::size_t>(machine.slaves());
    const std::size_t heads = std::clamp<std::size_t>(
        std::max(kMostFloats / head_floats,
                 (panels + queries.per_head() - 1) / queries.per_head()),
        1, count);
    PackedMask mask(options.mask, q.heads, k.heads);
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
    const std::size_t packed_floats = q.columns * args.lanes;
    const std::size_t state_floats = state_bytes() / sizeof(float);
    mask.pack_queries(panels, k.rows, first, heads);
    std::vector<AttentionPosition> positions(panels.per_head());
    for (std::size_t i = 0; i < positions.size(); ++i) {
      positions[i] = {visible_keys() +
                      static_cast<std::int64_t>(panels.row(i))};
    }
    Workspace& workspace = Workspace::of_this_thread();
    // The packed queries, and the state of a panel that sees no key.
    float* const packed =
        workspace.row_values<float>(count * packed_floats + state_floats);
    float* const empty = packed + count * packed_floats;
    std::fill(empty, empty + state_floats, 0.0f);
    pack(from_row(q, first_row), panels, packed, packed_floats);

    const Operation operation = attention_operation();
    const master::GrainRule whole_segments{std::max<std::size_t>(1, k.rows),
                                           ~std::size_t{0}};
    RowTable table(operation, count, false, whole_segments,
                   workspace.segments());
    for (std::size_t i = 0; i < count; ++i) {
      const AttentionPosition& position = positions[i % positions.size()];
      const std::int64_t last =
          position.visible + static_cast<std::int64_t>(panels.rows_of(i)) - 1;
      const bool wanted =
          wants(first_row + panels.flat_row(i), panels.rows_of(i));
      const auto keys = static_cast<std::size_t>(std::clamp<std::int64_t>(
          last, 0, wanted ? static_cast<std::int64_t>(k.rows) : 0));
      const std::size_t first_key = key_head(first + panels.head(i)) * k.rows;
      table.add(
          keys,
          {row(k, first_key), row(v, first_key), packed + i * packed_floats,
           mask.values(panels.head(i), i % positions.size()), &position});
    }
    workspace.run(machine, table.list(), state_bytes());

    std::vector<const void*> states(count, empty);
    workspace.for_each_partial<float>(
        table.list(),
        [&](std::size_t i, const float& state) { states[i] = &state; });
    finish(panels, first_row, states);
  }

  void forward(const Heads& out, float* lse) {
    const auto write = [&](const Panels& panels, std::size_t first_row,
                           const std::vector<const void*>& states) {
      Workspace& workspace = Workspace::of_this_thread();
      const PanelOperations output = output_operations();
      RowTable outputs = output.table(panels.count(), workspace.segments());
      for (std::size_t i = 0; i < panels.count(); ++i) {
        const std::size_t at = first_row + panels.flat_row(i);
        outputs.add(1, {row(out, at), states[i], lse + at}, panels.is_last(i));
      }
      workspace.run(machine, outputs.list());
    };
    run_forward(
        0, queries.heads, [](auto...) { return true; }, write);
  }

  // lost_lse() returns LogSumExp::low of each query for its `lse`: 0 for a
  // small |lse|, where it is less than the rounding of a score or, of 16 bits,
  // of the result. The vector is empty if all are 0.
  std::vector<float> lost_lse(const float* lse) {
    const float large = q.dtype == kFloat32 ? 64 : 1024;
    const auto is_large = [&](std::size_t i) {
      return std::fabs(lse[i]) >= large && std::isfinite(lse[i]);
    };
    const auto has_large = [&](std::size_t first, std::size_t rows) {
      for (std::size_t i = first; i < first + rows; ++i) {
        if (is_large(i)) return true;
      }
      return false;
    };
    std::vector<float> lost;
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
            lost[at] = static_cast<float>(low);
          }
        }
      }
    };
    for (std::size_t head = 0; head < queries.heads;) {
      std::size_t end = head;
      while (end < queries.heads && has_large(end * q.rows, q.rows)) ++end;
      if (end != head) {
        lost.resize(queries.heads * q.rows);
        run_forward(head, end - head, has_large, write);
      }
      head = std::max(end, head + 1);
    }
    return lost;
  }

  // ---- Backward

  // Backward adds to dq, in main memory, the terms of one panel of keys after
  // the other, in the order of the keys. So a launch is one panel of keys of
  // every head, and the panels of a head are consecutive launches.
  struct Backward {
    const Heads& gradient;
    const Heads& out;
    const float* lse;
    const std::vector<float>& lost_lse;  // may be empty
    const Heads& dq;
    const Heads& dk;
    const Heads& dv;
  };

  Operation backward_operation(
      const slave::AttentionBackwardArgs& backward) const {
    Operation operation(
        master::row_kernel<KernelFamily::attention_backward, 6>(q.dtype),
        &backward);
    operation.set_unit_bytes(0, q.columns * element_bytes);
    operation.set_unit_bytes(1, v.columns * element_bytes);
    operation.set_unit_bytes(
        3, options.mask.data == nullptr ? 0 : args.lanes * sizeof(float));
    operation.set_unit_bytes(
        4, slave::attention_padded(q.columns) * sizeof(float));
    operation.set_unit_bytes(5, keys_floats() * sizeof(float));
    operation.scratch_bytes =
        static_cast<std::uint32_t>(slave::attention_backward_scratch_bytes(
            q.columns, v.columns, args.lanes, q.dtype == kFloat32));
    operation.tile_step = slave::kAttentionQueries;
    return operation;
  }
  // keys_floats() is the size of a panel of keys and values: packed k, packed
  // v, and the rows of k.
  std::size_t keys_floats() const {
    return args.lanes *
           (q.columns + v.columns + slave::attention_padded(q.columns));
  }
  std::size_t gradient_bytes() const {
    return args.lanes * (q.columns + v.columns) * sizeof(float);
  }
  static std::size_t query_grains(std::size_t rows) {
    return (rows + slave::kAttentionGrain - 1) / slave::kAttentionGrain;
  }
  slave::AttentionBackwardArgs backward_args() const {
    return {args.columns, args.value_columns,       args.lanes, args.lanes,
            args.scale,   slave::kMaxAttentionKeys, 0,          q.rows};
  }
  PanelOperations unpack_operations(const Heads& x, const Panels& panels,
                                    float scale) const {
    AttentionArgs packed = args;
    packed.columns = static_cast<std::uint32_t>(x.columns);
    packed.scale = scale;
    return {master::row_kernel<KernelFamily::attention_unpack, 2>(x.dtype),
            packed, panels, slave::attention_output_scratch_bytes(x.columns),
            [&](Operation& operation, std::size_t rows) {
              operation.set_unit_bytes(0, rows * x.columns * element_bytes);
              operation.set_unit_bytes(
                  1, panels.lanes * x.columns * sizeof(float));
            }};
  }

  // run_rows() launches an operation whose units are rows, on one segment.
  void run_rows(const Operation& operation, std::size_t rows,
                std::initializer_list<const void*> addresses) const {
    Workspace& workspace = Workspace::of_this_thread();
    RowTable table(operation, 1, false, master::row_grains(q.columns),
                   workspace.segments());
    table.add(rows, addresses);
    workspace.run(machine, table.list());
  }

  void backward(const Backward& to) {
    Panels keys{k.batch * k.heads, k.rows, 0};
    slave::AttentionBackwardArgs backward = backward_args();
    choose_lanes(keys, [&] {
      backward = backward_args();
      runtime::LdmNeed need = runtime::ldm_need(
          machine, backward_operation(backward), gradient_bytes());
      const auto more = [&](const Operation& operation) {
        const auto other = runtime::ldm_need(machine, operation, 0);
        if (other.needed_bytes > need.needed_bytes) need = other;
      };
      for (const Heads* x : {&k, &v}) {
        more(pack_operations(*x, keys).operations[0]);
        more(unpack_operations(*x, keys, 1).operations[0]);
      }
      return need;
    });
    // As many heads of keys at once as need 64 MiB of float32 memory, but a
    // grain of queries for each slave.
    const std::size_t group = q.heads / k.heads;
    const std::size_t query_rows = group * q.rows;  // of a head of keys
    const std::size_t grains = query_grains(query_rows);
    const std::size_t padded = slave::attention_padded(q.columns);
    const std::size_t head_floats = keys.per_head() * keys_floats() +
                                    query_rows * (padded + 3) +
                                    grains * gradient_bytes() / sizeof(float);
    constexpr std::size_t kMostFloats = std::size_t{16} << 20;
    const auto slaves = static_cast<std::size_t>(machine.slaves());
    const std::size_t heads = std::clamp<std::size_t>(
        std::max(kMostFloats / head_floats, (slaves + grains - 1) / grains), 1,
        keys.heads);
    PackedMask mask(options.mask, q.heads, k.heads);
    float* const memory =
        Workspace::of_this_thread().row_values<float>(heads * head_floats);
    for (std::size_t first = 0; first < keys.heads; first += heads) {
      backward_heads(to, backward, mask, keys, first,
                     std::min(heads, keys.heads - first), memory);
    }
  }

  // backward_heads() computes `heads` heads of keys, from `first` on.
  void backward_heads(const Backward& to, slave::AttentionBackwardArgs backward,
                      PackedMask& mask, const Panels& keys, std::size_t first,
                      std::size_t heads, float* memory) const {
    const std::size_t query_rows = q.heads / k.heads * q.rows;
    const std::size_t padded = slave::attention_padded(q.columns);
    const std::size_t panels = heads * keys.per_head();
    float* const packed = memory;
    float* const dq = packed + panels * keys_floats();
    auto* const dots = reinterpret_cast<slave::AttentionDot*>(
        dq + heads * query_rows * padded);
    const std::size_t first_query = first * query_rows;
    const std::size_t rows = heads * query_rows;
    std::fill(dq, dq + rows * padded, 0.0f);
    Operation dot(master::row_kernel<KernelFamily::attention_dot, 4>(q.dtype),
                  &args, v.columns);
    run_rows(dot, rows,
             {row(to.gradient, first_query), row(to.out, first_query),
              to.lse + first_query, dots});
    if (!to.lost_lse.empty()) {
      for (std::size_t i = 0; i < rows; ++i) {
        dots[i].lse.low = to.lost_lse[first_query + i];
      }
    }
    pack_keys(keys, first, panels, packed);

    Workspace& workspace = Workspace::of_this_thread();
    const std::size_t gradient_floats = gradient_bytes() / sizeof(float);
    std::vector<float> zeros(gradient_floats);
    const PanelOperations unpack_k = unpack_operations(k, keys, args.scale);
    const PanelOperations unpack_v = unpack_operations(v, keys, 1);
    for (std::size_t panel = 0; panel < keys.per_head(); ++panel) {
      const auto first_key = static_cast<std::int64_t>(keys.row(panel));
      backward.rows = static_cast<std::uint32_t>(keys.rows_of(panel));
      backward.visible = visible_keys() - first_key;
      // The queries that see none of the keys come first; without groups, they
      // are left out: whole grains, and steps of the last one.
      std::size_t skipped = 0;
      if (query_rows == q.rows) {
        const auto hidden = static_cast<std::size_t>(std::clamp<std::int64_t>(
            -backward.visible, 0, static_cast<std::int64_t>(q.rows)));
        skipped = hidden - hidden % slave::kAttentionGrain;
        if (q.rows - skipped <= slave::kAttentionGrain) {
          skipped = hidden - hidden % slave::kAttentionQueries;
        }
        backward.visible += static_cast<std::int64_t>(skipped);
      }
      const Operation operation = backward_operation(backward);
      mask.pack_keys(keys.row(panel), keys.rows_of(panel), args.lanes, q.rows,
                     first, heads);
      // No grain is shared by heads.
      const std::size_t queries_seen = query_rows - skipped;
      const master::GrainRule grains{
          std::clamp<std::size_t>(queries_seen, 1, slave::kAttentionGrain),
          ~std::size_t{0}};
      RowTable table(operation, heads, true, grains, workspace.segments());
      for (std::size_t i = 0; i < heads; ++i) {
        const std::size_t query = i * query_rows + skipped;
        const float* values = mask.values(i, 0);
        if (values != nullptr) values += skipped * args.lanes;
        table.add(
            queries_seen,
            {row(q, first_query + query), row(to.gradient, first_query + query),
             dots + query, values, dq + query * padded,
             packed + (i * keys.per_head() + panel) * keys_floats()});
      }
      workspace.run_by_grain(machine, table.list(), gradient_bytes());
      // The sums of each head take the place of its first grain.
      float* sums = workspace.partials<float>();
      const std::size_t count = query_grains(queries_seen);
      for (std::size_t i = 0; i < heads; ++i) {
        float* const sum = sums + i * count * gradient_floats;
        for (std::size_t grain = 1; grain < count; ++grain) {
          const float* const next = sum + grain * gradient_floats;
          for (std::size_t j = 0; j < gradient_floats; ++j) sum[j] += next[j];
        }
      }
      if (count == 0) sums = zeros.data();
      const auto unpack = [&](const PanelOperations& operations, const Heads& x,
                              std::size_t offset) {
        RowTable outputs = operations.table(heads, workspace.segments());
        for (std::size_t i = 0; i < heads; ++i) {
          const std::size_t at = (first + i) * keys.per_head() + panel;
          outputs.add(1,
                      {row(x, keys.flat_row(at)),
                       sums + i * count * gradient_floats + offset},
                      keys.is_last(at));
        }
        workspace.run(machine, outputs.list());
      };
      unpack(unpack_k, to.dk, 0);
      unpack(unpack_v, to.dv, q.columns * args.lanes);
    }
    Operation round(
        master::row_kernel<KernelFamily::attention_round, 2>(q.dtype), &args,
        q.columns);
    round.set_unit_bytes(1, padded * sizeof(float));
    round.scratch_bytes = static_cast<std::uint32_t>(
        slave::attention_output_scratch_bytes(q.columns));
    run_rows(round, rows, {row(to.dq, first_query), dq});
  }

  // pack_keys() computes the panels of keys and values of `count` panels, from
  // those of head `first` on.
  void pack_keys(const Panels& keys, std::size_t first, std::size_t count,
                 float* packed) const {
    const Panels part{count / keys.per_head(), keys.rows, keys.lanes};
    const std::size_t stride = keys_floats();
    const std::size_t first_row = first * keys.rows;
    pack(from_row(k, first_row), part, packed, stride);
    pack(from_row(v, first_row), part, packed + q.columns * args.lanes, stride);
    Workspace& workspace = Workspace::of_this_thread();
    const std::size_t padded = slave::attention_padded(q.columns);
    Operation widen(
        master::row_kernel<KernelFamily::attention_widen, 2>(q.dtype), &args,
        q.columns);
    widen.set_unit_bytes(1, padded * sizeof(float));
    RowTable table(widen, count, false, master::row_grains(q.columns),
                   workspace.segments());
    for (std::size_t i = 0; i < count; ++i) {
      table.add(part.rows_of(i),
                {row(k, first * keys.rows + part.flat_row(i)),
                 packed + i * stride + (q.columns + v.columns) * args.lanes});
    }
    workspace.run(machine, table.list());
  }
};

}  // namespace

void attention(const Heads& q, const Heads& k, const Heads& v, const Heads& out,
               float* lse, const AttentionOptions& options, Machine* machine) {
  require_attention(q, k, v, options);
  require_like("out", out, q, "q", v.columns, "v");
  const std::size_t rows = q.batch * q.heads * q.rows;
  master::require_array("lse", lse, sizeof(float), rows);
  Machine::Impl& impl = master::impl_of(machine);
  if (rows == 0) return;
  Attention(impl, q, k, v, options).forward(out, lse);
}

void attention_backward(const Heads& gradient, const Heads& q, const Heads& k,
                        const Heads& v, const Heads& out, const float* lse,
                        const Heads& dq, const Heads& dk, const Heads& dv,
                        const AttentionOptions& options, Machine* machine) {
  require_attention(q, k, v, options);
  require_like("gradient", gradient, q, "q", v.columns, "v");
  require_like("out", out, q, "q", v.columns, "v");
  require_like("dq", dq, q, "q", q.columns, "q");
  require_like("dk", dk, k, "k", k.columns, "k");
  require_like("dv", dv, v, "v", v.columns, "v");
  const std::size_t rows = q.batch * q.heads * q.rows;
  master::require_array("lse", lse, sizeof(float), rows);
  Machine::Impl& impl = master::impl_of(machine);
  const auto clear = [](const Heads& x) {
    std::memset(
        x.data, 0,
        x.batch * x.heads * x.rows * x.columns * kScalarTypeBytes[x.dtype]);
  };
  const std::size_t keys = k.batch * k.heads * k.rows;
  if (rows == 0 || keys == 0) {
    if (rows != 0) clear(dq);
    if (keys != 0) clear(dk), clear(dv);
    return;
  }
  const auto lost = Attention(impl, q, k, v, options).lost_lse(lse);
  Attention(impl, q, k, v, options)
      .backward({gradient, out, lse, lost, dq, dk, dv});
}

}  // namespace swamp
