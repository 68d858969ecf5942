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

// AttentionBackward is a call of attention_backward(), but for the dots.
struct AttentionBackward : Attention {
  explicit AttentionBackward(const Attention& call) : Attention(call) {}

  struct Backward {
    const Heads& gradient;
    const slave::AttentionDot* dots;
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
  PanelOperations unpack_operations(const Heads& x, const Panels& panels,
                                    float scale) const {
    return packed_operations(
        row_kernel<KernelFamily::attention_unpack>(x.dtype), x, panels, scale,
        false, gradient_floats());
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
        slave::attention_output_scratch_bytes(q.columns));
    return operation;
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
        more(pack_operations(*x, keys, x == &k).operations[0]);
        more(unpack_operations(*x, keys, 1).operations[0]);
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
    const std::size_t head_floats =
        (terms_at_once + (parts > 1 ? 1 : 0)) * term_floats +
        terms_at_once * (slave::kMaxAttentionLanes / args.lanes) *
            (keys_floats() + gradient_floats());
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
    PackedMask mask(machine, options.mask, q, k);
    float* const memory =
        Workspace::of_this_thread().row_values<float>(heads * head_floats);
    for (std::size_t first = 0; first < keys.heads; first += heads) {
      for (std::size_t term = 0; term < terms.per_head();
           term += terms_at_once) {
        const std::size_t rest = terms.per_head() - term;
        backward_part(
            to,
            {first, std::min(heads, keys.heads - first), term,
             std::min(terms_at_once, rest), term == 0, rest <= terms_at_once},
            mask, keys, memory);
      }
    }
  }

  void backward_part(const Backward& to, const Part& part, PackedMask& mask,
                     const Panels& keys, float* memory) const {
    const std::size_t group = q.heads / k.heads;
    const std::size_t term_panels = slave::kMaxAttentionLanes / args.lanes;
    const std::size_t first_panel = part.first_term * term_panels;
    const std::size_t panels =
        std::min(part.terms * term_panels, keys.per_head() - first_panel);
    const std::size_t padded = padded_columns();
    const std::size_t term_floats = q.rows * padded;  // of a head of q
    const std::size_t query_heads = part.heads * group;
    const std::size_t first_query = part.first_head * group * q.rows;
    // The memory holds dq, if it has terms in several parts, the panels of
    // keys, their gradients, and the terms of dq (head of q, term, query).
    float* const dq = memory;
    float* const packed =
        dq + (part.is_first && part.is_last ? 0 : query_heads * term_floats);
    float* const gradients = packed + part.heads * panels * keys_floats();
    float* const terms = gradients + part.heads * panels * gradient_floats();
    std::vector<std::size_t> hidden(part.terms);
    for (std::size_t term = 0; term < part.terms; ++term) {
      hidden[term] =
          hidden_queries((part.first_term + term) * slave::kMaxAttentionLanes);
    }
    pack_keys(part, keys, first_panel, panels, packed);
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
      sum(to, part, hidden, i, panels, gradients, is_last ? terms : nullptr,
          dq);
    }

    const PanelOperations unpack_k = unpack_operations(k, keys, args.scale);
    const PanelOperations unpack_v = unpack_operations(v, keys, 1);
    const Operation unpack[] = {unpack_k.operations[0], unpack_k.operations[1],
                                unpack_v.operations[0], unpack_v.operations[1]};
    RowTable outputs(unpack, 4, 4 * part.heads, false, {1, ~std::size_t{0}},
                     workspace.segments());
    for_panels(part, keys, first_panel, panels,
               [&](std::size_t i, std::size_t first_row, std::size_t count,
                   std::size_t is_last) {
                 float* const sums = gradients + i * gradient_floats();
                 outputs.add(count, {row(to.dk, first_row), sums}, is_last);
                 outputs.add(
                     count,
                     {row(to.dv, first_row), sums + q.columns * args.lanes},
                     2 + is_last);
               });
    workspace.run(machine, outputs.list());
  }

  // for_panels() visits the whole panels of keys of each head of a part, and
  // then the last one if it has fewer rows: number of the first, its first row
  // of all heads, count, and Panels::is_last().
  template <class Visit>
  static void for_panels(const Part& part, const Panels& keys,
                         std::size_t first_panel, std::size_t panels,
                         const Visit& visit) {
    const std::size_t first_key = first_panel * keys.lanes;
    const std::size_t whole =
        std::min(panels, (keys.rows - first_key) / keys.lanes);
    for (std::size_t head = 0; head < part.heads; ++head) {
      const std::size_t first_row =
          (part.first_head + head) * keys.rows + first_key;
      if (whole != 0) visit(head * panels, first_row, whole, 0);
      if (whole == panels) continue;
      visit(head * panels + whole, first_row + whole * keys.lanes, 1, 1);
    }
  }

  // pack_keys() computes the panels of keys and values of a part.
  void pack_keys(const Part& part, const Panels& keys, std::size_t first_panel,
                 std::size_t panels, float* packed) const {
    Workspace& workspace = Workspace::of_this_thread();
    const PanelOperations pack_k =
        pack_operations(k, keys, true, keys_floats());
    const PanelOperations pack_v =
        pack_operations(v, keys, false, keys_floats());
    const Operation pack[] = {pack_k.operations[0], pack_k.operations[1],
                              pack_v.operations[0], pack_v.operations[1]};
    RowTable table(pack, 4, 4 * part.heads, false, {1, ~std::size_t{0}},
                   workspace.segments());
    const std::size_t k_floats = args.lanes * q.columns;
    const std::size_t v_floats = args.lanes * v.columns;
    for_panels(
        part, keys, first_panel, panels,
        [&](std::size_t i, std::size_t first_row, std::size_t count,
            std::size_t is_last) {
          float* const values = packed + i * keys_floats();
          table.add(count,
                    {row(k, first_row), values, values + k_floats + v_floats},
                    is_last);
          table.add(count, {row(v, first_row), values + k_floats, nullptr},
                    2 + is_last);
        });
    workspace.run(machine, table.list());
  }

  // sum() adds the partial results of each panel `first` + n * (panels of a
  // term), and, if `terms` is not null, the terms of dq.
  void sum(const Backward& to, const Part& part,
           const std::vector<std::size_t>& hidden, std::size_t first,
           std::size_t panels, float* gradients, const float* terms,
           float* dq) const {
    constexpr std::size_t kLines = slave::kAttentionLines;
    const std::size_t group = q.heads / k.heads;
    const std::size_t term_panels = slave::kMaxAttentionLanes / args.lanes;
    const std::size_t padded = padded_columns();
    const std::size_t term_floats = q.rows * padded;
    Workspace& workspace = Workspace::of_this_thread();
    const float* const partials = workspace.partials<float>();
    const std::size_t most_lines = group * query_grains(q.rows - hidden[0]);
    // By number of lines: of gradients of keys and values, then of dq.
    AttentionArgs of_keys = args, of_queries = args;
    of_keys.columns = args.lanes;
    of_queries.continues = part.is_first ? 0 : 1;
    std::vector<Operation> operations(2 * (kLines + 1));
    for (std::size_t begin = 0; begin == 0 || begin < most_lines;
         begin += kLines) {
      of_keys.continues = begin != 0;
      for (std::size_t lines = 0; lines <= kLines; ++lines) {
        operations[lines] = sum_operation(of_keys, lines, args.lanes,
                                          gradient_floats(), false, true);
        Operation& queries_sum = operations[kLines + 1 + lines];
        queries_sum =
            sum_operation(of_queries, lines, padded, term_floats, part.is_last,
                          !part.is_first || !part.is_last);
        // Lines that lie far apart take longer.
        queries_sum.traffic_bytes += queries_sum.traffic_bytes / 4;
      }
      RowTable table(operations.data(), operations.size(),
                     part.heads * (panels + group * (part.terms + 1)), false,
                     {slave::kAttentionQueries, ~std::size_t{0}},
                     workspace.segments());
      const float* partial = partials;
      for (std::size_t head = 0; head < part.heads; ++head) {
        for (std::size_t panel = first; panel < panels; panel += term_panels) {
          const std::size_t lines =
              group * query_grains(q.rows - hidden[panel / term_panels]);
          if (begin == 0 || begin < lines) {
            table.add(q.columns + v.columns,
                      {nullptr,
                       gradients + (head * panels + panel) * gradient_floats(),
                       partial + begin * gradient_floats()},
                      std::min(kLines, lines - std::min(begin, lines)));
          }
          partial += lines * gradient_floats();
        }
      }
      for (std::size_t head = 0;
           begin == 0 && terms != nullptr && head < part.heads * group;
           ++head) {
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
                    kLines + 1 + lines);
        }
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
  const slave::AttentionDot* const dots =
      master::find_dots(call, gradient, out, lse);
  master::AttentionBackward(call).backward({gradient, dots, dq, dk, dv});
}

}  // namespace swamp
