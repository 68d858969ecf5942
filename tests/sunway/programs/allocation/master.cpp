#include <athread.h>

#include <cstdio>
#include <cstdlib>

#include "shared.h"

extern "C" void slave_work(Result*);

int main() {
  static Result results[64];
  int* lines = static_cast<int*>(aligned_alloc(128, 64 * 32 * sizeof(int)));
  int* zeros = static_cast<int*>(std::calloc(64, sizeof *zeros));
  int wrong = 0;
  for (int i = 0; i < 64; ++i) {
    results[i].line = lines + 32 * i;
    results[i].zeros = zeros;
  }
  athread_init();
  for (int round = 0; round < 3; ++round) {
    athread_spawn(SLAVE_FUN(work), results);
    athread_join();
    for (int i = 0; i < 64; ++i) {
      wrong += lines[32 * i + i % 32] != i;
      wrong += results[i].sum != 20 * (i + 1) + 200000l * i + 105;
      for (Node* node = results[i].nodes; node != nullptr;) {
        Node* next = node->next;
        wrong += node->value != i;
        std::free(node);
        node = next;
      }
    }
  }
  std::free(lines);
  std::free(zeros);
  std::printf("allocation: %d wrong\n", wrong);
  athread_halt();
  return 0;
}
