/* Slaves take tasks by tickets, and the master adds what they found: the shares
 * depend on the order of the slaves, and the sums do not. */
#include <athread.h>
#include <stdio.h>

#include "shared.h"

int numbers[kTasks * kTask];
share_t shares[kSlaves] __attribute__((aligned(128)));
float parts[kSlaves];
volatile long next_task;

extern SLAVE_FUN(take)(void*);

int main(void) {
  share_t all = {0};
  float sum = 0;
  for (int i = 0; i < kTasks * kTask; ++i) numbers[i] = i * 7919 % 30011;
  athread_init();
  athread_spawn(take, NULL);
  athread_join();
  for (int i = 0; i < kSlaves; ++i) {
    all.sum += shares[i].sum;
    all.mean += shares[i].mean;
    all.part += shares[i].part;
    all.count += shares[i].count;
    if (shares[i].largest > all.largest) all.largest = shares[i].largest;
    sum += parts[i];
  }
  printf("tickets: %ld %.6g %.4g %d %.6g %.4g\n", all.sum, all.mean, all.part,
         all.count, all.largest, sum);
  return 0;
}
