#include <slave.h>
#include <stdio.h>
float total;
long lock_word;
int calls;
void work(int* numbers) {
  athread_lock(&lock_word);
  if (++calls == 1) printf("first\n");
  total += 1 / (3.0f + _PEN);
  athread_unlock(&lock_word);
}
