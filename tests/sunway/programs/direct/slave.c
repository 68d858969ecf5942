#include <math.h>
#include <slave.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shared.h"

typedef struct {
  int count;
  char name[5];
  double numbers[6];
  union {
    long whole;
    float half;
  } of;
  unsigned low : 3, high : 7;
  int tail[];
} record_t;

static const double kTable[3] = {1, 2, 3};
__thread_local char name[13];
__thread_local struct {
  char first;
  double second;
} pair;

static __attribute__((noinline)) void set(record_t* record) {
  record->count = 2;
  record->high = 5;
  record->of.half = 1;
  record->numbers[5] = kTable[2];
}

static __attribute__((noinline)) long sum(const long* numbers, int count) {
  long total = 0;
  for (int i = 0; i < count; ++i) total += numbers[i];
  return total;
}

/* Copies of structs of which parts were never written. */
static int copies(void) {
  record_t a, b;
  record_t* on_heap = (record_t*)ldm_malloc(sizeof(record_t) + 8);
  set(&a);
  b = a;
  *on_heap = b;
  on_heap->tail[1] = 4;
  int right = on_heap->count == 2 && on_heap->high == 5 &&
              on_heap->numbers[5] == 3 && on_heap->tail[1] == 4 &&
              on_heap->of.half == 1;
  ldm_free(on_heap, sizeof(record_t) + 8);
  return right;
}

/* Values that the C library writes. */
static int scanned(void) {
  int number = 0, more[4];
  double part[2];
  char out[40];
  sscanf("7 -1 -1 -1 -1", "%d %d %d %d %d", &number, &more[0], &more[1],
         &more[2], &more[3]);
  part[0] = modf(2.5, &part[1]);
  snprintf(out, sizeof out, "%d %g", more[3], part[1]);
  return number == 7 && more[0] + more[1] + more[2] + more[3] == -4 &&
         part[0] == 0.5 && strcmp(out, "-1 2") == 0;
}

static __attribute__((noinline)) int deep(int left, volatile int* above) {
  volatile int here[50];
  for (int i = 0; i <= left; ++i) here[i] = i;
  return left == 0 ? above[0] : deep(left - 1, here) + here[left] - left;
}

void work(job_t* job) {
  const int count = 3 + _PEN % 4;
  long sizes[count], *more = (long*)malloc(count * sizeof(long));
  char* letters = (char*)__builtin_alloca(count);
  int right = 1;
  for (int i = 0; i < count; ++i) {
    sizes[i] = i;
    more[i] = 2 * i;
    letters[i] = (char)i;
  }
  right &= sum(sizes, count) * 2 == sum(more, count);
  right &= letters[count - 1] == count - 1;
  right &= strlen(job->line) > 10 && job->line[0] != 0;
  right &= job->word[22] == 'y' && job->word[23] == 0;
  right &= job->program[0] != 0 && job->text[12] == 0;
  right &= job->odd[0] == 1 && job->odd[kOdd - 1] == 1;
  right &= job->mapped[0] == 1 && job->mapped[8191] == 1;
  name[12] = 'x';
  pair.first = 1;
  pair.second = 2;
  right &= name[12] == 'x' && pair.first + pair.second == 3;
  right &= copies() && scanned();
  volatile int top[1] = {9};
  right &= deep(40, top) == 0;
  if (_PEN < 8) {
    const long* end = &job->grid[_PEN][9];
    for (long* at = job->grid[_PEN]; at != end; ++at) *at += at == end - 1 ? 8 : 1;
  }
  if (_PEN == 8) job->large[kLarge - 1] += 1;
  right &= job->large[_PEN] == 0;
  job->found[_PEN] = right ? _PEN : -1;
  free(more);
}
