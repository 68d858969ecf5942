#ifndef SWAMP_MASTER_ATEN_WORK_LIST_H_
#define SWAMP_MASTER_ATEN_WORK_LIST_H_

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <vector>

#include "master/aten/overlap.h"
#include "master/aten/thread_work.h"
#include "swamp/tensor.h"

namespace swamp::aten {

// ListWords is how an operator speaks of its list.
struct ListWords {
  const char* operation;  // of "NAME" not implemented for 'Int'
  const char* list;       // of: one of NAME was not a CPU tensor.
};

// WorkList sorts a list of tensors into what goes down swamp's road as one list
// and what must be done element by element. It is used as a ThreadWork.
class WorkList {
 public:
  // assign() validates every tensor, in PyTorch's order and words, and sorts
  // it. Tensors without elements go nowhere. `written`: elements at one address
  // are refused, and lazily copied tensors get their own memory.
  void assign(at::TensorList tensors, const ListWords& words, bool written);

  // Tensors without holes, and the rows of those that have long rows.
  TensorList road() const noexcept { return road_; }
  // The others, by their index in the list.
  const std::vector<std::size_t>& rest() const noexcept { return rest_; }

  // holds_float() is true when some tensor may share a byte with the float at
  // one of these addresses.
  bool holds_float(const void* a, const void* b) const noexcept;
  // overlaps() is true when two tensors may share a byte. Its call reorders
  // what holds_float() reads; the list stays as it is.
  bool overlaps() { return any_overlap(extents_, scratch_); }

  // For ThreadWork; assign() clears as well.
  void clear() noexcept {
    road_.clear();
    rest_.clear();
    extents_.clear();
  }
  bool is_small() const noexcept {
    return road_.capacity() <= kMaxKeptCount &&
           rest_.capacity() <= kMaxKeptCount &&
           extents_.capacity() <= kMaxKeptCount &&
           scratch_.capacity() <= kMaxKeptCount;
  }

 private:
  // add_rows() takes a tensor with holes, or of a misaligned address.
  void add_rows(const at::Tensor& tensor, std::size_t index, std::byte* data,
                ScalarType type, bool aligned);

  std::vector<Tensor> road_;
  std::vector<std::size_t> rest_;
  std::vector<Extent> extents_;
  std::vector<Extent> scratch_;
};

}  // namespace swamp::aten

#endif  // SWAMP_MASTER_ATEN_WORK_LIST_H_
