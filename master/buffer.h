#ifndef SWAMP_MASTER_BUFFER_H_
#define SWAMP_MASTER_BUFFER_H_

#include <cstddef>
#include <memory>
#include <new>
#include <string>
#include <type_traits>

#include "swamp/error.h"

namespace swamp::master {

// Buffer is uninitialised memory that is kept, so that a second list of the
// same size allocates nothing, but for trim().
template <class T>
class Buffer {
  static_assert(std::is_trivially_destructible_v<T>);

 public:
  // reserve() returns memory for `count` elements. If it grows, the contents
  // are lost. Throws Error SWAMP_OUT_OF_MEMORY.
  T* reserve(std::size_t count) {
    if (count > capacity_) {
      const std::size_t bytes = count * sizeof(T);
      data_.reset();
      capacity_ = 0;
      data_.reset(
          static_cast<T*>(::operator new(bytes, kAlignment, std::nothrow)));
      if (!data_) {
        throw Error(
            SWAMP_OUT_OF_MEMORY,
            "cannot allocate " + std::to_string(bytes) + " bytes for the plan");
      }
      capacity_ = count;
    }
    return data_.get();
  }

  // trim() frees memory of more than kMaxKeptBytes. Call it after the last use.
  void trim() noexcept {
    if (capacity_ * sizeof(T) <= kMaxKeptBytes) return;
    data_.reset();
    capacity_ = 0;
  }

  // data() returns the memory of the last reserve().
  T* data() noexcept { return data_.get(); }

 private:
  static constexpr std::align_val_t kAlignment{128};
  static constexpr std::size_t kMaxKeptBytes = std::size_t{4} << 20;
  struct Free {
    void operator()(T* data) const noexcept {
      ::operator delete(data, kAlignment);
    }
  };
  std::unique_ptr<T[], Free> data_;
  std::size_t capacity_ = 0;
};

}  // namespace swamp::master

#endif  // SWAMP_MASTER_BUFFER_H_
