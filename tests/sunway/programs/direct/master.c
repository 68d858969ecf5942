/* Legal loads and stores of slaves in every kind of memory. */
#define _GNU_SOURCE
#include <athread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "shared.h"

extern SLAVE_FUN(work)(job_t*);

static long grid[8][9];
char text_of_master[13] = "twelve bytes";

int main(int argc, char** argv) {
  int wrong = 0;
  char* line = NULL;
  size_t room = 0;
  FILE* file = fopen("/proc/self/stat", "r");
  job_t job = {0};
  if (getline(&line, &room, file) < 0) return 1;
  job.line = line;
  job.word = strdup("a word of the C library");
  job.program = argv[0];
  job.text = text_of_master;
  job.grid = grid;
  job.empty = malloc(0);
  job.odd = malloc(kOdd);
  job.large = calloc(kLarge, sizeof *job.large);
  job.mapped = mmap(NULL, 8192, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  memset(job.mapped, 1, 8192);
  memset(job.odd, 1, kOdd);
  athread_init();
  for (int round = 0; round < 2; ++round) {
    memset(job.found, 0, sizeof job.found);
    athread_spawn(work, &job);
    athread_join();
    for (int i = 0; i < 64; ++i) wrong += job.found[i] != i;
    for (int i = 0; i < 8; ++i) wrong += grid[i][8] != 8 * (round + 1);
    wrong += job.large[kLarge - 1] != round + 1;
    /* The same addresses hold other blocks. */
    free(job.odd);
    job.odd = malloc(kOdd);
    memset(job.odd, 1, kOdd);
  }
  fclose(file);
  free(line);
  printf("direct: %d wrong, %d\n", wrong, argc);
  return 0;
}
