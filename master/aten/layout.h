// Where tensors lie in memory, and whether they overlap.
#ifndef SWAMP_MASTER_ATEN_LAYOUT_H_
#define SWAMP_MASTER_ATEN_LAYOUT_H_

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <vector>

namespace swamp::aten {

// Layout is where the elements of a strided tensor that has some lie, without
// their order.
struct Layout {
  std::int64_t extent = 1;  // elements from the first to the last, inclusive
  bool disjoint = true;     // certainly no two elements at one address

  explicit Layout(const at::Tensor& tensor);
};

// Extent is the memory from a tensor's first byte to its last; never empty.
struct Extent {
  std::uintptr_t begin;
  std::uintptr_t end;  // one past the last byte
};

// extent_of() returns the extent of a tensor that has elements.
Extent extent_of(const at::Tensor& tensor);

// share_memory() returns whether the extents of two tensors overlap.
inline bool share_memory(const at::Tensor& x, const at::Tensor& y) {
  const Extent a = extent_of(x), b = extent_of(y);
  return a.begin < b.end && b.begin < a.end;
}

// empty_result() returns a new tensor of the shape to which the inputs are
// broadcast, with the strides that PyTorch gives to the result of an operator
// of each element.
at::Tensor empty_result(at::ScalarType type,
                        std::initializer_list<at::Tensor> inputs);

// with_strides_of() returns `found`, which nothing else refers to, with the
// strides of `like`; or, if its elements have another order in memory, `like`
// with its values.
at::Tensor with_strides_of(const at::Tensor& like, const at::Tensor& found);

// as_result() returns `found` as empty_result() of the inputs.
at::Tensor as_result(const at::Tensor& found,
                     std::initializer_list<at::Tensor> inputs);

// any_overlap() returns whether two extents share a byte. If the addresses rise
// or fall along the list, it is one pass; otherwise a radix sort, about 5 ns
// per extent. Reorders `extents`; `scratch` is memory for the sort, to be
// reused.
bool any_overlap(std::vector<Extent>& extents, std::vector<Extent>& scratch);

}  // namespace swamp::aten

#endif  // SWAMP_MASTER_ATEN_LAYOUT_H_
