// What the products of numbers and of codes share: packing b in panels.
#ifndef SWAMP_MASTER_PRODUCT_H_
#define SWAMP_MASTER_PRODUCT_H_

#include <cstddef>

#include "master/launch.h"
#include "runtime/launch.h"
#include "slave/product_args.h"
#include "swamp/product.h"

namespace swamp::master {

// The packed part of b should stay in the last level of caches.
inline constexpr std::size_t kPackedBytes = std::size_t{16} << 20;

constexpr std::size_t panels_of(std::size_t columns) {
  return (columns + slave::kProductLanes - 1) / slave::kProductLanes;
}

// part() is the matrices from an element on.
Matrices part(const Matrices& x, std::size_t batch, std::size_t row,
              std::size_t column);

// Makes a unit of operand s `rows` x `columns` elements of x, with `step`
// elements from unit to unit; units that do not move are a constant. If both
// are more than 1 and the operand is written, a step of x is 1.
slave::ProductLines set_unit(Operation& operation, int s, const Matrices& x,
                             std::size_t rows, std::size_t columns,
                             std::size_t step);

// pack_args() returns the arguments of packing `lanes` lanes in panels that are
// `width` wide, without those of x.
slave::ProductPackArgs pack_args(std::size_t terms, std::size_t lanes,
                                 std::size_t width, bool pairs);

// pack_operation() returns the operation that packs panels of x, whose columns
// are lanes, and sets args.x.
Operation pack_operation(slave::ProductPackArgs& args, const Matrices& x);

// PackedLanes is what pack_panels() packs: `lanes` lanes of each of `batch`
// matrices; `x` is the first. x.columns are lanes, x.rows terms. The panels are
// `width` wide.
struct PackedLanes {
  Matrices x;
  std::size_t batch, lanes, width;
  std::byte* panels;
};

// pack_panels() packs `terms` terms of one or two `sides` of a product. A panel
// has at most block_terms terms; those of the same lanes follow each other.
void pack_panels(Machine::Impl& machine, const PackedLanes* sides,
                 std::size_t count, std::size_t terms, std::size_t block_terms,
                 bool pairs);

}  // namespace swamp::master

#endif  // SWAMP_MASTER_PRODUCT_H_
