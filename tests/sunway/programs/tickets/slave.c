#include <crts.h>
#include <slave.h>

#include "shared.h"

extern int numbers[kTasks * kTask];
extern share_t shares[kSlaves];
extern float parts[kSlaves];
extern volatile long next_task;

__thread_local int task[kTask];
__thread_local share_t mine;

void take(void* unused) {
  long number;
  while ((number = faal(&next_task, 1)) < kTasks) {
    CRTS_dma_get(task, numbers + number * kTask, sizeof task);
    for (int i = 0; i < kTask; ++i) {
      mine.sum += task[i] * 100000L;
      mine.mean += task[i] / 3.0;
      mine.part += task[i] / 7.0f;
      if (1.0 / (1 + task[i]) + task[i] > mine.largest) {
        mine.largest = 1.0 / (1 + task[i]) + task[i];
      }
    }
    ++mine.count;
  }
  CRTS_dma_put(shares + _PEN, &mine, sizeof mine);
  parts[_PEN] = mine.part;
}
