// Packs matrices in panels of lanes for products of numbers and of codes.
#include "master/product.h"
#include "master/row_launch.h"

namespace swamp::master {

using slave::ProductLines;
using slave::ProductPackArgs;

Matrices part(const Matrices& x, std::size_t batch, std::size_t row,
              std::size_t column) {
  Matrices rest = x;
  if (x.data == nullptr) return rest;
  rest.data =
      static_cast<std::byte*>(x.data) +
      (batch * x.batch_step + row * x.row_step + column * x.column_step) *
          kScalarTypeBytes[x.dtype];
  return rest;
}

ProductLines set_unit(Operation& operation, int s, const Matrices& x,
                      std::size_t rows, std::size_t columns, std::size_t step) {
  if (rows == 0 || columns == 0) {
    operation.remove_operand(s);
    return {};
  }
  const bool is_written = operation.operands[s].access == Access::out;
  // Lines go along the smaller step. The elements of a row or column that are
  // not neighbours are a line each.
  bool by_column = rows > 1 && (columns == 1 || x.row_step < x.column_step);
  if ((rows == 1 || columns == 1) &&
      (by_column ? x.row_step : x.column_step) > 1) {
    by_column = !by_column;
  }
  const std::size_t width = by_column ? rows : columns;
  const std::size_t along = by_column ? x.row_step : x.column_step;
  const std::size_t across = by_column ? x.column_step : x.row_step;
  const std::size_t bytes = kScalarTypeBytes[x.dtype];
  if (step == 0) {
    if (is_written) {
      step = (width - 1) * along + 1;  // of the only unit, which is not shared
    } else {
      operation.operands[s].access = Access::constant;
    }
  }
  operation.set_lines(s, by_column ? columns : rows,
                      ((width - 1) * along + 1) * bytes, across * bytes,
                      step * bytes);
  return {static_cast<std::int64_t>(along), by_column ? 1u : 0u, 0};
}

ProductPackArgs pack_args(std::size_t terms, std::size_t lanes,
                          std::size_t width, bool pairs) {
  ProductPackArgs args{};
  args.terms = terms;
  args.lanes = static_cast<std::uint32_t>(lanes);
  args.width = static_cast<std::uint32_t>(width);
  args.pairs = pairs ? 1 : 0;
  return args;
}

Operation pack_operation(ProductPackArgs& args, const Matrices& x) {
  Operation pack(row_kernel<KernelFamily::product_pack>(x.dtype), &args);
  args.x = set_unit(pack, slave::ProductPackOperand::x, x, args.terms,
                    args.lanes, args.lanes * x.column_step);
  pack.set_unit_bytes(
      slave::ProductPackOperand::panel,
      slave::product_panel_bytes(args.terms, args.width, args.pairs != 0));
  return pack;
}

void pack_panels(Machine::Impl& machine, const PackedLanes* sides,
                 std::size_t count, std::size_t terms, std::size_t block_terms,
                 bool pairs) {
  // Whole panels, then the rest of the lanes; without, then with the last
  // terms. A segment is all panels of the same terms: panels that the same
  // slave packs share lines of memory if the lanes are neighbours.
  constexpr std::size_t kOperations = 4;
  constexpr std::size_t kTermLanes = 16;
  const std::size_t blocks = terms == 0 ? 1 : (terms - 1) / block_terms + 1;
  ProductPackArgs args[2 * kOperations];
  Operation operations[2 * kOperations];
  const auto packed_bytes = [&](const PackedLanes& side) {
    return slave::product_packed_bytes(terms, block_terms, side.width, pairs);
  };
  std::size_t segments = 0;
  for (std::size_t i = 0; i < count * kOperations; ++i) {
    const PackedLanes& side = sides[i / kOperations];
    const std::size_t rest = i % kOperations < 2 ? 0 : side.lanes % side.width;
    args[i] =
        pack_args(i % 2 == 0 ? block_terms : terms - (blocks - 1) * block_terms,
                  rest != 0 ? rest : side.width, side.width, pairs);
    operations[i] = pack_operation(args[i], side.x);
    Operand& panel = operations[i].operands[slave::ProductPackOperand::panel];
    panel.unit_step = packed_bytes(side);
    // The time of a term is that of its lanes and of kTermLanes more.
    operations[i].traffic_bytes =
        args[i].terms * (args[i].lanes + kTermLanes) * 4;
    segments += i % kOperations < 2 ? side.batch * blocks : 0;
  }
  Workspace& workspace = Workspace::of_this_thread();
  RowTable table(operations, count * kOperations, segments, false,
                 {1, ~std::size_t{0}}, workspace.segments());
  for (std::size_t s = 0; s < count; ++s) {
    const PackedLanes& side = sides[s];
    const std::size_t whole = side.lanes / side.width;
    const std::size_t panels = divided(side.lanes, side.width);
    for (std::size_t i = 0; i < side.batch * blocks; ++i) {
      const std::size_t batch = i / blocks, block = i % blocks;
      std::byte* const to =
          side.panels + batch * panels * packed_bytes(side) +
          block * slave::product_panel_bytes(block_terms, side.width, pairs);
      const auto add = [&](std::size_t first, std::size_t units,
                           std::size_t operation) {
        if (units == 0) return;
        table.add(
            units,
            {side.at(batch, block * block_terms, first * side.width),
             to + first * packed_bytes(side)},
            s * kOperations + operation + (block + 1 == blocks ? 1 : 0));
      };
      add(0, whole, 0);
      add(whole, panels - whole, 2);
    }
  }
  workspace.run(machine, table.list());
}

}  // namespace swamp::master
