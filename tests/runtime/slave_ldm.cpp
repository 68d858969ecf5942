// Code of the program, not of swamp: slave 1 of core group 0 keeps LDM
// allocated between launches.
#include <slave.h>

#include <cstddef>

namespace {
__thread_local void* held;
__thread_local std::size_t held_bytes;
}  // namespace

extern "C" {

void test_take_ldm(void*) {
  if (_CGN != 0 || _PEN != 1) return;
  held_bytes = get_allocatable_size();
  held = ldm_malloc(held_bytes);
}

void test_give_ldm(void*) {
  if (held == nullptr) return;
  ldm_free(held, held_bytes);
  held = nullptr;
}

}  // extern "C"
