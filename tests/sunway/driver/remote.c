#include <slave.h>
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
