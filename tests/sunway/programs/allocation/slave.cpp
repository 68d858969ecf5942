// Slaves use malloc: a slave gets small and large blocks that another one
// freed. The addresses depend on the order of the slaves.
#include <slave.h>

#include <string>
#include <vector>

#include "shared.h"

static long turn;
static __thread_local int line[32];

extern "C" void work(Result* results) {
  long sum = 0;
  for (int i = 0; i < 20; ++i) {
    int* some = static_cast<int*>(malloc(40 + 16 * (i % 3)));
    some[0] = _PEN + 1;
    some[9] = some[0];
    if (i % 4 == 0) some = static_cast<int*>(realloc(some, 400));
    athread_lock(&turn);  // lets other slaves run
    athread_unlock(&turn);
    sum += some[9];
    free(some);
  }
  // Large enough to be unmapped when it is freed.
  for (int i = 0; i < 4; ++i) {
    const int count = 50000;
    int* large = static_cast<int*>(malloc(count * 4 * sizeof *large));
    for (int k = 0; k < count; k += 1000) large[k] = 1000 * _PEN;
    for (int k = 0; k < count; k += 1000) sum += large[k];
    large[0] = 0;
    free(large);
  }
  std::vector<int> numbers;
  for (int i = 0; i < 15; ++i) numbers.push_back(i);
  for (int number : numbers) sum += number;
  std::string text = "more than fits into a string itself";
  text += text;
  if (text[40] != text[5]) sum = -1;
  Node* nodes = nullptr;
  for (int i = 0; i < 3; ++i) {
    Node* node = static_cast<Node*>(malloc(sizeof *node));
    node->value = _PEN;
    node->next = nodes;
    nodes = node;
  }
  // What nobody wrote may be transferred and put back.
  athread_dma_get(line, results[_PEN].line, sizeof line);
  line[_PEN % 32] = _PEN;
  athread_dma_put(results[_PEN].line, line, sizeof line);
  sum += results[_PEN].zeros[_PEN];
  results[_PEN].nodes = nodes;
  results[_PEN].sum = sum;
}
