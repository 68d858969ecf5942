#ifndef SWAMP_TESTS_SUPPORT_GUARDED_PAGES_H_
#define SWAMP_TESTS_SUPPORT_GUARDED_PAGES_H_

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <system_error>

namespace swamp::test {

// GuardedPages is memory between two protected pages: an access outside of it
// ends the process.
class GuardedPages {
 public:
  explicit GuardedPages(std::size_t bytes)
      : page_(static_cast<std::size_t>(sysconf(_SC_PAGESIZE))),
        bytes_((bytes + page_ - 1) / page_ * page_) {
    void* all = mmap(nullptr, bytes_ + 2 * page_, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED) {
      throw std::system_error(errno, std::generic_category(), "mmap");
    }
    begin_ = static_cast<std::byte*>(all) + page_;
    protect(PROT_READ | PROT_WRITE);
  }
  ~GuardedPages() { munmap(begin_ - page_, bytes_ + 2 * page_); }
  GuardedPages(const GuardedPages&) = delete;
  GuardedPages& operator=(const GuardedPages&) = delete;

  std::byte* begin() const { return begin_; }
  std::byte* end() const { return begin_ + bytes_; }
  std::size_t bytes() const { return bytes_; }

  // From here on a write ends the process.
  void make_read_only() { protect(PROT_READ); }

 private:
  void protect(int protection) {
    if (mprotect(begin_, bytes_, protection) != 0) {
      throw std::system_error(errno, std::generic_category(), "mprotect");
    }
  }

  std::size_t page_;
  std::size_t bytes_;
  std::byte* begin_ = nullptr;
};

}  // namespace swamp::test

#endif  // SWAMP_TESTS_SUPPORT_GUARDED_PAGES_H_
