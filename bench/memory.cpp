#include "bench/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <new>

#include "bench/threads.h"

namespace swamp::bench {
namespace {

constexpr std::size_t kPage = 4096;

std::size_t limit = 0;

std::size_t whole_pages(std::size_t bytes) {
  return (bytes + kPage - 1) / kPage * kPage;
}

std::byte* reserve() {
  // Addresses for all that may be asked for; pages come with the filling.
  void* address = mmap(nullptr, limit, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) throw std::bad_alloc();
  return static_cast<std::byte*>(address);
}

// By the threads that will use it: a page lies on the node of its first.
void fill(std::byte* at, std::size_t bytes) {
  auto* const begin = reinterpret_cast<float*>(at);
  for_each_part(thread_counts().back(), bytes / sizeof(float),
                kPage / sizeof(float), [&](std::size_t i, std::size_t end) {
                  std::fill(begin + i, begin + end, 1.0f);
                });
}

}  // namespace

void limit_shared_memory(std::size_t bytes) { limit = whole_pages(bytes); }

std::byte* shared_memory(std::size_t bytes) {
  static std::byte* const base = reserve();
  static std::size_t filled = 0;
  if (bytes > limit) throw std::bad_alloc();
  if (bytes > filled) {
    const std::size_t more = whole_pages(bytes - filled);
    fill(base + filled, more);
    filled += more;
  }
  return base;
}

PristineMemory::PristineMemory(std::size_t bytes)
    : bytes_(whole_pages(bytes)), data_(shared_memory(bytes)) {
  fill(data_, bytes_);
}

PristineMemory::~PristineMemory() { fill(data_, bytes_); }

}  // namespace swamp::bench
