// The gradients of attention. The keys are divided into panels, past which the
// queries stream, all panels of some heads in one launch. A panel gives the
// gradients of its keys and values as partial results, one for each grain of
// queries, and to each query a term of dq in float32. Another launch adds
// partial results and terms in order. The size of a panel follows from LDM and
// does not change the bits: the smaller panels of a term continue one sum, in
// as many launches. The kernels and their formulas are in
// slave/attention_args.h.
#include <cstring>
#include <vector>

#include "master/attention.h"

namespace swamp {
namespace master {
namespace {

using slave::AttentionArgs;

// AttentionBackward is a call of attention_backward().
struct AttentionBackward : Attention {
  explicit AttentionBackward(const Attention& call) : Attention(call) {}

  struct Backward {
    const Heads& gradient;
    const Heads& out;
    const float* lse;
    slave::AttentionDot* dots;  // memory
    const Heads& dq;
    const Heads& dk;
    const Heads& dv;
  };

  // Part is what backward computes at once: `terms` terms of dq, from the keys
  // of term `first_term` on, of `heads` heads of keys. Terms are panels of
  // kMaxAttentionLanes keys.
  struct Part {
    std::size_t first_head, heads;
    std::size_t first_term, terms;
    bool is_first, is_last;  // of the parts of these heads
  };

  Operation backward_operation(const AttentionArgs& backward) const {
    using At = slave::AttentionBackwardOperand;
    Operation operation(row_kernel<KernelFamily::attention_backward>(q.dtype),
                        &backward);
    operation.set_unit_bytes(At::q, q.columns * element_bytes);
    operation.set_unit_bytes(At::g, v.columns * element_bytes);
    operation.set_unit_bytes(At::mask, options.mask.data == nullptr
                                           ? 0
                                           : args.lanes * sizeof(float));
    set_sum(operation, At::dq, padded_columns(), backward.continues != 0);
    operation.set_unit_bytes(At::keys, keys_floats() * sizeof(float));
    operation.scratch_bytes =
        static_cast<std::uint32_t>(slave::attention_backward_scratch_bytes(
            q.columns, v.columns, args.lanes, q.dtype == kFloat32));
    operation.tile_step = slave::kAttentionQueries;
    return operation;
  }
  // set_sum() makes an operand rows of sums, which are read if they continue.
  static void set_sum(Operation& operation, int operand, std::size_t floats,
                      bool continues) {
    operation.remove_operand(operand);
    operation.operands[operand].access =
        continues ? Access::inout : Access::out;
    operation.set_unit_bytes(operand, floats * sizeof(float));
  }
  std::size_t padded_columns() const {
    return slave::attention_padded(q.columns);
  }
  // keys_floats() is the size of a panel of keys and values: packed k, packed
  // v, and the rows of k.
  std::size_t keys_floats() const {
    return args.lanes * (q.columns + v.columns + padded_columns());
  }
  std::size_t gradient_floats() const {
    return args.lanes * (q.columns + v.columns);
  }
  static std::size_t query_grains(std::size_t rows) {
    return (rows + slave::kAttentionGrain - 1) / slave::kAttentionGrain;
  }
  // hidden_queries() is the number of queries, whole steps of them, that see no
  // key from `first_key` on. They come first.
  std::size_t hidden_queries(std::size_t first_key) const {
    const auto hidden = static_cast<std::size_t>(std::clamp<std::int64_t>(
        1 + static_cast<std::int64_t>(first_key) - visible_keys(), 0,
        static_cast<std::int64_t>(q.rows)));
    return hidden - hidden % slave::kAttentionQueries;
  }
  // sum_operation() adds `lines` lines, `line_step` floats apart. The units are
  // dense rows of `row_floats` floats, in each line.
  Operation sum_operation(const AttentionArgs& sum, std::size_t lines,
                          std::size_t row_floats, std::size_t line_step,
                          bool has_x, bool has_sum) const {
    using At = slave::AttentionSumOperand;
    Operation operation(row_kernel<KernelFamily::attention_sum>(q.dtype), &sum);
    operation.set_unit_bytes(At::x, has_x ? q.columns * element_bytes : 0);
    set_sum(operation, At::sum, has_sum ? row_floats : 0, sum.continues != 0);
    const std::size_t bytes = row_floats * sizeof(float);
    operation.set_lines(At::terms, lines, bytes, line_step * sizeof(float),
                        bytes);
    operation.scratch_bytes = static_cast<std::uint32_t>(
        slave::attention_row_scratch_bytes(q.columns));
    return operation;
  }

  // unpack_operation() adds `lines` partial results of a panel, and, if has_x,
  // writes its rows of x, dk or dv.
  Operation unpack_operation(const AttentionArgs& sum, const Heads& x,
                             std::size_t lines, bool has_x) const {
    using At = slave::AttentionSumOperand;
    Operation operation(row_kernel<KernelFamily::attention_unpack>(q.dtype),
                        &sum);
    const std::size_t x_bytes = sum.columns * element_bytes;
    const std::size_t bytes = sum.columns * sum.lanes * sizeof(float);
    operation.set_lines(At::x, has_x ? sum.rows : 0, x_bytes,
                        x.columns * element_bytes, x_bytes);
    set_sum(operation, At::sum,
            has_x && sum.continues == 0 ? 0 : bytes / sizeof(float),
            sum.continues != 0);
    operation.set_lines(At::terms, lines, bytes,
                        gradient_floats() * sizeof(float), bytes);
    operation.scratch_bytes = static_cast<std::uint32_t>(bytes);
    // Transposing takes longer than the transfers.
    if (has_x) operation.traffic_bytes += 3 * bytes;
    return operation;
  }
  AttentionArgs unpack_args(const Heads& x, std::size_t rows,
                            bool continues) const {
    AttentionArgs sum = args;
    sum.columns = static_cast<std::uint32_t>(
        slave::attention_unpack_columns(x.columns, args.lanes));
    sum.rows = static_cast<std::uint32_t>(rows);
    sum.continues = continues ? 1 : 0;
    if (&x == &v) sum.scale = 1;
    return sum;
  }

  void backward(const Backward& to) {
    Panels keys{k.batch * k.heads, k.rows, 0};
    choose_lanes(keys, slave::kMaxAttentionLanes, [&] {
      runtime::LdmNeed need = runtime::ldm_need(
          machine, backward_operation(args), gradient_floats() * sizeof(float));
      const auto more = [&](const Operation& operation) {
        const auto other = runtime::ldm_need(machine, operation, 0);
        if (other.needed_bytes > need.needed_bytes) need = other;
      };
      for (const Heads* x : {&k, &v}) {
        more(pack_operations(*x, keys, x == &k, keys_floats()).operations[0]);
        const AttentionArgs sum = unpack_args(*x, keys.lanes, true);
        more(unpack_operation(sum, *x, slave::kAttentionLines, true));
      }
      const std::size_t row_floats =
          std::max<std::size_t>(padded_columns(), args.lanes);
      more(sum_operation(args, slave::kAttentionLines, row_floats, row_floats,
                         true, true));
      return need;
    });
    // As many terms at once as need 64 MiB for a head, and 4 MiB for its packed
    // mask, and as many heads as need 16 MiB, but 16 grains of queries for each
    // slave, so that all end at nearly the same time. Many slaves, whose spawns
    // and joins take long, get 32, which need 2 to 4 MiB for each slave with
    // heads of 64 columns.
    constexpr std::size_t kMostFloats = std::size_t{16} << 20;
    constexpr std::size_t kHeadsFloats = std::size_t{4} << 20;
    constexpr std::size_t kMaskFloats = std::size_t{1} << 20;
    const Panels terms{keys.heads, k.rows, slave::kMaxAttentionLanes};
    const std::size_t group = q.heads / k.heads;
    const std::size_t term_floats = group * q.rows * padded_columns();
    const std::size_t mask_floats =
        options.mask.data == nullptr
            ? 0
            : group * q.rows * slave::kMaxAttentionLanes;
    const std::size_t terms_at_once = std::clamp<std::size_t>(
        std::min(kMostFloats / term_floats,
                 mask_floats == 0 ? kMostFloats : kMaskFloats / mask_floats),
        1, std::min(terms.per_head(), slave::kAttentionLines));
    const std::size_t parts =
        (terms.per_head() + terms_at_once - 1) / terms_at_once;
    const std::size_t panels_at_once =
        terms_at_once * (slave::kMaxAttentionLanes / args.lanes);
    const std::size_t head_floats =
        (terms_at_once + (parts > 1 ? 1 : 0)) * term_floats +
        panels_at_once * (keys_floats() + gradient_floats());
    std::size_t grains = 0;
    for (std::size_t term = 0; term < terms.per_head(); ++term) {
      grains += group * query_grains(q.rows - hidden_queries(terms.row(term)));
    }
    const std::size_t part_grains = std::max<std::size_t>(1, grains / parts);
    const auto slaves = static_cast<std::size_t>(machine.slaves());
    const std::size_t enough = slaves * (slaves < 64 ? 16 : 32);
    const std::size_t heads =
        heads_at_once(std::max(kHeadsFloats / head_floats,
                               (enough + part_grains - 1) / part_grains),
                      keys.heads);
    std::vector<Part> all;
    for (std::size_t first = 0; first < keys.heads; first += heads) {
      for (std::size_t term = 0; term < terms.per_head();
           term += terms_at_once) {
        const std::size_t rest = terms.per_head() - term;
        all.push_back({first, std::min(heads, keys.heads - first), term,
                       std::min(terms_at_once, rest), term == 0,
                       rest <= terms_at_once});
      }
    }
    float* packed = start(to, all[0], keys, heads * head_floats);
    PackedMask mask(machine, options.mask, q, k);
    for (std::size_t i = 0; i < all.size(); ++i) {
      backward_part(to, all[i], i + 1 < all.size() ? &all[i + 1] : nullptr,
                    mask, keys, packed,
                    packed + heads * panels_at_once * keys_floats());
    }
  }

  // start() computes the dots, and the packed keys of the first part at the
  // beginning of memory of `floats` floats, which it returns.
  float* start(const Backward& to, const Part& part, const Panels& keys,
               std::size_t floats) const {
    Workspace& workspace = Workspace::of_this_thread();
    float* packed = workspace.row_values<float>(floats);
    KeyPack pack(*this, keys);
    Operation operations[5];
    Operation& dot = operations[4] = Operation(
        row_kernel<KernelFamily::attention_dot>(q.dtype), &args, v.columns);
    for (int i = 0; i < 4; ++i) {
      operations[i] = pack.operations[i];
      operations[i].operand_count = dot.operand_count;  // the last is absent
    }
    RowTable table(operations, 5, 4 * part.heads + 1, false,
                   {1, ~std::size_t{0}, false}, workspace.segments());
    pack_keys(part, keys, packed, table, 0);
    table.add(queries.heads * q.rows,
              {to.gradient.data, to.out.data, to.lse, to.dots}, 4);
    if (workspace.run(machine, table.list()).flagged_elements == 0) {
      return packed;
    }
    find_lost_lse(*this, to.lse, to.dots);  // in the same memory
    packed = workspace.row_values<float>(floats);
    RowTable again(pack.operations, 4, 4 * part.heads, false,
                   {1, ~std::size_t{0}, false}, workspace.segments());
    pack_keys(part, keys, packed, again, 0);
    workspace.run(machine, again.list());
    return packed;
  }

  // backward_part() computes a part, whose keys are `packed`, and packs those
  // of the next one, unless it is null. `memory` is for dq, if it has terms in
  // several parts, the sums of the gradients of keys, and the terms of dq (head
  // of q, term, query).
  void backward_part(const Backward& to, const Part& part, const Part* next,
                     PackedMask& mask, const Panels& keys, float* packed,
                     float* memory) const {
    const std::size_t group = q.heads / k.heads;
    const std::size_t term_panels = slave::kMaxAttentionLanes / args.lanes;
    const std::size_t first_panel = part.first_term * term_panels;
    const std::size_t panels = panels_of(part, keys);
    const std::size_t padded = padded_columns();
    const std::size_t term_floats = q.rows * padded;  // of a head of q
    const std::size_t query_heads = part.heads * group;
    const std::size_t first_query = part.first_head * group * q.rows;
    float* const dq = memory;
    float* const gradients =
        dq + (part.is_first && part.is_last ? 0 : query_heads * term_floats);
    float* const terms = gradients + part.heads * panels * gradient_floats();
    std::vector<std::size_t> hidden(part.terms);
    for (std::size_t term = 0; term < part.terms; ++term) {
      hidden[term] =
          hidden_queries((part.first_term + term) * slave::kMaxAttentionLanes);
    }
    mask.pack_keys(keys, first_panel, panels, part.first_head, part.heads);

    Workspace& workspace = Workspace::of_this_thread();
    std::vector<AttentionArgs> backward(part.terms, args);
    std::vector<Operation> operations(part.terms);
    const GrainRule grains{slave::kAttentionGrain, ~std::size_t{0}, false};
    // Panels of the same term are in different launches.
    for (std::size_t i = 0; i < std::min(term_panels, panels); ++i) {
      for (std::size_t panel = i; panel < panels; panel += term_panels) {
        const std::size_t term = panel / term_panels;
        const std::size_t first_key = (first_panel + panel) * keys.lanes;
        AttentionArgs& of_panel = backward[term];
        of_panel.continues = i != 0;
        of_panel.rows = static_cast<std::uint32_t>(
            std::min(keys.lanes, keys.rows - first_key));
        of_panel.visible = visible_keys() -
                           static_cast<std::int64_t>(first_key) +
                           static_cast<std::int64_t>(hidden[term]);
        operations[term] = backward_operation(of_panel);
      }
      RowTable table(operations.data(), (panels - i - 1) / term_panels + 1,
                     query_heads * part.terms, true, grains,
                     workspace.segments());
      for (std::size_t head = 0; head < part.heads; ++head) {
        for (std::size_t panel = i; panel < panels; panel += term_panels) {
          const std::size_t term = panel / term_panels;
          const float* const values = mask.values(head, panel);
          for (std::size_t g = 0; g < group; ++g) {
            const std::size_t at = head * group + g;
            const std::size_t query = first_query + at * q.rows + hidden[term];
            table.add(q.rows - hidden[term],
                      {row(q, query), row(to.gradient, query), to.dots + query,
                       values == nullptr
                           ? nullptr
                           : values + (g * q.rows + hidden[term]) * args.lanes,
                       terms + (at * part.terms + term) * term_floats +
                           hidden[term] * padded,
                       packed + (head * panels + panel) * keys_floats()},
                      term);
          }
        }
      }
      workspace.run_by_grain(machine, table.list(),
                             gradient_floats() * sizeof(float));
      const bool is_last = i + 1 == std::min(term_panels, panels);
      sum(to, part, is_last ? next : nullptr, keys, hidden, i, packed,
          gradients, is_last ? terms : nullptr, dq);
    }
  }

  // panels_of() returns the number of panels of a head in a part.
  std::size_t panels_of(const Part& part, const Panels& keys) const {
    const std::size_t term_panels = slave::kMaxAttentionLanes / args.lanes;
    return std::min(part.terms * term_panels,
                    keys.per_head() - part.first_term * term_panels);
  }

  // KeyPack is the operations that pack k and v.
  struct KeyPack {
    PanelOperations k, v;
    Operation operations[4];

    KeyPack(const AttentionBackward& call, const Panels& keys)
        : k(call.pack_operations(call.k, keys, true, call.keys_floats())),
          v(call.pack_operations(call.v, keys, false, call.keys_floats())),
          operations{k.operations[0], k.operations[1], v.operations[0],
                     v.operations[1]} {}
  };

  // pack_keys() adds to a table, which has the operations of KeyPack from
  // `operation` on, what computes the panels of keys and values of a part: at
  // most four segments for each head.
  void pack_keys(const Part& part, const Panels& keys, float* packed,
                 RowTable& table, std::size_t operation) const {
    const std::size_t first_key = part.first_term * slave::kMaxAttentionLanes;
    const std::size_t panels = panels_of(part, keys);
    const std::size_t whole =
        std::min(panels, (keys.rows - first_key) / keys.lanes);
    const std::size_t k_floats = args.lanes * q.columns;
    const std::size_t v_floats = args.lanes * v.columns;
    for (std::size_t head = 0; head < part.heads; ++head) {
      const auto add = [&](std::size_t panel, std::size_t count,
                           std::size_t is_last) {
        const std::size_t at = (part.first_head + head) * keys.rows +
                               first_key + panel * keys.lanes;
        float* const values = packed + (head * panels + panel) * keys_floats();
        table.add(count, {row(k, at), values, values + k_floats + v_floats},
                  operation + is_last);
        table.add(count, {row(v, at), values + k_floats, nullptr},
                  operation + 2 + is_last);
      };
      if (whole != 0) add(0, whole, 0);
      if (whole != panels) add(whole, 1, 1);
    }
  }

  // sum() adds the partial results of each panel `first` + n * (panels of a
  // term), and, if `terms` is not null, the terms of dq. It also packs the keys
  // of part `next`, unless that is null.
  void sum(const Backward& to, const Part& part, const Part* next,
           const Panels& keys, const std::vector<std::size_t>& hidden,
           std::size_t first, float* packed, float* gradients,
           const float* terms, float* dq) const {
    constexpr std::size_t kLines = slave::kAttentionLines;
    const std::size_t group = q.heads / k.heads;
    const std::size_t term_panels = slave::kMaxAttentionLanes / args.lanes;
    const std::size_t panels = panels_of(part, keys);
    const std::size_t first_key = part.first_term * slave::kMaxAttentionLanes;
    const std::size_t padded = padded_columns();
    const std::size_t term_floats = q.rows * padded;
    Workspace& workspace = Workspace::of_this_thread();
    const float* const partials = workspace.partials<float>();
    const auto lines_of = [&](std::size_t term) {
      return group * query_grains(q.rows - hidden[term]);
    };
    AttentionArgs of_queries = args;
    of_queries.continues = part.is_first ? 0 : 1;
    const KeyPack pack(*this, keys);
    for (std::size_t begin = 0; begin == 0 || begin < lines_of(0);
         begin += kLines) {
      const bool is_first = begin == 0;
      // Of k and v, of whole panels and the last one.
      const std::size_t last_rows = keys.rows % keys.lanes;
      const AttentionArgs of_keys[2][2] = {
          {unpack_args(k, keys.lanes, !is_first),
           unpack_args(k, last_rows, !is_first)},
          {unpack_args(v, keys.lanes, !is_first),
           unpack_args(v, last_rows, !is_first)}};
      // Those that pack, those of each term's panels, and those of dq, by
      // number of terms.
      std::vector<Operation> operations(pack.operations, pack.operations + 4);
      const auto unpack = [&](std::size_t term, bool is_last) {
        const std::size_t lines =
            lines_of(term) - std::min(begin, lines_of(term));
        for (int i = 0; i < 2; ++i) {
          operations.push_back(
              unpack_operation(of_keys[i][is_last ? 1 : 0], i == 0 ? k : v,
                               std::min(lines, kLines), lines <= kLines));
        }
      };
      operations.reserve(operations.size() + 3 * (part.terms + 1));
      for (std::size_t term = 0; term < part.terms; ++term) {
        unpack(term, false);
      }
      unpack(part.terms - 1, true);
      const std::size_t first_of_dq = operations.size();
      for (std::size_t lines = 0; lines <= part.terms; ++lines) {
        operations.push_back(sum_operation(of_queries, lines, padded,
                                           term_floats, part.is_last,
                                           !part.is_first || !part.is_last));
        // Lines that lie far apart take longer.
        operations.back().traffic_bytes += operations.back().traffic_bytes / 4;
      }
      RowTable table(operations.data(), operations.size(),
                     part.heads * (2 * panels + group * (part.terms + 1)) +
                         (next == nullptr ? 0 : 4 * next->heads),
                     false, {1, ~std::size_t{0}, false}, workspace.segments());
      const float* partial = partials;
      for (std::size_t head = 0; head < part.heads; ++head) {
        const std::size_t first_row =
            (part.first_head + head) * keys.rows + first_key;
        for (std::size_t panel = first; panel < panels; panel += term_panels) {
          const std::size_t term = panel / term_panels;
          if (is_first || begin < lines_of(term)) {
            const std::size_t row_of_panel = panel * keys.lanes;
            const bool is_last =
                keys.rows - first_key - row_of_panel < keys.lanes;
            float* const sums =
                gradients + (head * panels + panel) * gradient_floats();
            const float* const from = partial + begin * gradient_floats();
            for (std::size_t i = 0; i < 2; ++i) {
              const AttentionArgs& sum = of_keys[i][0];
              const Heads& x = i == 0 ? to.dk : to.dv;
              const std::size_t at = i * q.columns * args.lanes;
              table.add(
                  x.columns / sum.columns,
                  {row(x, first_row + row_of_panel), sums + at, from + at},
                  4 + 2 * (is_last ? part.terms : term) + i);
            }
          }
          partial += lines_of(term) * gradient_floats();
        }
      }
      for (std::size_t head = 0;
           is_first && terms != nullptr && head < part.heads * group; ++head) {
        // Queries that have the same number of terms.
        for (std::size_t lines = 0; lines <= part.terms; ++lines) {
          const std::size_t query = lines == 0 ? 0 : hidden[lines - 1];
          const std::size_t end = lines == part.terms ? q.rows : hidden[lines];
          if (query == end) continue;
          const std::size_t at =
              (part.first_head * group + head) * q.rows + query;
          table.add(end - query,
                    {row(to.dq, at), dq + (head * q.rows + query) * padded,
                     terms + (head * part.terms * q.rows + query) * padded},
                    first_of_dq + lines);
        }
      }
      if (is_first && next != nullptr) {
        pack_keys(*next, keys, packed, table, 0);
      }
      workspace.run(machine, table.list());
    }
  }
};

}  // namespace
}  // namespace master

void attention_backward(const Heads& gradient, const Heads& q, const Heads& k,
                        const Heads& v, const Heads& out, const float* lse,
                        const Heads& dq, const Heads& dk, const Heads& dv,
                        const AttentionOptions& options, Machine* machine) {
  master::require_attention(q, k, v, options);
  master::require_like_heads("gradient", gradient, q, "q", v.columns, "v");
  master::require_like_heads("out", out, q, "q", v.columns, "v");
  master::require_like_heads("dq", dq, q, "q", q.columns, "q");
  master::require_like_heads("dk", dk, k, "k", k.columns, "k");
  master::require_like_heads("dv", dv, v, "v", v.columns, "v");
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
  const master::Attention call(impl, q, k, v, options);
  auto* const dots = reinterpret_cast<slave::AttentionDot*>(
      master::Workspace::of_this_thread().prepared_values().reserve(
          rows * sizeof(slave::AttentionDot)));
  master::AttentionBackward(call).backward(
      {gradient, out, lse, dots, dq, dk, dv});
}

}  // namespace swamp
