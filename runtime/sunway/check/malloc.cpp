// The malloc family, recorded in check mode; without it one test of a flag.
#include <cerrno>
#include <cstddef>
#include <cstdint>

#include "runtime/sunway/api.h"
#include "runtime/sunway/check/registry.h"
#include "runtime/sunway/settings.h"

extern "C" void* __libc_malloc(std::size_t bytes);
extern "C" void* __libc_calloc(std::size_t count, std::size_t bytes);
extern "C" void* __libc_realloc(void* memory, std::size_t bytes);
extern "C" void* __libc_memalign(std::size_t alignment, std::size_t bytes);
extern "C" void __libc_free(void* memory);

namespace check = swamp::sunway::check;

namespace {

bool recording() noexcept {
  // Not is_check_asked() each time; a race here writes the same value twice.
  static int state = 0;
  if (state == 0) state = swamp::sunway::is_check_asked() ? 1 : -1;
  return state == 1;
}

void* recorded(void* memory, std::size_t bytes, const void* pc) noexcept {
  if (memory != nullptr && recording()) check::add_block(memory, bytes, pc);
  return memory;
}

void* aligned(std::size_t alignment, std::size_t bytes, const void* pc) {
  return recorded(__libc_memalign(alignment, bytes), bytes, pc);
}

}  // namespace

namespace swamp::sunway::check {

void* allocate(std::size_t alignment, std::size_t bytes, const void* pc) {
  return aligned(alignment, bytes, pc);
}

}  // namespace swamp::sunway::check

extern "C" {

#pragma GCC visibility push(default)

void* malloc(std::size_t bytes) {
  return recorded(__libc_malloc(bytes), bytes, SWAMP_SUNWAY_CALLER());
}
void* calloc(std::size_t count, std::size_t bytes) {
  return recorded(__libc_calloc(count, bytes), count * bytes,
                  SWAMP_SUNWAY_CALLER());
}
void* realloc(void* memory, std::size_t bytes) {
  if (memory != nullptr && recording()) check::remove_block(memory);
  return recorded(__libc_realloc(memory, bytes), bytes, SWAMP_SUNWAY_CALLER());
}
void free(void* memory) {
  if (memory != nullptr && recording()) check::remove_block(memory);
  __libc_free(memory);
}
void* memalign(std::size_t alignment, std::size_t bytes) {
  return aligned(alignment, bytes, SWAMP_SUNWAY_CALLER());
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  return aligned(alignment, bytes, SWAMP_SUNWAY_CALLER());
}
void* valloc(std::size_t bytes) {
  return aligned(4096, bytes, SWAMP_SUNWAY_CALLER());
}
int posix_memalign(void** out, std::size_t alignment, std::size_t bytes) {
  if (alignment % sizeof(void*) != 0 || alignment == 0 ||
      (alignment & (alignment - 1)) != 0) {
    return EINVAL;
  }
  void* memory = aligned(alignment, bytes, SWAMP_SUNWAY_CALLER());
  if (memory == nullptr) return ENOMEM;
  *out = memory;
  return 0;
}

#pragma GCC visibility pop

}  // extern "C"
