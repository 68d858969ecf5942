/* Short vectors: conversions, shuffles by mask, half precision. */
#include <athread.h>
#include <stdio.h>

extern void SLAVE_FUN(vectors)(float*);

float in[64] __attribute__((aligned(128)));

int main(void) {
  for (int i = 0; i < 64; ++i) in[i] = (float)i;
  athread_init();
  athread_spawn(vectors, in);
  athread_join();
  return 0;
}
