#ifndef SWAMP_TESTS_SUPPORT_GUARDED_PAGES_H_
#define SWAMP_TESTS_SUPPORT_GUARDED_PAGES_H_

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <mutex>
#include <system_error>

namespace swamp::test {

// GuardedPages is memory of any values between two protected pages: an access
// outside of it ends the process.
class GuardedPages {
 public:
  explicit GuardedPages(std::size_t bytes)
      : page_(static_cast<std::size_t>(sysconf(_SC_PAGESIZE))),
        bytes_((bytes + page_ - 1) / page_ * page_) {
    {
      const std::lock_guard lock(mutex_);
      if (is_kept() && unused() != nullptr) {
        begin_ = unused();
        std::memcpy(&unused(), static_cast<void*>(begin_), sizeof begin_);
        return;
      }
    }
    void* all = mmap(nullptr, bytes_ + 2 * page_, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED) {
      throw std::system_error(errno, std::generic_category(), "mmap");
    }
    begin_ = static_cast<std::byte*>(all) + page_;
    protect(PROT_READ | PROT_WRITE);
  }
  ~GuardedPages() {
    if (!is_kept()) {
      munmap(begin_ - page_, bytes_ + 2 * page_);
      return;
    }
    const std::lock_guard lock(mutex_);
    std::memcpy(static_cast<void*>(begin_), &unused(), sizeof begin_);
    unused() = begin_;
  }
  GuardedPages(const GuardedPages&) = delete;
  GuardedPages& operator=(const GuardedPages&) = delete;

  std::byte* begin() const { return begin_; }
  std::byte* end() const { return begin_ + bytes_; }
  std::size_t bytes() const { return bytes_; }

  // From here on a write ends the process.
  void make_read_only() {
    protect(PROT_READ);
    is_read_only_ = true;
  }

 private:
  // Few pages stay mapped for the next ones: the system takes longer to map
  // them than most calls of a test to read them. Each begins with the address
  // of the next of as many pages. The mutex is for those that are not in use.
  static constexpr std::size_t kMostKept = 16;
  bool is_kept() const {
    return bytes_ != 0 && bytes_ <= kMostKept * page_ && !is_read_only_;
  }
  std::byte*& unused() const {
    static std::byte* first[kMostKept + 1];
    return first[bytes_ / page_];
  }
  static inline std::mutex mutex_;

  void protect(int protection) {
    if (mprotect(begin_, bytes_, protection) != 0) {
      throw std::system_error(errno, std::generic_category(), "mprotect");
    }
  }

  std::size_t page_;
  std::size_t bytes_;
  bool is_read_only_ = false;
  std::byte* begin_ = nullptr;
};

}  // namespace swamp::test

#endif  // SWAMP_TESTS_SUPPORT_GUARDED_PAGES_H_
