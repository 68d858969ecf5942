#include "counting_new.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

constexpr std::size_t kUnlimited = ~std::size_t{0};
std::atomic<std::size_t> count{0};
std::atomic<std::size_t> limit{kUnlimited};
std::atomic<std::size_t> all_bytes{0};

void* allocate(std::size_t bytes, std::size_t alignment) noexcept {
  if (count.fetch_add(1) >= limit.load()) return nullptr;
  all_bytes.fetch_add(bytes);
  const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  return std::aligned_alloc(alignment, rounded == 0 ? alignment : rounded);
}

void* allocate_or_throw(std::size_t bytes, std::size_t alignment) {
  void* memory = allocate(bytes, alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

constexpr std::size_t kDefault = alignof(std::max_align_t);

}  // namespace

void* operator new(std::size_t bytes) {
  return allocate_or_throw(bytes, kDefault);
}
void* operator new[](std::size_t bytes) {
  return allocate_or_throw(bytes, kDefault);
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return allocate(bytes, kDefault);
}
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept {
  return allocate(bytes, kDefault);
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return allocate_or_throw(bytes, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  return allocate_or_throw(bytes, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t bytes, std::align_val_t alignment,
                   const std::nothrow_t&) noexcept {
  return allocate(bytes, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment,
                     const std::nothrow_t&) noexcept {
  return allocate(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}

namespace swamp::test {

std::size_t allocations() { return count.load(); }
std::size_t allocated_bytes() { return all_bytes.load(); }
void fail_after(std::size_t allowed) { limit.store(count.load() + allowed); }
void fail_never() { limit.store(kUnlimited); }

}  // namespace swamp::test
