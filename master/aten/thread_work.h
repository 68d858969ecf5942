#ifndef SWAMP_MASTER_ATEN_THREAD_WORK_H_
#define SWAMP_MASTER_ATEN_THREAD_WORK_H_

#include <cstddef>
#include <memory>
#include <utility>

namespace swamp::aten {

// Lists of more entries are freed after the call.
inline constexpr std::size_t kMaxKeptCount = std::size_t{1} << 16;

// ThreadWork lends the calling thread's Work for one call. It is kept between
// calls, so that nothing is allocated once warm. At the end of the call, also
// by an exception, clear() is called, and what is not is_small() is freed.
//
// The destructors of static objects may still call: then the thread's own
// objects are gone already, and every call has a Work of its own.
template <class Work>
class ThreadWork {
 public:
  ThreadWork() : work_(std::exchange(kept_, nullptr)) {
    if (work_ == nullptr) work_ = std::make_unique<Work>();
  }
  ~ThreadWork() {
    work_->clear();
    if (ended_ || kept_ != nullptr || !work_->is_small()) return;
    thread_local const AtThreadEnd at_thread_end;
    kept_ = work_.release();
  }
  ThreadWork(const ThreadWork&) = delete;
  ThreadWork& operator=(const ThreadWork&) = delete;

  Work& operator*() const noexcept { return *work_; }
  Work* operator->() const noexcept { return work_.get(); }

 private:
  struct AtThreadEnd {
    ~AtThreadEnd() {
      delete std::exchange(kept_, nullptr);
      ended_ = true;
    }
  };
  // Without destructors, so that they can be read after the thread's end.
  static inline thread_local Work* kept_ = nullptr;
  static inline thread_local bool ended_ = false;

  std::unique_ptr<Work> work_;
};

}  // namespace swamp::aten

#endif  // SWAMP_MASTER_ATEN_THREAD_WORK_H_
