// Matrix products: a call, the two ways to compute it, and what products of
// numbers and of codes share, packing in panels.
#ifndef SWAMP_MASTER_PRODUCT_H_
#define SWAMP_MASTER_PRODUCT_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

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
// With `runs` x is the first of all terms, which lie in runs as those of
// Gather::b_rows, and the terms from first_term on are packed; no block of them
// is of two runs.
struct PackedLanes {
  Matrices x;
  std::size_t batch, lanes, width;
  std::byte* panels;
  Runs runs = {};
  std::size_t first_term = 0;

  const void* at(std::size_t i, std::size_t term, std::size_t lane) const {
    const std::size_t t = first_term + term;
    if (runs.begins == nullptr) return part(x, i, t, lane).data;
    Matrices run = x;
    run.data = part(x, i, t % runs.length, lane).data;
    run.row_step = 1;
    return part(run, 0, runs.begins[t / runs.length], 0).data;
  }
};

// pack_panels() packs `terms` terms of one or two `sides` of a product. A panel
// has at most block_terms terms; those of the same lanes follow each other.
void pack_panels(Machine::Impl& machine, const PackedLanes* sides,
                 std::size_t count, std::size_t terms, std::size_t block_terms,
                 bool pairs);

// ProductCall is one product, after validation.
struct ProductCall {
  Machine::Impl& machine;
  Matrices out, a, b, self;  // self.data is null: nothing is added
  float alpha, beta;
  const Gather* gather;  // null: a is at steps
  const PartialSums* partial_sums;
  ProductScales scales;  // a and b are null: none
  bool pairs;

  // transpose() makes it the product of the transposes.
  void transpose() {
    out = out.transposed();
    a = std::exchange(b, a.transposed()).transposed();
    self = self.transposed();
    std::swap(scales.a, scales.b);
  }

  std::size_t terms() const { return a.columns; }
  std::size_t bytes() const { return kScalarTypeBytes[a.dtype]; }
  bool adds() const { return self.data != nullptr; }

  const KernelInfo& kernel(KernelFamily family) const {
    return slave::kKernels[slave::kernel_of(family, {a.dtype, out.dtype})];
  }

  slave::ProductArgs common_args() const {
    slave::ProductArgs args{};
    args.terms = terms();
    args.columns = out.columns;
    args.alpha = alpha;
    args.beta = beta;
    args.first = args.last = 1;
    args.pairs = pairs ? 1 : 0;
    args.scale_terms = static_cast<std::uint32_t>(scales.terms);
    return args;
  }

  // place() returns the address of a scale; null if there are none.
  static const float* place(const float* all, std::size_t at) {
    return all == nullptr ? nullptr : all + at;
  }
  // steps_of() returns how many scales `count` terms have.
  std::size_t steps_of(std::size_t count) const {
    return scales.a == nullptr ? 0 : scales.blocks(count);
  }
  // block_terms_of() returns ProductArgs::block_terms, at most `most`.
  static std::uint32_t block_terms_of(std::size_t terms, std::uint32_t most) {
    return static_cast<std::uint32_t>(
        std::clamp<std::size_t>((terms + 1) & ~std::size_t{1}, 2, most));
  }

  bool fits(const Operation& operation) const {
    return runtime::ldm_need(machine, operation, 0).fits();
  }
};

// product_by_panels() packs a part of b and computes all rows with it, part
// after part.
void product_by_panels(const ProductCall& call);

// most_few_rows() returns up to how many rows product_of_few_rows() is the
// fastest way: up to 2048 if there are few terms.
std::size_t most_few_rows(const ProductCall& call);

// product_of_few_rows() computes panels of columns of the result from b as it
// lies in memory. Returns false, and does nothing, if there are too many rows
// or terms, or LDM is too small for all terms of a panel.
bool product_of_few_rows(const ProductCall& call);

}  // namespace swamp::master

#endif  // SWAMP_MASTER_PRODUCT_H_
