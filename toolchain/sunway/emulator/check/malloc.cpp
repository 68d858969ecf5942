// The malloc family. In check mode allocations are recorded; otherwise the cost
// is one test of a flag.
#include "toolchain/sunway/emulator/check/malloc.h"

#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <iterator>
#include <map>
#include <mutex>
#include <new>
#include <utility>

#include "toolchain/sunway/emulator/check/cache.h"
#include "toolchain/sunway/emulator/check/slave_check.h"
#include "toolchain/sunway/emulator/host_process.h"
#include "toolchain/sunway/emulator/machine.h"

extern "C" void* __libc_malloc(std::size_t bytes);
extern "C" void* __libc_calloc(std::size_t count, std::size_t bytes);
extern "C" void* __libc_realloc(void* memory, std::size_t bytes);
extern "C" void* __libc_memalign(std::size_t alignment, std::size_t bytes);
extern "C" void __libc_free(void* memory);

namespace sunway = swamp::sunway;
namespace check = sunway::check;

namespace {

using check::add_allocation;
using check::Allocation;
using check::SlaveCheck;
using sunway::OwnAllocations;

// InnerAllocator allocates past the malloc that is being recorded.
template <class T>
struct InnerAllocator {
  using value_type = T;
  InnerAllocator() = default;
  template <class U>
  InnerAllocator(const InnerAllocator<U>&) noexcept {}
  T* allocate(std::size_t count) {
    return static_cast<T*>(__libc_malloc(count * sizeof(T)));
  }
  void deallocate(T* memory, std::size_t) noexcept { __libc_free(memory); }
  bool operator==(const InnerAllocator&) const noexcept { return true; }
  bool operator!=(const InnerAllocator&) const noexcept { return false; }
};

using Allocations =
    std::map<std::uintptr_t, Allocation, std::less<std::uintptr_t>,
             InnerAllocator<std::pair<const std::uintptr_t, Allocation>>>;

std::mutex mutex;
Allocations& allocations() {
  alignas(Allocations) static unsigned char memory[sizeof(Allocations)];
  static Allocations* const all = new (memory) Allocations;  // never destroyed
  return *all;
}

// fork() waits for the mutex: in the child no thread could unlock it, and every
// allocation would block.
[[gnu::constructor]] void register_fork_handlers() {
  pthread_atfork([] { mutex.lock(); }, [] { mutex.unlock(); },
                 [] { mutex.unlock(); });
}

// With one arena, memory between blocks is in the mapping "[heap]".
[[gnu::constructor]] void use_one_arena() {
  if (swamp::sunway::is_check_asked()) mallopt(M_ARENA_MAX, 1);
}

Allocation remove_allocation(const void* memory) noexcept {
  const std::lock_guard<std::mutex> lock(mutex);
  const auto found =
      allocations().find(reinterpret_cast<std::uintptr_t>(memory));
  if (found == allocations().end()) return {};
  const Allocation allocation = found->second;
  allocations().erase(found);
  ++swamp::sunway::check::release_count;
  return allocation;
}

bool recording() noexcept {
  // Cached; a race here writes the same value twice.
  static int state = 0;
  if (state == 0) state = swamp::sunway::is_check_asked() ? 1 : -1;
  return state == 1;
}

// allocating_slave() returns the checks of the calling slave if its program
// allocates, not the checker; otherwise nullptr.
SlaveCheck* allocating_slave() noexcept {
  return OwnAllocations::exist() ? nullptr : check::own_check();
}

// A nan in every float format, like Shadow::kPoison.
constexpr std::uint32_t kUnset = 0xfffdfffb;
constexpr std::size_t kMostUnset = std::size_t{1} << 20;

// The checker's own memory is not the program's. The bytes from `unset` on are
// new.
void* recorded(void* memory, std::size_t bytes, const void* pc,
               std::size_t unset = 0) noexcept {
  if (memory == nullptr || OwnAllocations::exist() || !recording())
    return memory;
  auto* const words = static_cast<std::byte*>(memory);
  for (std::size_t at = (unset + sizeof kUnset - 1) / sizeof kUnset;
       (at + 1) * sizeof kUnset <= std::min(bytes, kMostUnset); ++at) {
    std::memcpy(words + at * sizeof kUnset, &kUnset, sizeof kUnset);
  }
  add_allocation(memory, bytes, pc);
  if (SlaveCheck* slave = allocating_slave()) {
    slave->main_allocated(memory, bytes);
  }
  return memory;
}

// releasing() is called before the memory is freed, because another thread may
// get it at once.
Allocation releasing(void* memory) noexcept {
  if (memory == nullptr || !recording()) return {};
  const Allocation allocation = remove_allocation(memory);
  if (allocation.bytes != 0) {
    check::cached_again(allocation.begin, allocation.begin + allocation.bytes);
  }
  SlaveCheck* slave = allocating_slave();
  if (slave != nullptr && allocation.bytes != 0) {
    slave->main_freed(memory, allocation.bytes);
  }
  return allocation;
}

void* aligned(std::size_t alignment, std::size_t bytes, const void* pc) {
  return recorded(__libc_memalign(alignment, bytes), bytes, pc);
}

}  // namespace

namespace swamp::sunway::check {

bool is_unset(const void* at, std::size_t bytes) noexcept {
  const std::size_t before =
      reinterpret_cast<std::uintptr_t>(at) % sizeof kUnset;
  const auto* const begin = static_cast<const std::byte*>(at) - before;
  for (std::size_t i = 0; i < before + bytes; i += sizeof kUnset) {
    if (std::memcmp(begin + i, &kUnset, sizeof kUnset) != 0) return false;
  }
  return true;
}

Unset unset_of(std::uintptr_t address) {
  // Many transfers in a row are from the same block.
  static thread_local std::uintptr_t last = 0;
  static thread_local std::uint64_t last_releases = 0;
  static thread_local Unset last_unset = Unset::no_block;
  const Allocation block = find_allocation(address);
  if (block.bytes < sizeof kUnset) return Unset::no_block;
  if (block.begin != last || releases() != last_releases) {
    last = block.begin;
    last_releases = releases();
    const std::size_t bytes = std::min(block.bytes, kMostUnset);
    last_unset = is_unset(reinterpret_cast<const void*>(block.begin),
                          bytes / sizeof kUnset * sizeof kUnset)
                     ? Unset::all
                     : Unset::part;
  }
  return last_unset;
}

Allocation find_allocation(std::uintptr_t address) {
  const std::lock_guard<std::mutex> lock(mutex);
  auto next = allocations().upper_bound(address);
  if (next == allocations().begin()) return {};
  --next;
  const Allocation& allocation = next->second;
  return address - allocation.begin < allocation.bytes ? allocation
                                                       : Allocation{};
}

Neighbours find_neighbours(std::uintptr_t address) {
  const std::lock_guard<std::mutex> lock(mutex);
  const auto next = allocations().upper_bound(address);
  Neighbours found;
  if (next != allocations().end()) found.after = next->second;
  if (next != allocations().begin()) found.before = std::prev(next)->second;
  return found;
}

void add_allocation(const void* memory, std::size_t bytes,
                    const void* pc) noexcept {
  const auto begin = reinterpret_cast<std::uintptr_t>(memory);
  const std::lock_guard<std::mutex> lock(mutex);
  allocations()[begin] = {begin, bytes, pc};
}

}  // namespace swamp::sunway::check

// This library's own new and delete, which the linker hides from the program.
// They call the program's, because memory that the C++ library allocated is
// also freed here.
void* operator new(std::size_t bytes) {
  static auto* const next =
      reinterpret_cast<void* (*)(std::size_t)>(dlsym(RTLD_DEFAULT, "_Znwm"));
  const OwnAllocations own;
  return next(bytes);
}
void operator delete(void* memory) noexcept {
  static auto* const next =
      reinterpret_cast<void (*)(void*)>(dlsym(RTLD_DEFAULT, "_ZdlPv"));
  const OwnAllocations own;
  next(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  operator delete(memory);
}

extern "C" {

#pragma GCC visibility push(default)

void* malloc(std::size_t bytes) {
  return recorded(__libc_malloc(bytes), bytes, SWAMP_SUNWAY_CALLER());
}
void* calloc(std::size_t count, std::size_t bytes) {
  return recorded(__libc_calloc(count, bytes), count * bytes,
                  SWAMP_SUNWAY_CALLER(), count * bytes);
}
void* realloc(void* memory, std::size_t bytes) {
  const Allocation old = releasing(memory);
  void* made = __libc_realloc(memory, bytes);
  if (made == nullptr && bytes != 0 && old.bytes != 0) {  // not freed
    add_allocation(memory, old.bytes, old.pc);
  }
  return recorded(made, bytes, SWAMP_SUNWAY_CALLER(), old.bytes);
}
void free(void* memory) {
  (void)releasing(memory);
  __libc_free(memory);
}
int munmap(void* memory, std::size_t bytes) {
  ++swamp::sunway::check::release_count;
  const auto begin = reinterpret_cast<std::uintptr_t>(memory);
  check::cached_again(begin, begin + bytes);
  if (SlaveCheck* slave = recording() ? allocating_slave() : nullptr) {
    slave->main_freed(memory, bytes);
  }
  return static_cast<int>(syscall(SYS_munmap, memory, bytes));
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
