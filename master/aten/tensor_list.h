// Lists of at::Tensors in the form that swamp's operations take, and the memory
// for them that a thread keeps between calls.
#ifndef SWAMP_MASTER_ATEN_TENSOR_LIST_H_
#define SWAMP_MASTER_ATEN_TENSOR_LIST_H_

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "master/aten/layout.h"
#include "swamp/tensor.h"

namespace swamp::aten {

// A list with more entries than this is freed after the call.
inline constexpr std::size_t kMaxKeptCount = std::size_t{1} << 16;

// ListNames is what PyTorch's error texts call an operator and its list.
struct ListNames {
  const char* operation;  // in: "NAME" not implemented for 'Int'
  const char* list;       // in: one of NAME was not a CPU tensor.
  bool float8 = false;    // whether it takes float8 gradients
};

// SplitList is a list of tensors in two parts: arrays for the kernels, and
// tensors that have holes or are misaligned.
class SplitList {
 public:
  // assign() validates every tensor, in PyTorch's order and words, and splits
  // the list. Tensors without elements are in neither part. If they are to be
  // written, tensors with several elements at one address are refused, and
  // lazily copied ones get their own memory.
  void assign(at::TensorList tensors, const ListNames& names, bool written);

  TensorList arrays() const noexcept { return arrays_; }
  // The other tensors, by their index in the list.
  const std::vector<std::size_t>& others() const noexcept { return others_; }

  // may_hold_float() returns whether a tensor may share a byte with the float
  // at one of the two addresses. Call it before overlaps().
  bool may_hold_float(const void* a, const void* b) const noexcept;
  // overlaps() returns whether two tensors, or two elements of one, may share a
  // byte. It reorders the extents, not the two parts.
  bool overlaps() { return !disjoint_ || any_overlap(extents_, scratch_); }

  // For ThreadScratch; assign() clears as well.
  void clear() noexcept {
    arrays_.clear();
    others_.clear();
    extents_.clear();
    disjoint_ = true;
  }
  bool is_small() const noexcept {
    return arrays_.capacity() <= kMaxKeptCount &&
           others_.capacity() <= kMaxKeptCount &&
           extents_.capacity() <= kMaxKeptCount &&
           scratch_.capacity() <= kMaxKeptCount;
  }

 private:
  std::vector<Tensor> arrays_;
  std::vector<std::size_t> others_;
  std::vector<Extent> extents_;
  std::vector<Extent> scratch_;
  bool disjoint_ = true;  // whether the elements of each tensor are
};

// StepTensors is a list of tensors for an optimizer's pass, which reads element
// i of every list at the same place. A tensor that is_lazy(), or whose elements
// lie in another order or not densely, is copied, and copied back if it was
// written.
class StepTensors {
 public:
  // assign() takes a validated list. Element order follows the memory of the
  // tensors in `like`, or their indices if they have holes; if `like` is null,
  // each tensor's own memory. `by_index`: element order follows the indices.
  void assign(at::TensorList tensors, const at::TensorList* like, bool written,
              bool by_index = false);

  // begin() and add() make a list without copies: of tensors that have the
  // element order of `like`.
  void begin(std::size_t count) {
    clear();
    tensors_.reserve(count);
  }
  void add(void* data, std::size_t count, ScalarType type) {
    tensors_.push_back({data, count, type});
  }

  const std::vector<Tensor>& tensors() const noexcept { return tensors_; }

  // copy_back() copies what was written to the original tensors.
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
    at::Tensor original;  // undefined if it was only read
    at::Tensor copy;
  };
  std::vector<Tensor> tensors_;
  std::vector<Copy> copies_;
};

// ThreadScratch gives one call the calling thread's `T`, which is kept between
// calls, so that a call allocates nothing once warm. At the end of the call,
// also by an exception, the object is cleared, and freed unless is_small().
//
// Destructors of static objects may call an operator after the thread's own
// objects have been destroyed; then every call makes a new `T`.
template <class T>
class ThreadScratch {
 public:
  ThreadScratch() : object_(std::exchange(kept_, nullptr)) {
    if (object_ == nullptr) object_ = std::make_unique<T>();
  }
  ~ThreadScratch() {
    object_->clear();
    if (ended_ || kept_ != nullptr || !object_->is_small()) return;
    thread_local const AtThreadEnd at_thread_end;
    kept_ = object_.release();
  }
  ThreadScratch(const ThreadScratch&) = delete;
  ThreadScratch& operator=(const ThreadScratch&) = delete;

  T& operator*() const noexcept { return *object_; }
  T* operator->() const noexcept { return object_.get(); }

 private:
  struct AtThreadEnd {
    ~AtThreadEnd() {
      delete std::exchange(kept_, nullptr);
      ended_ = true;
    }
  };
  // Trivially destructible, so that they can be read after the thread's end.
  static inline thread_local T* kept_ = nullptr;
  static inline thread_local bool ended_ = false;

  std::unique_ptr<T> object_;
};

}  // namespace swamp::aten

#endif  // SWAMP_MASTER_ATEN_TENSOR_LIST_H_
