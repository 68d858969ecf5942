#include <slave.h>
#ifdef DESCRIPTOR
#include <dma.h>
long f(int* p, long id) {
  dma_desc d = 0;
  dma_set_bsize(&d, 8192);
  return *(int*)&d + id;
}
#elif defined ASSIGNED
static long bit;
long f(int* p, long id) {
  bit = 1L << 45;
  return *(int*)((long)p | id << 20 | bit);
}
#else
enum { kShift = 45 };
#ifdef __cplusplus
#include <cstdint>
#endif
#ifdef GLOBAL
GLOBAL kRemote = 1L << 45;
#elif defined __cplusplus
namespace sw {
constexpr long kBit = 1L << 45;
}
#endif
#ifndef BIT
#define BIT 1L << 45
#endif
#ifndef OR
#define OR +
#endif
long f(int* p, long id) { return *(int*)((long)p OR(id << 20) OR(BIT)); }
#endif
