// Lets libraries that are linked with a newer glibc (2.36) and libstdc++ (g++
// 12) load on those of manylinux_2_28, for which PyTorch's wheels are built:
// glibc 2.28, GLIBCXX_3.4.24, CXXABI_1.3.11. Each symbol that is newer there is
// defined here, hidden, by an older one with the same meaning. Only wheels
// contain this file; auditwheel names a symbol that is missing here by a newer
// tag.
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>

#include <new>

// glibc 2.34 moved libpthread into libc under new versions, and pow() of 2.29
// lacks the error handling of SVID. HIDDEN_BY(VERSION, RESULT, NAME,
// PARAMETERS, ARGUMENTS) defines NAME by NAME@VERSION. An attribute cannot hide
// pow(), which is built in.
#define HIDDEN __attribute__((visibility("hidden")))
#define HIDDEN_BY(version, result, name, parameters, arguments)   \
  __asm__(".hidden " #name "\n.symver swamp_old_" #name "," #name \
          "@GLIBC_" version);                                     \
  result swamp_old_##name parameters;                             \
  result name parameters { return swamp_old_##name arguments; }

extern "C" {
// NOLINTBEGIN(bugprone-reserved-identifier)
HIDDEN_BY("2.2.5", double, pow, (double x, double y), (x, y))
HIDDEN_BY("2.2.5", int, pthread_sigmask,
          (int how, const sigset_t* set, sigset_t* old), (how, set, old))
HIDDEN_BY("2.2.5", int, pthread_key_create,
          (pthread_key_t * key, void (*destroy)(void*)), (key, destroy))
HIDDEN_BY("2.2.5", int, pthread_setspecific,
          (pthread_key_t key, const void* value), (key, value))
HIDDEN_BY("2.3.4", int, pthread_setaffinity_np,
          (pthread_t thread, size_t bytes, const cpu_set_t* cpus),
          (thread, bytes, cpus))
HIDDEN_BY("2.2.5", int, sem_init, (sem_t * sem, int shared, unsigned value),
          (sem, shared, value))
HIDDEN_BY("2.2.5", int, sem_destroy, (sem_t * sem), (sem))
HIDDEN_BY("2.2.5", int, sem_post, (sem_t * sem), (sem))
HIDDEN_BY("2.2.5", int, sem_wait, (sem_t * sem), (sem))

// glibc 2.32: whether libstdc++ may omit atomic operations; never, if 0.
HIDDEN extern char __libc_single_threaded;
char __libc_single_threaded = 0;

// libstdc++ of GCC 11 declares the two functions below inline copies of these.
void swamp_old_copy(void* result, void* const* other) __asm__(
    "_ZNSt15__exception_ptr13exception_ptrC1ERKS0_");
void swamp_old_destroy(void** exception) __asm__(
    "_ZNSt15__exception_ptr13exception_ptrD1Ev");
// std::exception_ptr::_M_addref() and _M_release(): `self` is the
// exception_ptr, whose only member is the pointer to the exception.
HIDDEN void swamp_add_reference(void** self) __asm__(
    "_ZNSt15__exception_ptr13exception_ptr9_M_addrefEv");
HIDDEN void swamp_release(void** self) __asm__(
    "_ZNSt15__exception_ptr13exception_ptr10_M_releaseEv");
void swamp_add_reference(void** self) {
  void* copy;  // never destroyed, so it keeps its reference
  swamp_old_copy(&copy, self);
}
void swamp_release(void** self) {
  swamp_old_destroy(self);
  *self = nullptr;
}
// NOLINTEND(bugprone-reserved-identifier)
}

namespace std {
HIDDEN void __throw_bad_array_new_length() {
  throw std::bad_array_new_length();
}
}  // namespace std
