// Products by panels. One launch packs a part of b in panels of columns, and
// one computes rows of the result with it; the rows of a are packed by the
// slave that needs them, and gathered before. How much a slave computes at a
// time is bounded by the caches, or by LDM, and the sums of a part of the terms
// stay in main memory between the launches.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "master/product.h"
#include "master/row_launch.h"
#include "master/text.h"

namespace swamp::master {
namespace {

using slave::kProductLanes;
using slave::ProductArgs;
using slave::ProductPackArgs;

slave::ProductRuns runs_of(const Runs& runs) {
  return {runs.begins, runs.length};
}

struct Panels : ProductCall {
  // whole_blocks() returns a number of terms, made a multiple of a scale's.
  std::size_t whole_blocks(std::size_t most) const {
    const std::size_t block = scales.terms;
    return block == 0 ? most : std::max(most / block, std::size_t{1}) * block;
  }

  // Part is what one launch computes.
  struct Part {
    std::size_t batch, batches;
    std::size_t row, rows;
    std::size_t column, columns;
    std::size_t term, terms;
  };

  // Blocks bounds what is computed at a time.
  struct Blocks {
    std::size_t terms;         // of a launch
    std::size_t panels;        // of one constant
    std::uint32_t rows_of_a;   // packed by a slave, and the terms of them
    std::uint32_t terms_of_a;  // even
    bool gathers;              // the kernel gathers a
    bool packs_rows;           // a is packed by a launch, as b is
  };

  static constexpr std::size_t kSumsBytes = std::size_t{32} << 20;
  static constexpr std::uint32_t kBlockRows = 96;

  // bytes_of_caches() returns how much memory stays in the caches between two
  // launches: `least`, or kSlaveBytes for each slave if that is more.
  std::size_t bytes_of_caches(std::size_t least) const {
    constexpr std::size_t kSlaveBytes = std::size_t{512} << 10;
    return std::max(least,
                    static_cast<std::size_t>(machine.slaves()) * kSlaveBytes);
  }

  // blocks_of_caches() returns blocks that fit into the caches of a CPU.
  Blocks blocks_of_caches() const {
    constexpr std::size_t kLeastTerms = 512, kMostTerms = 4096;
    constexpr std::size_t kBlockWords = 768, kLeastWords = 128;
    // A small result for many slaves: packing b in few panels takes long.
    constexpr std::size_t kFewElements = 16 * 1024;  // for a slave
    const std::size_t panels = panels_of(out.columns) * out.batch;
    const auto slaves = static_cast<std::size_t>(machine.slaves());
    const std::size_t term_words = pairs ? 2 : 1;
    Blocks blocks{std::min(terms(), whole_blocks(kMostTerms)),
                  panels_of(out.columns),
                  kBlockRows,
                  0,
                  gather != nullptr,
                  false};
    // Packed rows of a that are written to memory take longer than rows that a
    // slave packs for itself, but slaves pack the same rows again and again if
    // the result is divided into narrow parts. A slave that packs a few of many
    // neighbours in memory reads their lines in vain.
    const std::size_t least_parts = a.row_step < a.column_step ? 2 : 3;
    const auto packed = [&](std::size_t lanes, std::size_t lane_terms) {
      return out.batch * lanes * lane_terms / term_words * sizeof(float);
    };
    // The terms of some lanes that stay in the caches when they are packed.
    const std::size_t step = std::max<std::size_t>(2, scales.terms);
    const auto most_terms = [&](std::size_t lanes) {
      return bytes_of_caches(0) / packed(lanes, step) * step;
    };
    const bool many = gather == nullptr && has_many_slaves();
    blocks.packs_rows =
        many && terms() != 0 &&
        (packed(out.rows, blocks.terms) <= kRowsBytes ||
         (terms() > blocks.terms &&
          most_terms(out.rows + out.columns) >= kLeastTerms)) &&
        least_parts * block_panels_of(out.batch, out.rows, terms(), out.columns,
                                      blocks.panels) <=
            blocks.panels;
    if (many && terms() > blocks.terms) {
      // As many terms as stay in the caches; with rows of a also fewer than
      // kMostTerms, because each part of the columns would pack them again.
      const std::size_t most =
          most_terms(out.columns + (blocks.packs_rows ? out.rows : 0));
      if (most >= (blocks.packs_rows ? kLeastTerms : blocks.terms + 1)) {
        const std::size_t parts = divided(terms(), most);
        blocks.terms =
            std::min(terms(), divided(divided(terms(), parts), step) * step);
      }
    }
    std::size_t words = kBlockWords;
    if (blocks.packs_rows && terms() > kBlockWords * term_words) {
      // Three panels for each slave.
      words = packed(out.rows + out.columns, blocks.terms) / sizeof(float) /
              (3 * kProductLanes * slaves);
    } else if (panels < slaves &&
               out.batch * out.rows * out.columns / slaves < kFewElements) {
      words = terms() * panels / slaves / term_words;
    }
    words = std::clamp(words, kLeastWords, kBlockWords);
    words += words % 2;
    blocks.terms_of_a =
        static_cast<std::uint32_t>(whole_blocks(words * term_words));
    return blocks_of_runs(blocks, kBlockWords * term_words);
  }
  // blocks_of_runs() returns blocks of terms that are of one run of b's rows.
  // If a run is not much longer than `most`, each block is one run; otherwise a
  // launch has terms of one run only.
  Blocks blocks_of_runs(Blocks blocks, std::size_t most) const {
    if (b_runs().begins == nullptr) return blocks;
    const std::size_t run = b_runs().length;
    if (run <= most + most / 2) {
      blocks.terms = std::max(blocks.terms / run, std::size_t{1}) * run;
      blocks.terms_of_a = static_cast<std::uint32_t>(run);
    } else {
      blocks.terms = std::min(blocks.terms, run);
      blocks.terms_of_a =
          std::min(blocks.terms_of_a, static_cast<std::uint32_t>(run));
    }
    return blocks;
  }
  Runs b_runs() const {
    return gather == nullptr || terms() == 0 ? Runs{} : gather->b_rows;
  }
  static constexpr std::size_t kRowsBytes = std::size_t{32} << 20;

  // Few slaves divide a result into wide parts.
  bool has_many_slaves() const {
    constexpr int kFewSlaves = 8;
    return machine.slaves() > kFewSlaves;
  }
  // grain_rows() returns the rows of a grain: of a tile in registers, or fewer,
  // so that many slaves have nearly as many. A tile of less than 4 rows takes
  // as long as 4.
  std::size_t grain_rows() const {
    return has_many_slaves() ? 4 : slave::kMaxProductRows;
  }
  // packed_rows_bytes() returns the bytes of packed rows of a.
  std::size_t packed_rows_bytes(std::size_t rows, std::size_t part_terms,
                                const Blocks& blocks) const {
    return divided(rows, slave::kMaxProductRows) *
           packed_bytes(part_terms, blocks, slave::kMaxProductRows);
  }
  // slaves_of() returns how many slaves compute `rows` rows.
  std::size_t slaves_of(std::size_t rows, std::size_t part_terms,
                        std::size_t columns) const {
    return static_cast<std::size_t>(
        runtime::divide(machine, rows * traffic_of_row(part_terms, columns))
            .slaves);
  }

  // blocks_of_ldm() returns blocks that fit into LDM, or throws Error.
  Blocks blocks_of_ldm() const {
    for (std::uint32_t most = 512; most >= 2; most /= 2) {
      const std::size_t block = whole_blocks(most);
      const Blocks blocks =
          blocks_of_runs({std::min(block, terms()), 1, slave::kMaxProductRows,
                          static_cast<std::uint32_t>(block), false, false},
                         block - block / 2);
      if (fits(blocks)) return blocks;
    }
    refuse("a", "a product",
           "more LDM than " + std::to_string(machine.ldm_bytes) +
               " bytes (SWAMP_LDM_BYTES)",
           SWAMP_UNSUPPORTED);
  }

  // packed_bytes() returns the bytes of the panels of `width` lanes.
  std::size_t packed_bytes(std::size_t part_terms, const Blocks& blocks,
                           std::size_t width = kProductLanes) const {
    return slave::product_packed_bytes(
        part_terms, block_terms_of(part_terms, blocks.terms_of_a), width,
        pairs);
  }

  using ProductCall::fits;
  bool fits(const Blocks& blocks) const {
    ProductPackArgs pack =
        pack_args(block_terms_of(blocks.terms, blocks.terms_of_a),
                  kProductLanes, kProductLanes, pairs);
    ProductArgs args = common_args();
    args.terms = blocks.terms;
    args.columns = std::min(blocks.panels * kProductLanes, out.columns);
    return fits(pack_operation(pack, b)) &&
           fits(operation_of(args, blocks, out.rows));
  }

  // has_sums() returns whether sums lie in memory between blocks of terms.
  bool has_sums(const Blocks& blocks) const {
    return partial_sums != nullptr || terms() > blocks.terms_of_a;
  }

  // operation_of() returns the operation of `rows` rows with args.terms and
  // args.columns, and sets the other arguments that depend on them.
  Operation operation_of(ProductArgs& args, const Blocks& blocks,
                         std::size_t rows) const {
    const std::size_t panels = panels_of(args.columns);
    args.block_rows = static_cast<std::uint32_t>(
        std::min<std::size_t>(blocks.rows_of_a, rows));
    args.block_terms = block_terms_of(args.terms, blocks.terms_of_a);
    using At = slave::ProductOperand;
    Operation operation(kernel(KernelFamily::product), &args);
    args.packed_rows = blocks.packs_rows ? 1 : 0;
    if (blocks.gathers || blocks.packs_rows) {
      operation.operands[At::a].access = Access::constant;
      operation.set_unit_bytes(At::a, ~std::uint32_t{0});
    } else {
      args.in = set_unit(operation, At::a, a, 1, args.terms, a.row_step);
    }
    operation.set_lines(At::b, 1, panels * packed_bytes(args.terms, blocks), 0,
                        0);
    constexpr std::size_t kSumBytes = kProductLanes * sizeof(float);
    operation.set_lines(At::sums, has_sums(blocks) ? panels : 0, kSumBytes,
                        rows * kSumBytes, kSumBytes);
    args.self =
        set_unit(operation, At::self, self, 1,
                 args.last != 0 && adds() ? args.columns : 0, self.row_step);
    args.out = set_unit(operation, At::out, out, 1,
                        args.last != 0 ? args.columns : 0, out.row_step);
    const std::size_t steps = steps_of(args.terms);
    operation.set_lines(At::a_scales, steps == 0 ? 0 : 1, steps * sizeof(float),
                        0, steps_of(terms()) * sizeof(float));
    operation.set_lines(At::b_scales, steps, args.columns * sizeof(float),
                        out.columns * sizeof(float), 0);
    operation.tile_step = slave::kMaxProductRows;
    operation.scratch_bytes = static_cast<std::uint32_t>(
        slave::product_scratch_bytes(args.block_rows, args.block_terms,
                                     blocks.gathers ? bytes() : 0) +
        (blocks.gathers ? slave::product_places_bytes(args.terms) : 0) +
        (args.scale_terms == 0 ? 0 : slave::kProductTileBytes));
    operation.traffic_bytes = traffic_of_row(args.terms, args.columns);
    return operation;
  }
  // traffic_of_row() counts 3 floating-point operations as a byte, whose
  // transfer takes about as long.
  static std::size_t traffic_of_row(std::size_t terms, std::size_t columns) {
    return 1 + 2 * terms * columns / 3;
  }

  // has_shared_left() returns whether the products have the same left factor,
  // and rows of the others and of the results are neighbours in memory. Writing
  // columns of the results takes longer than what it saves if there are few
  // terms.
  bool has_shared_left() const {
    constexpr std::size_t kFewTerms = 256;
    return terms() >= kFewTerms && gather == nullptr &&
           partial_sums == nullptr && scales.a == nullptr && out.batch > 1 &&
           a.batch_step == 0 && b.batch_step != 0 && b.column_step == 1 &&
           out.column_step == 1;
  }
  // is_narrow() returns whether the result has so few panels of columns that
  // packing rows of a takes longer than reading them in place: up to 16 panels,
  // with at least 8 terms for each, if terms are neighbours in memory; up to 3
  // panels if rows are.
  bool is_narrow() const {
    constexpr std::size_t kFewPanels = 16, kPanelTerms = 8, kRowPanels = 3;
    const std::size_t panels = panels_of(out.columns);
    if (a.dtype != kFloat32 || gather != nullptr || partial_sums != nullptr ||
        scales.a != nullptr || terms() == 0 || has_many_slaves()) {
      return false;
    }
    return a.column_step == 1 ? terms() % 2 == 0 && panels <= kFewPanels &&
                                    terms() >= kPanelTerms * panels
                              : a.row_step == 1 && panels <= kRowPanels &&
                                    out.rows >= 2 * slave::kMaxProductRows;
  }
  // is_ragged() returns whether panels of the columns have many unused lanes.
  bool is_ragged() const {
    return panels_of(out.columns) * kProductLanes >=
           out.columns + out.columns / 8;
  }
  // can_gather() returns whether the kernel gathers a, which never fits into
  // LDM, and whose terms do not share a few sets of a CPU's L1.
  bool can_gather() const {
    constexpr std::size_t kBytes = 512;
    return a.column_step * bytes() % kBytes != 0 && fits(blocks_of_caches());
  }

  void by_panels() const {
    Blocks blocks = blocks_of_caches();
    if (!fits(blocks)) blocks = blocks_of_ldm();
    const bool copies = gather != nullptr && !blocks.gathers;
    const std::size_t part_terms = blocks.terms;
    const std::size_t panel_bytes = packed_bytes(part_terms, blocks);
    const std::size_t most_packed = bytes_of_caches(kPackedBytes);
    const std::size_t most_sums = bytes_of_caches(kSumsBytes);
    const std::size_t part_panels =
        std::min(std::max<std::size_t>(1, most_packed / panel_bytes),
                 panels_of(out.columns));
    const std::size_t part_columns = part_panels * kProductLanes;
    const bool allocates_sums = has_sums(blocks) && partial_sums == nullptr;
    // With parts of terms, each part of b is packed for each part of the rows.
    std::size_t part_rows = out.rows, part_batch = 1;
    const std::size_t columns = std::min(out.columns, part_columns);
    const std::size_t row_bytes = panels_of(columns) * kProductLanes * 4;
    if (allocates_sums) {
      part_rows = std::min(
          part_rows, std::max<std::size_t>(most_sums / row_bytes, kBlockRows));
    }
    if (copies) part_rows = std::min(part_rows, kCopiedRows);
    if (part_columns >= out.columns && terms() == part_terms && !copies) {
      const std::size_t packed = part_panels * panel_bytes;
      part_batch = b.batch_step == 0 ? out.batch : most_packed / packed;
      if (allocates_sums) {
        part_batch =
            part_rows < out.rows
                ? 1
                : std::min(part_batch, most_sums / (row_bytes * out.rows));
      }
      part_batch = std::clamp<std::size_t>(part_batch, 1, out.batch);
    }
    // Memory of the packed part of b, of the sums, and of a copy of a or its
    // packed rows.
    const std::size_t at_sums =
        part_panels * panel_bytes * (b.batch_step == 0 ? 1 : part_batch);
    const std::size_t at_copy =
        at_sums + (allocates_sums ? part_batch * part_rows * row_bytes : 0);
    std::byte* const packed = Workspace::of_this_thread().row_values<std::byte>(
        at_copy + (copies ? part_rows * part_terms * bytes() : 0) +
        (blocks.packs_rows
             ? part_batch * packed_rows_bytes(part_rows, part_terms, blocks)
             : 0));
    auto* const sums = reinterpret_cast<float*>(packed + at_sums);

    Part now{};
    for (now.batch = 0; now.batch < out.batch; now.batch += part_batch) {
      now.batches = std::min(part_batch, out.batch - now.batch);
      for (now.column = 0; now.column < out.columns;
           now.column += part_columns) {
        now.columns = std::min(part_columns, out.columns - now.column);
        for (now.row = 0; now.row < out.rows; now.row += part_rows) {
          now.rows = std::min(part_rows, out.rows - now.row);
          now.term = 0;
          do {  // once without terms
            now.terms = std::min(part_terms, terms() - now.term);
            if (part_terms < b_runs().length && b_runs().begins != nullptr) {
              now.terms = std::min(
                  now.terms, b_runs().length - now.term % b_runs().length);
            }
            const bool packs_a = blocks.packs_rows;
            const bool packs_b = now.row == 0 || part_terms < terms();
            const PackedLanes sides[] = {
                {packs_a ? part(a, now.batch, now.row, now.term).transposed()
                         : a,
                 now.batches, now.rows, slave::kMaxProductRows,
                 packed + at_copy},
                {part(b, now.batch, 0, now.column),
                 b.batch_step == 0 ? 1 : now.batches, now.columns,
                 kProductLanes, packed, b_runs(), now.term}};
            if (packs_a || packs_b) {
              pack_panels(machine, sides + (packs_a ? 0 : 1),
                          (packs_a ? 1 : 0) + (packs_b ? 1 : 0), now.terms,
                          block_terms_of(now.terms, blocks.terms_of_a), pairs);
            }
            Panels of_part = *this;
            if (copies) {
              of_part.a = gathered(now, packed + at_copy);
            } else if (packs_a) {
              of_part.a.data = packed + at_copy;
            } else if (gather == nullptr) {
              of_part.a = part(a, 0, now.row, now.term);
            }
            of_part.run_part(now, blocks, packed,
                             partial_sums != nullptr
                                 ? partial_sums->data + now.column * out.rows
                                 : sums);
            now.term += now.terms;
          } while (now.term < terms());
        }
      }
    }
  }

  static constexpr std::size_t kCopiedRows = 1024;

  // gathered() copies the rows and terms of a part of a gathered a to `memory`.
  // The dimension with the longer runs becomes contiguous.
  Matrices gathered(const Part& now, std::byte* memory) const {
    struct Side {
      slave::ProductRuns runs;
      std::size_t first, count;
    };
    Side lines{runs_of(gather->rows), now.row, now.rows},
        along{runs_of(gather->columns), now.term, now.terms};
    const bool by_row = along.runs.length >= lines.runs.length;
    if (!by_row) std::swap(lines, along);
    Matrices copy = a;
    copy.data = memory;
    copy.batch_step = 0;
    copy.row_step = by_row ? along.count : 1;
    copy.column_step = by_row ? 1 : along.count;
    const auto* const from =
        static_cast<const std::byte*>(part(a, now.batch, 0, 0).data);
    Workspace& workspace = Workspace::of_this_thread();
    // A sum of one operand copies it.
    Operation operation(slave::kKernels[slave::kernel_of(KernelFamily::moe_sum,
                                                         {a.dtype, a.dtype})],
                        nullptr);
    using At = slave::MoeSumOperand;
    for (const int s : {At::x1, At::x2, At::sum, At::factors}) {
      operation.remove_operand(s);
    }
    const std::size_t pieces =
        along.count == 0 ? 0 : (along.count - 1) / along.runs.length + 2;
    RowTable table(operation, lines.count * pieces, false, {},
                   workspace.segments());
    std::byte* to = memory;
    for (std::size_t i = 0; i < lines.count; ++i) {
      const std::size_t line = lines.runs.place(lines.first + i);
      for (std::size_t done = 0; done < along.count;) {
        const std::size_t at = along.first + done;
        const std::size_t run = std::min<std::size_t>(
            along.runs.length - at % along.runs.length, along.count - done);
        table.add(run, {from + (line + along.runs.place(at)) * bytes(), nullptr,
                        nullptr, nullptr, nullptr, to});
        to += run * bytes();
        done += run;
      }
    }
    workspace.run(machine, table.list());
    return copy;
  }

  // block_panels_of() returns how many panels are computed from the same packed
  // rows of a, so that the slave with the most grains takes the least time.
  // Fewer panels divide the result more evenly, but the rows of a are packed
  // again for each block of panels. Packing a row takes about a quarter of the
  // time that multiplying it with a panel takes, and reading a panel, for each
  // kBlockRows rows, as long as multiplying it with 24 rows. Threads that claim
  // parts even out what these differ by, and there packing was seen to take
  // half as long as multiplying, and reading panels hardly any time.
  std::size_t block_panels_of(std::size_t batches, std::size_t rows,
                              std::size_t part_terms, std::size_t columns,
                              std::size_t most) const {
    const std::size_t slaves = slaves_of(batches * rows, part_terms, columns);
    const bool claims = slaves > static_cast<std::size_t>(machine.slaves());
    const std::size_t packing = claims ? 2 : 1, reading = 4 * (claims ? 2 : 24);
    const std::size_t grains = batches * divided(rows, grain_rows());
    const std::size_t panels = panels_of(columns);
    std::size_t best = 1, least = ~std::size_t{0};
    for (std::size_t parts = 1; parts <= std::min(panels, 2 * slaves);
         ++parts) {
      const std::size_t block = std::min(divided(panels, parts), most);
      const std::size_t all = grains * divided(panels, block);
      const std::size_t count =
          claims ? std::max(grain_rows(), divided(all * grain_rows(), slaves))
                 : divided(all, slaves) * grain_rows();
      const std::size_t time = count * (4 * block + packing) +
                               divided(count, kBlockRows) * block * reading;
      // More blocks must be worth more than the model's errors.
      if (time + time / 32 < least) best = block, least = time;
    }
    return best;
  }

  // run_part() launches the rows of a part, with the part's a. The columns are
  // divided too if there are few rows for each slave.
  void run_part(const Part& now, const Blocks& most, const std::byte* packed,
                float* sums) const {
    const std::size_t panel_bytes = packed_bytes(now.terms, most);
    const std::size_t panels = panels_of(now.columns);
    const std::size_t block_panels = block_panels_of(
        now.batches, now.rows, now.terms, now.columns, most.panels);
    const std::size_t block_columns =
        std::min(block_panels * kProductLanes, now.columns);
    ProductArgs args = common_args();
    args.terms = now.terms;
    args.columns = block_columns;
    const bool begins = partial_sums == nullptr || partial_sums->begins,
               ends = partial_sums == nullptr || partial_sums->ends;
    args.first = begins && now.term == 0 ? 1 : 0;
    args.last = ends && now.term + now.terms == terms() ? 1 : 0;
    if (most.gathers) {
      args.row_runs = runs_of(gather->rows);
      args.term_runs = runs_of(gather->columns);
      args.first_row = now.row;
      args.first_term = now.term;
    }
    ProductArgs last = args;
    if (now.columns % block_columns != 0) {
      last.columns = now.columns % block_columns;
    }
    const Operation operations[] = {operation_of(args, most, now.rows),
                                    operation_of(last, most, now.rows)};
    // The first scale of the part.
    const std::size_t step =
        args.scale_terms == 0 ? 0 : now.term / args.scale_terms;
    Workspace& workspace = Workspace::of_this_thread();
    RowTable table(operations, 2,
                   now.batches * ((panels - 1) / block_panels + 1), false,
                   {grain_rows(), ~std::size_t{0}}, workspace.segments());
    for (std::size_t i = 0; i < now.batches; ++i) {
      const std::byte* const matrix =
          packed + (b.batch_step == 0 ? 0 : i * panels * panel_bytes);
      for (std::size_t c = 0; c < now.columns; c += block_columns) {
        const std::size_t batch = now.batch + i, column = now.column + c;
        table.add(now.rows,
                  {most.packs_rows
                       ? static_cast<std::byte*>(a.data) +
                             i * packed_rows_bytes(now.rows, now.terms, most)
                       : part(a, batch, 0, 0).data,
                   matrix + c / kProductLanes * panel_bytes,
                   sums + (i * panels * kProductLanes + c) * now.rows,
                   part(self, batch, now.row, column).data,
                   part(out, batch, now.row, column).data,
                   place(scales.a, now.row * steps_of(terms()) + step),
                   place(scales.b, step * out.columns + column)},
                  now.columns - c < block_columns ? 1 : 0);
      }
    }
    SegmentList list = table.list();
    list.memory_bytes =
        out.batch * out.rows *
        (terms() * bytes() + out.columns * kScalarTypeBytes[out.dtype]);
    workspace.run(machine, list);
  }
};

// places_of() returns `count` places that are `step` apart.
std::vector<std::size_t> places_of(std::size_t count, std::size_t step) {
  std::vector<std::size_t> places(count);
  for (std::size_t i = 0; i < count; ++i) places[i] = i * step;
  return places;
}

}  // namespace

void product_by_panels(const ProductCall& call) {
  const Panels panels{call};
  const std::size_t first = 0;
  if (!panels.has_shared_left()) {
    if (!panels.is_narrow()) return panels.by_panels();
    const Matrices& a = call.a;
    const bool by_term = a.column_step == 1;
    const auto places = places_of(by_term ? a.rows : a.columns,
                                  by_term ? a.row_step : a.column_step);
    const Runs apart{places.data(), 1};
    const Gather gather = by_term ? Gather{apart, {&first, a.columns}}
                                  : Gather{{&first, a.rows}, apart};
    Panels in_place{call};
    in_place.gather = &gather;
    const bool fits = in_place.fits(in_place.blocks_of_caches());
    return fits ? in_place.by_panels() : panels.by_panels();
  }
  // The transposes are products with the same right factor, which is packed
  // once.
  Panels transposed{call};
  transposed.transpose();
  const Panels& packed = panels.is_ragged() ? transposed : panels;
  if (call.a.dtype != kFloat32) return packed.by_panels();
  // The kernel reads the rows of the left factors where they lie.
  const auto terms = places_of(call.terms(), call.b.row_step);
  const Gather gather{{&first, call.out.columns}, {terms.data(), 1}};
  Panels in_place = transposed;
  in_place.gather = &gather;
  (in_place.can_gather() ? in_place : packed).by_panels();
}

}  // namespace swamp::master
