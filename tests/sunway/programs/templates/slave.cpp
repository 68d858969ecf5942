#include <slave.h>

#include "shared.h"

template <class T, int N>
struct Tile {
  static __thread_local T data[N];
};
template <class T, int N>
__thread_local T Tile<T, N>::data[N];

// Transfers by the instruction dma, with a descriptor in a vector register: the
// length, then the operation in bit 56, then the address of the reply word,
// which lies in the variable that receives the register.
typedef int Descriptor __attribute__((__mode__(__V1XI__)));
static __thread_local Descriptor descriptor;
template <class T>
static void get(T* main, T* ldm, int bytes) {
  asm volatile(
      "ble %[SIZE], 2f\n\t"
      "stl $31, 0(%[REPLY])\n\t"
      "vinsw %[REPLY], $31, 2, %[WORDS]\n\t"
      "ldi %[WORDS], 1($31)\n\t"
      "sll %[WORDS], 56, %[WORDS]\n\t"
      "vinsw %[SIZE], %[WORDS], 0, %[WORDS]\n\t"
      "dma %[WORDS], %[MAIN], %[LDM]\n\t"
      "1:\n\t"
      "ldw %[WORDS], 0(%[REPLY])\n\t"
      "beq %[WORDS], 1b\n\t"
      "2:\n\t"
      "memb\n\t"
      : [WORDS] "=&r"(descriptor), "+m"(*(T(*)[bytes])ldm)
      : [MAIN] "r"(main), [LDM] "r"(ldm),
        [REPLY] "r"(((long*)&descriptor) + 2), [SIZE] "r"(bytes)
      : "memory");
}
template <class T>
static void put(T* main, T* ldm, int bytes) {
  asm volatile(
      "stl $31, 0(%[REPLY])\n\t"
      "vinsw %[REPLY], $31, 2, $40\n\t"
      "vinsw %[SIZE], $40, 0, $40\n\t"
      "dma $40, %[MAIN], %[LDM]\n\t"
      "1:\n\t"
      "ldw $1, 0(%[REPLY])\n\t"
      "beq $1, 1b\n\t"
      :
      : [MAIN] "r"(main), [LDM] "r"(ldm),
        [REPLY] "r"(((long*)&descriptor) + 2), [SIZE] "r"(bytes)
      : "memory", "$1", "$40");
}

template <class T>
static void run(T* main, int count) {
  constexpr int kTile = 64;
  T* tile = Tile<T, kTile>::data;
  get(main + _PEN * (count / 64), tile, kTile * sizeof(T));
  for (int i = 0; i < kTile; ++i) tile[i] = square(tile[i]);
  put(main + _PEN * (count / 64), tile, kTile * sizeof(T));
}

extern "C" void apply(Job* job) {
  Job mine;
  athread_dma_get(&mine, job, sizeof mine);
  run(mine.floats, mine.count);
  run(mine.doubles, mine.count);
}
