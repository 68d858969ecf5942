// swcc compiles slave code, and files of the master that spawn, a second time
// with -fsanitize=thread, for check mode; these are the functions that the
// compiler calls for every load and store. This library implements them; no
// sanitizer is linked.
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "toolchain/sunway/emulator/check/host_check.h"
#include "toolchain/sunway/emulator/check/slave_check.h"
#include "toolchain/sunway/emulator/machine.h"

using swamp::sunway::self;
using swamp::sunway::Slave;
using swamp::sunway::check::check_of;
using swamp::sunway::check::own_check;
using swamp::sunway::check::SlaveCheck;

namespace {

void saw_read(const volatile void* address, std::size_t bytes, const void* pc,
              bool is_volatile = false) {
  Slave* slave = self();
  if (slave != nullptr && slave->observer) {
    SlaveCheck& check = *check_of(*slave);
    if (!is_volatile && check.needs_no_check(address, bytes)) return;
    if (!slave->in_ldm(address, bytes)) slave->counters.load(bytes);
    check.read(address, bytes, pc, is_volatile);
  } else if (slave == nullptr) {
    swamp::sunway::check::master_reads(address, bytes, pc, is_volatile);
  }
}
void saw_write(const volatile void* address, std::size_t bytes, const void* pc,
               bool is_volatile = false) {
  Slave* slave = self();
  if (slave != nullptr && slave->observer) {
    SlaveCheck& check = *check_of(*slave);
    if (!is_volatile && check.needs_no_check(address, bytes)) return;
    if (!slave->in_ldm(address, bytes)) slave->counters.store(bytes);
    check.write(address, bytes, pc, is_volatile);
  } else if (slave == nullptr) {
    swamp::sunway::check::master_stores(address, bytes, pc, is_volatile);
  }
}
void saw_atomic(const volatile void* address, std::size_t bytes, bool writes,
                const void* pc) {
  Slave* slave = self();
  if (slave != nullptr && slave->observer) {
    check_of(*slave)->atomic(address, bytes, writes, pc);
  } else if (slave == nullptr) {
    swamp::sunway::check::master_reads(address, bytes, pc, true);
    if (!writes) return;
    swamp::sunway::check::master_sets_flag(address, bytes);
    const auto begin = reinterpret_cast<std::uintptr_t>(address);
    swamp::sunway::check::changes_main(begin, begin + bytes, nullptr, pc);
  }
}

// What the compiler passes to the functions of -fsanitize=bounds.
struct Type {
  std::uint16_t kind, info;  // of an integer: is it signed, log2 of its bits
  char name[1];
};
struct BadIndex {
  const char* file;
  std::uint32_t line, column;
  const Type* array;
  const Type* index;
};

}  // namespace

#pragma GCC visibility push(default)

extern "C" {

void __tsan_init() {}
// The function's own frame exists already.
void __tsan_func_entry(void*) {
  if (SlaveCheck* own = own_check()) {
    own->entered(__builtin_frame_address(0), SWAMP_SUNWAY_CALLER());
  }
}
void __tsan_func_exit() {}

int swamp_loop_needs_no_check(unsigned long iterations, unsigned long count,
                              ...) {
  SlaveCheck* own = own_check();
  if (own == nullptr) return 0;
  SlaveCheck::LoopAccess all[swamp::sunway::check::kMostLoopAccesses];
  va_list arguments;
  va_start(arguments, count);
  for (unsigned long i = 0; i < count; ++i) {
    all[i].first = va_arg(arguments, unsigned long);
    all[i].step = va_arg(arguments, unsigned long);
    all[i].kind = va_arg(arguments, unsigned long);
  }
  va_end(arguments);
  return own->loop_needs_no_check(all, count, iterations) ? 1 : 0;
}
void swamp_loop_reads(std::uintptr_t first, unsigned long step,
                      unsigned long bytes, unsigned long iterations) {
  own_check()->loop_reads({first, step, bytes}, iterations,
                          SWAMP_SUNWAY_CALLER());
}

// -fsanitize=bounds calls this for an index of an array whose bounds are known.
void __ubsan_handle_out_of_bounds(const BadIndex* bad, std::uint64_t value) {
  SlaveCheck* own = own_check();
  if (own == nullptr) return;
  // The bits of the index type above 64 - width are not its own.
  const unsigned width = 1u << (bad->index->info >> 1);
  const unsigned unused = width < 64 ? 64 - width : 0;
  const bool is_signed = (bad->index->info & 1) != 0;
  const std::string index =
      is_signed
          ? std::to_string(static_cast<std::int64_t>(value << unused) >> unused)
          : std::to_string(value << unused >> unused);
  own->out_of_bounds(
      SWAMP_SUNWAY_CALLER(),
      "index " + index + " is out of bounds for " + bad->array->name);
}

// Programs synchronise in main memory by accesses to volatile words.
#define SWAMP_ACCESS(kind, bytes, is_volatile)                     \
  void __tsan_##kind##read##bytes(void* address) {                 \
    saw_read(address, bytes, SWAMP_SUNWAY_CALLER(), is_volatile);  \
  }                                                                \
  void __tsan_##kind##write##bytes(void* address) {                \
    saw_write(address, bytes, SWAMP_SUNWAY_CALLER(), is_volatile); \
  }
#define SWAMP_ACCESSES(kind, is_volatile) \
  SWAMP_ACCESS(kind, 1, is_volatile)      \
  SWAMP_ACCESS(kind, 2, is_volatile)      \
  SWAMP_ACCESS(kind, 4, is_volatile)      \
  SWAMP_ACCESS(kind, 8, is_volatile)      \
  SWAMP_ACCESS(kind, 16, is_volatile)
SWAMP_ACCESSES(, false)
SWAMP_ACCESSES(volatile_, true)
#undef SWAMP_ACCESSES
#undef SWAMP_ACCESS

void __tsan_read_range(void* address, std::size_t bytes) {
  saw_read(address, bytes, SWAMP_SUNWAY_CALLER());
}
void __tsan_write_range(void* address, std::size_t bytes) {
  saw_write(address, bytes, SWAMP_SUNWAY_CALLER());
}
void __tsan_vptr_read(void** address) {
  saw_read(address, sizeof *address, SWAMP_SUNWAY_CALLER());
}
void __tsan_vptr_update(void** address, void*) {
  saw_write(address, sizeof *address, SWAMP_SUNWAY_CALLER());
}

#define SWAMP_FETCH(bits, word, name)                                    \
  word __tsan_atomic##bits##_fetch_##name(volatile word* at, word value, \
                                          int) {                         \
    saw_atomic(at, sizeof(word), true, SWAMP_SUNWAY_CALLER());           \
    return __atomic_fetch_##name(at, value, __ATOMIC_SEQ_CST);           \
  }
#define SWAMP_EXCHANGE(bits, word, kind)                                    \
  int __tsan_atomic##bits##_compare_exchange_##kind(                        \
      volatile word* at, word* expected, word value, int, int) {            \
    saw_atomic(at, sizeof(word), true, SWAMP_SUNWAY_CALLER());              \
    return __atomic_compare_exchange_n(at, expected, value, false,          \
                                       __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
  }
#define SWAMP_ATOMIC(bits, word)                                            \
  word __tsan_atomic##bits##_load(const volatile word* at, int) {           \
    saw_atomic(at, sizeof(word), false, SWAMP_SUNWAY_CALLER());             \
    return __atomic_load_n(at, __ATOMIC_SEQ_CST);                           \
  }                                                                         \
  void __tsan_atomic##bits##_store(volatile word* at, word value, int) {    \
    saw_atomic(at, sizeof(word), true, SWAMP_SUNWAY_CALLER());              \
    __atomic_store_n(at, value, __ATOMIC_SEQ_CST);                          \
  }                                                                         \
  word __tsan_atomic##bits##_exchange(volatile word* at, word value, int) { \
    saw_atomic(at, sizeof(word), true, SWAMP_SUNWAY_CALLER());              \
    return __atomic_exchange_n(at, value, __ATOMIC_SEQ_CST);                \
  }                                                                         \
  SWAMP_EXCHANGE(bits, word, strong)                                        \
  SWAMP_EXCHANGE(bits, word, weak)                                          \
  SWAMP_FETCH(bits, word, add)                                              \
  SWAMP_FETCH(bits, word, sub)                                              \
  SWAMP_FETCH(bits, word, and)                                              \
  SWAMP_FETCH(bits, word, or)                                               \
  SWAMP_FETCH(bits, word, xor)                                              \
  SWAMP_FETCH(bits, word, nand)
SWAMP_ATOMIC(8, std::uint8_t)
SWAMP_ATOMIC(16, std::uint16_t)
SWAMP_ATOMIC(32, std::uint32_t)
SWAMP_ATOMIC(64, std::uint64_t)
#undef SWAMP_ATOMIC
#undef SWAMP_EXCHANGE
#undef SWAMP_FETCH

void __tsan_atomic_thread_fence(int) {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
void __tsan_atomic_signal_fence(int) {
  __atomic_signal_fence(__ATOMIC_SEQ_CST);
}

// In check mode that code calls these instead of the C library's functions;
// swcc renames the calls at link time.
void* swamp_checked_memcpy(void* to, const void* from, std::size_t bytes) {
  if (bytes != 0) {
    saw_read(from, bytes, SWAMP_SUNWAY_CALLER());
    saw_write(to, bytes, SWAMP_SUNWAY_CALLER());
  }
  return std::memcpy(to, from, bytes);
}
void* swamp_checked_memmove(void* to, const void* from, std::size_t bytes) {
  if (bytes != 0) {
    saw_read(from, bytes, SWAMP_SUNWAY_CALLER());
    saw_write(to, bytes, SWAMP_SUNWAY_CALLER());
  }
  return std::memmove(to, from, bytes);
}
void* swamp_checked_memset(void* to, int value, std::size_t bytes) {
  if (bytes != 0) saw_write(to, bytes, SWAMP_SUNWAY_CALLER());
  return std::memset(to, value, bytes);
}

}  // extern "C"

#pragma GCC visibility pop
