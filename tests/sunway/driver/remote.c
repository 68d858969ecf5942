#include <slave.h>
enum { kShift = 45 };
static inline __attribute__((always_inline)) long shift(long bit) {
  return (bit) << 40 << 5;
}
#ifdef ASSIGNED
static long bit;
long f(int* p, long id) {
  bit = 1L << 45;
  return *(int*)((long)p | id << 20 | bit);
}
#else
#ifndef BIT
#define BIT 1L << 45
#endif
long f(int* p, long id) { return *(int*)((long)p + (id << 20) + (BIT)); }
#endif
