#include <slave.h>
#include <stdint.h>
#include <string.h>

/* The ways in which programs write addresses in another slave's LDM. */
#define VARIABLE(id, name) \
  (((unsigned long)&name | (unsigned long)(id) << 20) | (1ULL << 45))
#define VALUE(type, p, id) \
  *((type*)((unsigned long)(p) | (((unsigned long)id) << 20) | (1ul << 45)))
#define VALUE_AT(p, id) &VALUE(long, p, id)
static const long kRemote = 1L << 45;

static inline void* place(volatile void* p, uintptr_t id) {
  uintptr_t x = (uintptr_t)p, y = (uintptr_t)id << 20, z = 1ull << 45;
  return (void*)(x | y | z);
}

extern void* far_place(void* p, int id);

long shared[64];
__thread_local volatile long came;
__thread_local long numbers[8], own;

/* A ring: each slave stores numbers and then a flag into the LDM of the next
 * one, which answers. The flags order accesses of main memory, too. */
void work(int* bad) {
  const int next = (_PEN + 1) % 64, last = (_PEN + 63) % 64;
  volatile long taken = 0;
  int wrong = 0;
  came = 0;
  own = 100 + _PEN;
  athread_ssync_array();
  long* to = place(numbers, next);
  for (long round = 1; round <= 5; ++round) {
    while (taken < round - 1) {
    }
    for (int i = 0; i < 8; ++i) to[i] = round * 1000 + _PEN * 10 + i;
    shared[_PEN] = round;
    asm volatile("memb" ::: "memory");
    *(volatile long*)VARIABLE(next, came) = round;
    while (came < round) {
    }
    for (int i = 0; i < 8; ++i) {
      wrong += numbers[i] != round * 1000 + last * 10 + i;
    }
    wrong += shared[last] != round;
    asm volatile("memb" ::: "memory");
    *(volatile long*)place(&taken, last) = round;
  }
  athread_ssync_array();
  wrong += VALUE(long, &own, last) != 100 + last;
  wrong += *(long*)((long)&own | (long)last << 20 | kRemote) != 100 + last;
  wrong += *(long*)((long)&own + last * 1024 * 1024 + kRemote) != 100 + last;
  wrong += *(long*)far_place(&own, last) != 100 + last;
  wrong += *(long*)far_place(&own, _PEN) != 100 + _PEN;
  long* const mine = far_place(&own, 0);
  wrong += mine[(long)last << (20 - 3)] != 100 + last; /* indexed */
  /* The bit as a part of the offset of a thread-local variable. */
  wrong += *(long*)((char*)&own + kRemote + ((long)last << 20)) != 100 + last;
  wrong += ((long*)((char*)numbers + kRemote))[1] != 5000 + 63 * 10 + 1;
  /* A local array of which only an integer has the address. */
  long box[4];
  long* const from = VALUE_AT(box, 0);
  if (_PEN == 0) {
    for (int i = 0; i < 4; ++i) box[i] = 5 + i;
    athread_ssync_array();
  } else {
    athread_ssync_array();
    for (int i = 0; i < 4; ++i) wrong += from[i] != 5 + i;
  }
  athread_ssync_array();
  long copied[8];
  memcpy(copied, far_place(numbers, last), sizeof copied);
  for (int i = 0; i < 8; ++i) wrong += copied[i] != 5000 + (_PEN + 62) % 64 * 10 + i;
  bad[_PEN] = wrong;
}
