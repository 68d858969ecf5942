#ifndef SWAMP_MASTER_ATEN_STEP_TENSORS_H_
#define SWAMP_MASTER_ATEN_STEP_TENSORS_H_

#include <ATen/core/Tensor.h>

#include <vector>

#include "master/aten/thread_work.h"
#include "swamp/tensor.h"

namespace swamp::aten {

// StepTensors is a list of tensors as an optimizer's pass wants them: element i
// of every list of a step at the same place i. A tensor that lies otherwise is
// copied, and copied back where it was written.
class StepTensors {
 public:
  // assign() takes a validated list. `like` gives the order of the elements:
  // that of its own memory where it has no holes, else of its indices; null:
  // each tensor's own.
  void assign(at::TensorList tensors, const at::TensorList* like, bool written);

  const std::vector<Tensor>& tensors() const noexcept { return tensors_; }

  // copy_back() brings what was written to where it belongs.
  void copy_back();

  // clear() releases the copies; the memory of the list is kept.
  void clear() noexcept {
    tensors_.clear();
    copies_.clear();
  }
  bool is_small() const noexcept {
    return tensors_.capacity() <= kMaxKeptCount &&
           copies_.capacity() <= kMaxKeptCount;
  }

 private:
  struct Copy {
    at::Tensor original;
    at::Tensor copy;
  };
  std::vector<Tensor> tensors_;
  std::vector<Copy> copies_;
};

}  // namespace swamp::aten

#endif  // SWAMP_MASTER_ATEN_STEP_TENSORS_H_
