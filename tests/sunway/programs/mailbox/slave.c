#include <slave.h>

#include "shared.h"

extern volatile int ended;
extern long taken, news;
__thread_local work_t work;
__thread_local int is_ended;
__thread_local long got;

void serve(work_t* from) {
  athread_dma_get(&work, from, sizeof work);
  do {
    athread_dma_get(&work, from, sizeof work);
  } while (!work.go);
  while (!from->stop) {
  }
  faal(&from->tickets, 1);
  athread_lock(&from->lock);
  athread_dma_get(&work, from, sizeof work);
  ++taken;
  athread_unlock(&from->lock);
  do {
    athread_dma_get(&is_ended, (void*)&ended, sizeof is_ended);
  } while (!is_ended);
  athread_dma_get(&work, from, sizeof work);
  athread_dma_get(&got, &news, sizeof got);
  work.results[_PEN] = work.letter + got + _PEN;
}
