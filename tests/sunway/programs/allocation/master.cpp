#include <athread.h>

#include <cstdio>
#include <cstdlib>

#include "shared.h"

extern "C" void slave_work(Result*);

int main() {
  static Result results[64];
  int wrong = 0;
  athread_init();
  for (int round = 0; round < 3; ++round) {
    athread_spawn(SLAVE_FUN(work), results);
    athread_join();
    for (int i = 0; i < 64; ++i) {
      wrong += results[i].sum != 20 * (i + 1) + 200000l * i + 105;
      for (Node* node = results[i].nodes; node != nullptr;) {
        Node* next = node->next;
        wrong += node->value != i;
        std::free(node);
        node = next;
      }
    }
  }
  std::printf("allocation: %d wrong\n", wrong);
  athread_halt();
  return 0;
}
